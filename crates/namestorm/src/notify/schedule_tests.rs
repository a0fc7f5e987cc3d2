//! Tests the protocol of NOTIFY on virtual time.

use testkit::tsig::{KEY_FILE, NAME, Signature, code_of, take_off};

use super::super::message::tests::reply;
use super::*;

/// The time of day at the start.
const TIME: u64 = 1_800_000_000;
const HEADER: [u8; 12] = [0, 0, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0];

/// A network with a virtual clock.
struct Net {
    schedule: Schedule,
    start: Instant,
    now: Instant,
    /// How far the clock is ahead, in seconds.
    ahead: u64,
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
        let servers: Vec<_> = servers
            .iter()
            .map(|last| address(*last).to_string())
            .collect();
        Self::of(servers.iter().map(String::as_str))
    }

    /// Creates servers from values of the option.
    fn of<'s>(servers: impl IntoIterator<Item = &'s str>) -> Self {
        let servers = servers.into_iter().map(|text| text.parse().unwrap());
        let servers: Vec<Secondary> = servers.collect();
        let now = Instant::now();
        Self {
            schedule: Schedule::new(&servers, [1, 2], now),
            start: now,
            now,
            ahead: 0,
        }
    }

    /// Returns the time of day, in seconds.
    fn time(&self) -> u64 {
        TIME + self.ahead + (self.now - self.start).as_secs()
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
        while let Some((_, to)) = self.schedule.write_next(self.now, self.time(), &mut out) {
            let SocketAddr::V4(to) = to else {
                unreachable!("all servers have IPv4");
            };
            all.push([&to.ip().octets()[3..], &out].concat());
        }
        all
    }

    fn reply(&mut self, from: u8, datagram: &[u8]) -> Option<Outcome> {
        let (from, time) = (address(from), self.time());
        let event = self.schedule.handle_datagram(from, datagram, time);
        event.map(|event| event.outcome)
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
            let mut note = |one: Event| {
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
                    let time = self.time();
                    let one = self.schedule.handle_datagram(from, &reply, time);
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
    assert_eq!(ended, [(7, Outcome::Unanswered(None))]);
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
        assert_eq!(net.schedule.handle_datagram(from, &right, TIME), None);
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
    assert_eq!(ended, [(93, (7, Outcome::Unanswered(None)))]);
    // The last changes have tries of their own.
    let (sent, ended) = net.run(200_000, |_| None);
    assert_eq!(sent.len(), 4);
    assert_eq!(ended, [(7, Outcome::Unanswered(None))]);
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

/// A server whose key is that of `testkit`.
const SIGNED: &str = "192.0.2.1 Known";
/// Another secret of the same key.
const OTHER_SECRET: &str = "key known { algorithm hmac-sha256; secret AAAA; };";

impl Net {
    /// Starts with a server that has the key, and a message to it.
    fn signed() -> (Self, Vec<u8>) {
        let mut net = Self::of([SIGNED]);
        net.set_keys(KEY_FILE);
        net.change(7, 1);
        let message = net.send_one();
        (net, message)
    }

    fn set_keys(&mut self, text: &str) {
        self.schedule.set_keys(&TsigKeys::parse(text).unwrap());
    }

    /// Returns the only datagram that is sent now.
    fn send_one(&mut self) -> Vec<u8> {
        let [one] = self.send().try_into().unwrap();
        one[1..].to_vec()
    }
}

/// Verifies a message independently. Returns it without its signature, the time of the signature, and its
/// code.
fn verified(message: &[u8]) -> (Vec<u8>, u64, Vec<u8>) {
    let (rest, [timers, mac, end]) = take_off(message);
    let time = (0..).take(6).zip(&timers);
    let time = time.fold(0, |time, (_, byte)| time << 8 | u64::from(*byte));
    assert_eq!(timers, Signature::at(time).timers());
    assert_eq!(mac, code_of(&[], &rest, NAME, &timers, &end));
    assert_eq!(end, [0; 4]);
    (rest, time, mac)
}

/// Returns a reply with a signature of this time.
fn signed_reply(message: &[u8], rcode: u8, time: u64) -> Vec<u8> {
    let (rest, _, mac) = verified(message);
    Signature::at(time).sign_reply(&mac, &reply(&rest, rcode))
}

fn doubtful(rcode: u8, fault: ReplyFault) -> Outcome {
    Outcome::Doubtful(Doubt { rcode, fault })
}

#[test]
fn a_server_with_a_key_gets_signed_messages_and_the_others_do_not() {
    let mut net = Net::of([SIGNED, "192.0.2.2"]);
    net.set_keys(KEY_FILE);
    net.change(7, 1);
    let [signed, plain] = net.send().try_into().unwrap();
    let (rest, time, _) = verified(&signed[1..]);
    assert_eq!((content(&rest), time), ((7, 1), TIME));
    assert_eq!((plain.len(), plain[12]), (1 + HEADER.len() + 5, 0));
    let right = signed_reply(&signed[1..], 0, TIME);
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
    let right = reply(&plain[1..], 0);
    assert_eq!(net.reply(2, &right), Some(Outcome::Acknowledged));
    assert!(net.is_idle());
}

#[test]
fn an_error_with_a_valid_signature_ends_the_attempt() {
    let (mut net, message) = Net::signed();
    let refusal = signed_reply(&message, 5, TIME);
    assert_eq!(net.reply(1, &refusal), Some(Outcome::Refused(5)));
    assert!(net.is_idle());
}

#[test]
fn a_reply_without_a_valid_signature_counts_as_none() {
    let (mut net, message) = Net::signed();
    let (rest, ..) = verified(&message);
    let right = signed_reply(&message, 0, TIME);
    let mut wrong = right.clone();
    wrong[HEADER.len() + 4] ^= 1;
    let unsigned = reply(&rest, 9);
    // Each doubt is said once.
    for (datagram, fault) in [
        (&unsigned, ReplyFault::Unsigned),
        (&wrong, ReplyFault::Invalid),
    ] {
        let rcode = datagram[3];
        assert_eq!(net.reply(1, datagram), Some(doubtful(rcode, fault)));
        assert_eq!(net.reply(1, datagram), None);
    }
    let (sent, ended) = net.run(200_000, |_| None);
    let times: Vec<_> = sent.iter().map(|(time, ..)| *time).collect();
    assert_eq!(times, [3_000, 9_000, 21_000, 45_000]);
    let doubt = Doubt {
        rcode: 0,
        fault: ReplyFault::Invalid,
    };
    assert_eq!(ended, [(7, Outcome::Unanswered(Some(doubt)))]);
    assert_eq!(net.millis(), 93_000);
    assert!(net.is_idle());
    // The server was given up, and a wrong reply does not change this.
    net.change(8, 1);
    net.change(9, 1);
    let message = net.send_one();
    let (rest, ..) = verified(&message);
    assert!(net.reply(1, &reply(&rest, 0)).is_some());
    assert!(net.send().is_empty());
    let right = signed_reply(&message, 0, net.time());
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
    assert_eq!(content(&net.send_one()), (9, 1));
}

#[test]
fn a_reply_to_another_message_does_not_count_with_this_ones_id() {
    let mut net = Net::of([SIGNED]);
    net.set_keys(KEY_FILE);
    net.change(7, 1);
    net.change(8, 1);
    let [first, second] = net.send().try_into().unwrap();
    let mut replayed = signed_reply(&first[1..], 0, TIME);
    replayed[..2].copy_from_slice(&second[1..3]);
    assert_eq!(
        net.reply(1, &replayed),
        Some(doubtful(0, ReplyFault::Invalid))
    );
    let right = signed_reply(&second[1..], 0, TIME);
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
}

#[test]
fn all_tries_have_the_same_signature_so_a_late_reply_counts() {
    let (mut net, first) = Net::signed();
    for seconds in [3, 6, 12, 24] {
        net.pass(1_000 * seconds);
        assert_eq!(net.send_one(), first);
    }
    let right = signed_reply(&first, 0, net.time());
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
    assert!(net.is_idle());
}

#[test]
fn the_next_try_has_the_time_of_a_clock_that_was_set() {
    let (mut net, first) = Net::signed();
    // The server says that the time is wrong.
    let (rest, _, mac) = verified(&first);
    let error = Signature {
        error: 18,
        ..Signature::at(TIME)
    };
    let refusal = error.sign_reply(&mac, &reply(&rest, 9));
    let expected = Some(doubtful(9, ReplyFault::Refused(18)));
    assert_eq!(net.reply(1, &refusal), expected);
    net.ahead = 30;
    net.pass(3_000);
    let second = net.send_one();
    assert_eq!(verified(&second).1, TIME + 33);
    // Without a reply, a small difference does not matter, but a large one does.
    let (mut net, first) = Net::signed();
    for (ahead, expected) in [(30, TIME), (3_000, TIME + 3_009)] {
        net.ahead = ahead;
        net.pass(if expected == TIME { 3_000 } else { 6_000 });
        assert_eq!(verified(&net.send_one()).1, expected);
    }
    let late = signed_reply(&first, 0, net.time());
    assert_eq!(net.reply(1, &late), Some(doubtful(0, ReplyFault::Invalid)));
}

#[test]
fn a_new_secret_signs_the_next_message_and_the_old_one_verifies_older_replies() {
    let mut net = Net::of([SIGNED]);
    net.set_keys(OTHER_SECRET);
    net.change(7, 1);
    let first = net.send_one();
    let (rest, [timers, mac, end]) = take_off(&first);
    assert_ne!(mac, code_of(&[], &rest, NAME, &timers, &end));
    net.set_keys(KEY_FILE);
    net.change(8, 1);
    let second = net.send_one();
    assert_eq!(content(&verified(&second).0), (8, 1));
    net.pass(3_000);
    let again = net.send();
    assert_eq!(again.len(), 2);
    assert_eq!(content(&verified(&again[0][1..]).0), (7, 1));
    // A reply by the secret that has signed the message counts, also after another change of the secret.
    net.set_keys(OTHER_SECRET);
    let right = signed_reply(&second, 0, net.time());
    assert_eq!(net.reply(1, &right), Some(Outcome::Acknowledged));
}

#[test]
fn a_server_whose_key_is_missing_is_told_when_it_is_there() {
    let mut net = Net::of([SIGNED]);
    net.change(7, 1);
    assert!(net.send().is_empty());
    assert_eq!(net.schedule.next_deadline(net.now), None);
    net.set_keys(KEY_FILE);
    assert!(net.schedule.next_deadline(net.now).is_some());
    assert_eq!(content(&verified(&net.send_one()).0), (7, 1));
}

/// A UDP message has at most 512 bytes, unless the receiver says more (RFC 1035, section 4.2.1).
#[test]
fn a_message_that_is_too_long_with_its_signature_has_no_hint() {
    let question = [&HEADER[..], &apex(7), &[0, 6, 0, 1]].concat();
    let signature_len = TsigKeys::parse(KEY_FILE).unwrap();
    let signature_len = signature_len.get(NAME).unwrap().signature_len();
    let room = 512 - question.len() - signature_len;
    for (hint, expected) in [(room, 512), (room + 1, question.len() + signature_len)] {
        let mut net = Net::of([SIGNED]);
        net.set_keys(KEY_FILE);
        let message = [question.clone(), vec![9; hint]].concat();
        net.schedule.change(Cause::Change, apex(7), message.into());
        let sent = net.send_one();
        assert_eq!(sent.len(), expected);
        verified(&sent);
    }
}
