//! Shares of client addresses in the memory for chunks.

use std::collections::HashMap;
use std::net::IpAddr;

/// One client address may hold 1/`SHARE` of the memory while others wait for memory.
const SHARE: usize = 8;

/// What a client holds, and whether it waits for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub(super) client: IpAddr,
    /// Memory of the chunks that it has not acknowledged, in bytes.
    pub(super) held: usize,
    pub(super) is_starved: bool,
}

/// The clients that hold more than their share, while others wait for memory. There are fewer than
/// [`SHARE`] of them, as far as they hold different chunks.
#[derive(Debug, Default)]
pub(super) struct Beyond(Vec<IpAddr>);

impl Beyond {
    /// Looks for these clients again. All have `capacity` bytes of memory together.
    pub(super) fn update(
        &mut self,
        all: &(impl Iterator<Item = Holding> + Clone),
        capacity: usize,
    ) {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for one in all.clone().filter(|one| one.held > 0) {
            *held.entry(one.client).or_default() += one.held;
        }
        held.retain(|_, bytes| *bytes > capacity / SHARE);
        self.0.clear();
        // A client may hold everything that no other client waits for.
        if all
            .clone()
            .any(|one| one.is_starved && !held.contains_key(&one.client))
        {
            self.0.extend(held.into_keys());
        }
    }

    pub(super) fn has(&self, client: IpAddr) -> bool {
        self.0.contains(&client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Returns which of the clients 1 to 3 are beyond their share of 800 bytes.
    fn beyond(all: &[(u8, usize, bool)]) -> Vec<u8> {
        let all = all.iter().map(|&(number, held, is_starved)| Holding {
            client: client(number),
            held,
            is_starved,
        });
        let mut beyond = Beyond::default();
        beyond.update(&all, 800);
        (1..=3_u8)
            .filter(|number| beyond.has(client(*number)))
            .collect()
    }

    #[test]
    fn a_client_that_holds_more_than_an_eighth_is_beyond_its_share_if_others_wait() {
        assert_eq!(beyond(&[(1, 60, true), (1, 41, false), (2, 0, true)]), [1]);
        assert_eq!(
            beyond(&[(1, 60, true), (1, 40, false), (2, 0, true)]),
            Vec::<u8>::new()
        );
        assert_eq!(beyond(&[(1, 700, true), (2, 50, false)]), Vec::<u8>::new());
        assert_eq!(beyond(&[(1, 300, true), (2, 300, true)]), Vec::<u8>::new());
        assert_eq!(
            beyond(&[(1, 300, true), (2, 300, true), (3, 1, true)]),
            [1, 2]
        );
        assert_eq!(beyond(&[]), Vec::<u8>::new());
    }
}
