//! A change of our own MAC address while connections are open.

use std::ops::Range;

use eth::Mac;

use super::Stack;
use crate::congestion::CongestionControl;
use crate::stack::Application;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Makes the connections in the table slots `slots` send from the MAC address `own`. Returns true if
    /// slots follow those. New connections take the address from the peer's SYN.
    pub fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
        let len = self.table.len();
        for id in slots.start..slots.end.min(len) {
            self.tcb_mut(id).path.link.own = own;
        }
        slots.end < len
    }
}

#[cfg(test)]
mod tests {
    use eth::Mac;

    use crate::Config;
    use crate::stack::testing::Rig;

    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 0x77]);

    /// Returns the source addresses of the frames that were sent.
    fn sources(rig: &mut Rig) -> Vec<Mac> {
        let frames = rig.port.sent.drain(..);
        let source = |frame: &[u8]| Mac(frame[6..12].try_into().unwrap());
        frames.map(|frame| source(&frame)).collect()
    }

    #[test]
    fn an_open_connection_sends_from_the_new_address() {
        let mut rig = Rig::serving(&Config::default(), b"all", None);
        rig.recv(1, 1, "PA", b"g");
        let [former] = sources(&mut rig)[..] else {
            panic!("one segment was sent");
        };
        assert_ne!(former, OTHER);
        assert!(rig.stack.set_own_mac(0..0, OTHER), "the slots follow");
        assert!(!rig.stack.set_own_mac(0..u32::MAX, OTHER));
        rig.pass_ms(1_500);
        let again = sources(&mut rig);
        assert!(!again.is_empty(), "the data is sent again");
        assert!(again.iter().all(|source| *source == OTHER), "{again:?}");
    }
}
