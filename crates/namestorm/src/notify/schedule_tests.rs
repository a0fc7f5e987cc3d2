//! Tests the protocol of NOTIFY on virtual time.

use super::super::message::tests::reply;
use super::*;

const HEADER: [u8; 12] = [0, 0, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0];

/// A network with a virtual clock.
struct Net {
    schedule: Schedule,
    start: Instant,
    now: Instant,
}

/// A datagram that was sent: the time in milliseconds, the last byte of the address, the zone and the
/// serial.
type Sent = (u128, u8, u32, u8);

fn address(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 53).into()
}

fn apex(zone: u32) -> Arc<[u8]> {
    zone.to_be_bytes().into()
}

/// The zone and the serial of a message.
fn content(datagram: &[u8]) -> (u32, u8) {
    let (_, rest) = datagram.split_at(HEADER.len());
    let (zone, serial) = rest.split_first_chunk().unwrap();
    (u32::from_be_bytes(*zone), serial[0])
}

impl Net {
    fn new(servers: &[u8]) -> Self {
        let servers: Vec<_> = servers.iter().copied().map(address).collect();
        let now = Instant::now();
        Self {
            schedule: Schedule::new(&servers, [1, 2], now),
            start: now,
            now,
        }
    }

    /// Changes a zone. Its serial stands for its message.
    fn change(&mut self, zone: u32, serial: u8) {
        self.tell(Cause::Change, zone, serial);
    }

    fn tell(&mut self, cause: Cause, zone: u32, serial: u8) {
        let message = [&HEADER[..], &apex(zone), &[serial]].concat();
        self.schedule.change(cause, apex(zone), message.into());
    }

    fn millis(&self) -> u128 {
        (self.now - self.start).as_millis()
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// Returns the datagrams that are sent now.
    fn send(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while let Some((_, to)) = self.schedule.write_next(self.now, &mut out) {
            let SocketAddr::V4(to) = to else {
                unreachable!("all servers have IPv4");
            };
            all.push([&to.ip().octets()[3..], &out].concat());
        }
        all
    }

    fn reply(&mut self, from: u8, datagram: &[u8]) -> Option<Outcome> {
        let ended = self.schedule.handle_datagram(address(from), datagram);
        ended.map(|ended| ended.outcome)
    }

    /// Lets time pass until nothing happens any more, or until the time limit. The servers for which
    /// `rcode` returns a code reply at once. Returns what was sent, and how it ended.
    fn run(
        &mut self,
        limit: u64,
        rcode: impl Fn(u8) -> Option<u8>,
    ) -> (Vec<Sent>, Vec<(u32, Outcome)>) {
        let limit = self.now + Duration::from_millis(limit);
        let (mut sent, mut ended) = (Vec::new(), Vec::new());
        while let Some(deadline) = self.schedule.next_deadline(self.now)
            && self.now.max(deadline) <= limit
        {
            self.now = self.now.max(deadline);
            let mut note = |one: Ended| {
                let zone = u32::from_be_bytes((*one.apex).try_into().unwrap());
                ended.push((zone, one.outcome));
            };
            while let Some(one) = self.schedule.next_unanswered(self.now) {
                note(one);
            }
            for datagram in self.send() {
                let (to, datagram) = datagram.split_first().unwrap();
                let (zone, serial) = content(datagram);
                sent.push((self.millis(), *to, zone, serial));
                if let Some(rcode) = rcode(*to) {
                    let (from, reply) = (address(*to), reply(datagram, rcode));
                    let one = self.schedule.handle_datagram(from, &reply);
                    one.into_iter().for_each(&mut note);
                }
            }
        }
        (sent, ended)
    }

    fn is_idle(&self) -> bool {
        self.schedule.next_deadline(self.now).is_none()
            && self.schedule.changes.by_place.is_empty()
            && self.schedule.changes.places.is_empty()
    }
}

#[test]
fn each_server_is_told_of_each_zone_once() {
    let mut net = Net::new(&[1, 2]);
    assert!(net.is_idle());
    net.change(7, 1);
    net.change(8, 1);
    let (mut sent, ended) = net.run(0, |_| Some(0));
    sent.sort_unstable();
    assert_eq!(
        sent,
        [(0, 1, 7, 1), (0, 1, 8, 1), (0, 2, 7, 1), (0, 2, 8, 1)]
    );
    assert_eq!(ended.len(), 4);
    assert!(ended.iter().all(|(_, end)| *end == Outcome::Acknowledged));
    assert!(net.is_idle());
}

#[test]
fn a_server_that_does_not_reply_is_asked_five_times_and_given_up() {
    let mut net = Net::new(&[1]);
    net.change(7, 1);
    let (sent, ended) = net.run(200_000, |_| None);
    let times: Vec<_> = sent.iter().map(|(time, ..)| *time).collect();
    assert_eq!(times, [0, 3_000, 9_000, 21_000, 45_000]);
    assert_eq!(ended, [(7, Outcome::Unanswered)]);
    assert_eq!(net.millis(), 93_000);
    assert!(net.is_idle());
}

#[test]
fn an_error_ends_the_attempt() {
    let mut net = Net::new(&[1]);
    net.change(7, 1);
    let (sent, ended) = net.run(200_000, |_| Some(9));
    assert_eq!((sent.len(), ended), (1, vec![(7, Outcome::Refused(9))]));
    assert!(net.is_idle());
}

#[test]
fn only_the_reply_of_the_server_to_the_message_counts() {
    let mut net = Net::new(&[1, 2]);
    net.change(7, 1);
    let sent = net.send();
    let right = reply(&sent[0][1..], 0);
    let mut wrong_id = right.clone();
    wrong_id[1] ^= 1;
    let mut query = right.clone();
    query[2] &= 0x7f;
    let mut other_opcode = right.clone();
    other_opcode[2] = 0x80;
    for wrong in [&wrong_id, &query, &other_opcode, &right[..11], b""] {
        assert_eq!(net.reply(1, wrong), None);
    }
    for (ip, port) in [(2, 53), (3, 53), (1, 54)] {
        let from = SocketAddr::from(([192, 0, 2, ip], port));
        assert_eq!(net.schedule.handle_datagram(from, &right), None);
    }
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
    assert_eq!(net.reply(1, &right), None);
}

#[test]
fn the_same_id_serves_all_tries_so_a_late_reply_counts() {
    let mut net = Net::new(&[1]);
    net.change(7, 1);
    let first = net.send();
    net.pass(3_000);
    assert_eq!(net.send(), first);
    assert_eq!(
        net.reply(1, &reply(&first[0][1..], 0)),
        Some(Outcome::Acknowledged)
    );
    assert!(net.is_idle());
}

#[test]
fn a_newer_change_replaces_one_that_waits() {
    let mut net = Net::new(&[1]);
    for serial in 1..=9 {
        net.change(7, serial);
    }
    assert_eq!(net.run(0, |_| Some(0)).0, [(0, 1, 7, 9)]);
    assert!(net.is_idle());
}

#[test]
fn a_change_replaces_the_message_in_flight_at_once() {
    let mut net = Net::new(&[1]);
    net.change(7, 1);
    let first = net.send();
    net.change(7, 2);
    net.change(7, 3);
    let second = net.send();
    assert_eq!(second.len(), 1);
    assert_eq!(content(&second[0][1..]), (7, 3));
    assert_eq!(net.reply(1, &reply(&first[0][1..], 0)), None);
    let right = reply(&second[0][1..], 0);
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
    assert!(net.is_idle());
}

/// Otherwise the operator would hear of no failure as long as the zone changes often.
#[test]
fn changes_do_not_put_off_the_end_of_the_tries() {
    let mut net = Net::new(&[1]);
    let mut ended = Vec::new();
    for serial in 0..94 {
        net.now = net.start + Duration::from_secs(u64::from(serial));
        net.change(7, serial);
        let (sent, ends) = net.run(999, |_| None);
        let is_retry = [3, 9, 21, 45, 93].contains(&serial);
        assert_eq!(sent.len(), 1 + usize::from(is_retry), "{serial}");
        ended.extend(ends.into_iter().map(|end| (serial, end)));
    }
    assert_eq!(ended, [(93, (7, Outcome::Unanswered))]);
    // The last changes have tries of their own.
    let (sent, ended) = net.run(200_000, |_| None);
    assert_eq!(sent.len(), 4);
    assert_eq!(ended, [(7, Outcome::Unanswered)]);
    assert!(net.is_idle());
}

#[test]
fn a_zone_that_is_gone_is_forgotten() {
    let mut net = Net::new(&[1]);
    net.change(7, 1);
    assert_eq!(net.send().len(), 1);
    net.change(8, 1);
    net.schedule.forget(&apex(7));
    net.schedule.forget(&apex(8));
    assert!(net.is_idle());
}

#[test]
fn many_zones_are_told_at_a_bounded_rate() {
    const ZONES: u32 = 100_000;
    let mut net = Net::new(&[1, 2]);
    for zone in 0..ZONES {
        net.change(zone, 1);
    }
    let (sent, ended) = net.run(u64::MAX / 2_000_000, |_| Some(0));
    assert_eq!(ended.len(), 2 * ZONES as usize);
    assert!(net.is_idle());
    // 500 in a second, apart from those that leave at once.
    assert!(
        (398_000..=400_100).contains(&net.millis()),
        "{}",
        net.millis()
    );
    for second in 0..10 {
        let is_in = |(time, ..): &&Sent| (second * 1_000..(second + 1) * 1_000).contains(time);
        assert!(sent.iter().filter(is_in).count() <= 517);
    }
}

#[test]
fn a_change_does_not_wait_for_what_the_start_tells() {
    let mut net = Net::new(&[1]);
    for zone in 0..1_000 {
        net.tell(Cause::Start, zone, 1);
    }
    let (mut sent, _) = net.run(1_000, |_| Some(0));
    assert!(sent.len() < 600);
    // One of these zones has been told, and the other one waits.
    net.change(1, 2);
    net.change(999, 2);
    let (more, _) = net.run(10_000, |_| Some(0));
    let first: Vec<_> = more[..2]
        .iter()
        .map(|(.., zone, serial)| (*zone, *serial))
        .collect();
    assert_eq!(first, [(1, 2), (999, 2)]);
    sent.extend(more);
    assert_eq!(sent.len(), 1_001);
    assert!(net.is_idle());
}

#[test]
fn a_server_has_few_messages_in_flight_and_one_if_it_is_silent() {
    let mut net = Net::new(&[1]);
    for zone in 0..100 {
        net.change(zone, 1);
    }
    let (sent, ended) = net.run(92_000, |_| None);
    assert_eq!(sent.len(), MAX_IN_FLIGHT * 5);
    assert!(ended.is_empty());
    let (sent, ended) = net.run(92_000, |_| None);
    assert_eq!(ended.len(), MAX_IN_FLIGHT);
    let zones: std::collections::HashSet<_> = sent.iter().map(|(_, _, zone, _)| *zone).collect();
    assert_eq!(zones, [32].into());
    // When it replies again, all others are told.
    let (sent, ended) = net.run(60_000, |_| Some(0));
    assert_eq!((sent.len(), ended.len()), (68, 68));
    assert!(ended.iter().all(|(_, end)| *end == Outcome::Acknowledged));
    assert!(net.is_idle());
}

#[test]
fn a_silent_server_holds_up_no_other() {
    let mut net = Net::new(&[1, 2, 3]);
    for zone in 0..1_000 {
        net.change(zone, 1);
    }
    let (sent, ended) = net.run(10_000, |server| (server != 1).then_some(0));
    assert_eq!(ended.len(), 2_000);
    let silent = sent.iter().filter(|(_, to, ..)| *to == 1).count();
    assert!(silent <= 3 * MAX_IN_FLIGHT, "{silent}");
    // Only the silent one keeps the list from being empty, and it grows by no zone that is there.
    for zone in 0..1_000 {
        net.change(zone, 2);
    }
    assert_eq!(net.schedule.changes.by_place.len(), 1_000);
}

#[test]
fn ids_are_not_in_order_and_depend_on_the_secret() {
    let ids = |secret| {
        let mut ids = Ids { secret, next: 0 };
        [(); 8].map(|()| ids.next(&[]))
    };
    assert_ne!(ids([1, 2]), ids([1, 3]));
    assert!(!ids([1, 2]).is_sorted());
}
