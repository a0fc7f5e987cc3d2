//! What is sent to which secondary server at which time, and what its reply means.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher24;

use super::message::{Reply, make_room};
use super::secondary::Secondary;
use crate::rcode;
use crate::tsig::{Key, ReplyFault, RequestSignature, TsigKeys};

/// Number of times that a message is sent until a server that does not reply is given up.
const MAX_TRIES: u32 = 5;
/// Time until the second try. Each later time is twice as long, so a server is given up after 93 s.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of zones of which a server has been told without a reply. It is 1 if the server has
/// been given up, until it replies again.
const MAX_IN_FLIGHT: usize = 32;
/// Minimum mean time between two datagrams, to all servers: at most 500 are sent in a second.
const INTERVAL: Duration = Duration::from_millis(2);
/// Time by which datagrams may be early after a pause: 16 of them leave at once.
const BURST: Duration = INTERVAL.saturating_mul(16);

/// The protocol of NOTIFY (RFC 1996), without sockets and clocks.
///
/// # Calling contract
/// [`set_keys`](Self::set_keys) comes first if messages have signatures. [`change`](Self::change) and
/// [`forget`](Self::forget) say what has happened to a zone. The caller then sends what
/// [`write_next`](Self::write_next) writes, passes each datagram to
/// [`handle_datagram`](Self::handle_datagram), and calls [`next_unanswered`](Self::next_unanswered). It does
/// so again at [`next_deadline`](Self::next_deadline), or when a datagram or a change arrives. `now` never
/// goes back. `time` is the time of day for signatures, in seconds since 1970. It may go back.
///
/// # Memory
/// A zone of which some servers must still be told takes its message and less than 200 bytes. This does
/// not depend on the number of servers, because each server only remembers how far it is in the list.
#[derive(Debug)]
pub(super) struct Schedule {
    changes: Changes,
    servers: Vec<Server>,
    ids: Ids,
    /// The time at which the datagrams so far would have left, one after each interval.
    paid_until: Instant,
    /// The server whose turn it is.
    turn: usize,
}

/// Why servers are told of a zone. Changes come before what is told because of the start, which may take
/// minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Change,
    Start,
}

impl Cause {
    const ALL: [Self; 2] = [Self::Change, Self::Start];
}

/// What has become of a message about a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Acknowledged,
    /// The server replied with this response code.
    Refused(u8),
    /// A reply has come that does not count, because it has no valid signature. The message is sent again as
    /// if nothing had come. The same doubt in a row is one event.
    Doubtful(Doubt),
    /// No reply to any try counts. If one has come, this is why the last one does not.
    Unanswered(Option<Doubt>),
}

/// Why a reply to a signed message does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    /// The response code.
    pub(super) rcode: u8,
    pub(super) fault: ReplyFault,
}

/// Something that has happened to a message about a zone to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Number of the server, from 0.
    pub(super) server: usize,
    pub(super) apex: Arc<[u8]>,
    pub(super) outcome: Outcome,
}

impl Schedule {
    /// Starts without changes and keys. `secret` makes the IDs of messages unpredictable.
    pub(super) fn new(servers: &[Secondary], secret: [u64; 2], now: Instant) -> Self {
        Self {
            changes: Changes::default(),
            servers: servers.iter().cloned().map(Server::new).collect(),
            ids: Ids { secret, next: 0 },
            paid_until: now,
            turn: 0,
        }
    }

    /// Signs messages with these keys from now on. A server whose key is not among them is told nothing.
    pub(super) fn set_keys(&mut self, keys: &TsigKeys) {
        for server in &mut self.servers {
            let key = server.secondary.key().and_then(|name| keys.find(name));
            server.key = key.cloned();
        }
    }

    /// Tells all servers of a zone. `message` replaces an earlier one of the same zone. Its ID does not
    /// matter.
    pub(super) fn change(&mut self, cause: Cause, apex: Arc<[u8]>, message: Arc<[u8]>) {
        self.changes.push(cause, Change { apex, message });
    }

    /// Tells no server of this zone any more.
    pub(super) fn forget(&mut self, apex: &[u8]) {
        self.changes.remove(apex);
        for server in &mut self.servers {
            server.in_flight.retain(|one| *one.change.apex != *apex);
        }
    }

    /// Writes the next datagram to `out`. Returns the number and the address of its server, or `None` if
    /// nothing may be sent now.
    pub(super) fn write_next(
        &mut self,
        now: Instant,
        time: u64,
        out: &mut Vec<u8>,
    ) -> Option<(usize, SocketAddr)> {
        if self.paid_until > now + BURST {
            return None;
        }
        let numbers = (self.turn..self.servers.len()).chain(0..self.turn);
        let next = numbers.into_iter().find_map(|number| {
            let server = &mut self.servers[number];
            let at = server.next(&self.changes, &mut self.ids, now)?;
            server.in_flight[at].write(server.key.as_ref(), time, out);
            Some((number, server.secondary.address()))
        });
        for cause in Cause::ALL {
            let passed = self
                .servers
                .iter()
                .map(|server| server.next[cause as usize]);
            self.changes.remove_before(cause, passed.min().unwrap_or(0));
        }
        let (number, _) = next?;
        self.turn = (number + 1) % self.servers.len();
        self.paid_until = self.paid_until.max(now) + INTERVAL;
        next
    }

    /// Handles a datagram from this address. Returns `None` if it is no reply to a message that waits for
    /// one, or if it brings nothing new.
    pub(super) fn handle_datagram(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        time: u64,
    ) -> Option<Event> {
        let Reply { id, rcode } = Reply::parse(datagram)?;
        let is_from = |server: &Server| {
            let address = server.secondary.address();
            (address.ip(), address.port()) == (from.ip(), from.port())
        };
        let number = self.servers.iter().position(is_from)?;
        let server = &mut self.servers[number];
        let at = server.in_flight.iter().position(|one| one.id == id)?;
        let one = &mut server.in_flight[at];
        let event = |apex, outcome| Event {
            server: number,
            apex,
            outcome,
        };
        if let Err(fault) = one.verify(datagram, time) {
            let doubt = Doubt { rcode, fault };
            let is_new = one.doubt.replace(doubt) != Some(doubt);
            let apex = Arc::clone(&one.change.apex);
            return is_new.then(|| event(apex, Outcome::Doubtful(doubt)));
        }
        server.is_silent = false;
        let apex = server.in_flight.swap_remove(at).change.apex;
        Some(event(
            apex,
            match u16::from(rcode) {
                rcode::NOERROR => Outcome::Acknowledged,
                _ => Outcome::Refused(rcode),
            },
        ))
    }

    /// Gives up a message to which a server has not replied. Returns `None` if there is none at this time.
    pub(super) fn next_unanswered(&mut self, now: Instant) -> Option<Event> {
        let mut servers = self.servers.iter_mut().enumerate();
        servers.find_map(|(number, server)| {
            let mut in_flight = server.in_flight.iter();
            let at = in_flight.position(|one| one.is_hopeless(now))?;
            server.is_silent = true;
            let outcome = Outcome::Unanswered(server.in_flight[at].doubt);
            Some(Event {
                server: number,
                apex: server.give_up(at, now),
                outcome,
            })
        })
    }

    /// Returns the time at which something must be done, which may be in the past. Returns `None` if there is
    /// nothing to do.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let may_send = self.paid_until.checked_sub(BURST).unwrap_or(now);
        let ready = self.servers.iter().filter(|server| server.is_ready());
        let deadlines = ready.flat_map(|server| {
            let has_next = self.changes.from(server.next);
            let has_next = has_next.is_some_and(|(_, change)| server.can_take(change));
            let tries = server.in_flight.iter().map(|one| {
                if one.tries < MAX_TRIES {
                    one.deadline.max(may_send)
                } else {
                    one.deadline
                }
            });
            tries.chain(has_next.then_some(may_send))
        });
        deadlines.min()
    }
}

/// A zone that has changed, and the message that says so.
#[derive(Clone, Debug)]
struct Change {
    apex: Arc<[u8]>,
    message: Arc<[u8]>,
}

/// A place in the list of changes: the cause, and a number that grows.
type Place = (Cause, u64);

/// The zones of which some server must still be told: for each cause in the order of their last changes.
#[derive(Debug, Default)]
struct Changes {
    /// The number of the next change.
    next: u64,
    by_place: BTreeMap<Place, Change>,
    /// Maps the name of each zone in the list to its place.
    places: HashMap<Arc<[u8]>, Place>,
}

impl Changes {
    /// Puts a zone at the end of the list for a cause. It leaves its earlier place.
    fn push(&mut self, cause: Cause, change: Change) {
        let place = (cause, self.next);
        self.next += 1;
        if let Some(old) = self.places.insert(Arc::clone(&change.apex), place) {
            self.by_place.remove(&old);
        }
        self.by_place.insert(place, change);
    }

    fn remove(&mut self, apex: &[u8]) {
        if let Some(place) = self.places.remove(apex) {
            self.by_place.remove(&place);
        }
    }

    /// Removes the changes of a cause with smaller numbers.
    fn remove_before(&mut self, cause: Cause, number: u64) {
        while let Some((&place, change)) = self.by_place.range((cause, 0)..(cause, number)).next() {
            self.places.remove(&change.apex);
            self.by_place.remove(&place);
        }
    }

    /// Returns the first change with the number for its cause or a greater one.
    fn from(&self, numbers: [u64; 2]) -> Option<(Place, &Change)> {
        Cause::ALL.into_iter().find_map(|cause| {
            let places = (cause, numbers[cause as usize])..=(cause, u64::MAX);
            let (place, change) = self.by_place.range(places).next()?;
            Some((*place, change))
        })
    }
}

/// A secondary server.
#[derive(Debug)]
struct Server {
    secondary: Secondary,
    /// The key that the server wants, if we have it.
    key: Option<Arc<Key>>,
    /// For each cause, the number of the first change of which the server has not been told.
    next: [u64; 2],
    /// The messages that wait for a reply, at most one for each zone.
    in_flight: Vec<InFlight>,
    /// Whether the server was given up, and has not replied since.
    is_silent: bool,
}

impl Server {
    fn new(secondary: Secondary) -> Self {
        Self {
            secondary,
            key: None,
            next: [0; 2],
            in_flight: Vec::new(),
            is_silent: false,
        }
    }

    /// Returns true if messages can have the signature that the server wants.
    fn is_ready(&self) -> bool {
        self.key.is_some() || self.secondary.key().is_none()
    }

    /// Returns the position of the message about a zone that is in flight.
    fn position_of(&self, apex: &[u8]) -> Option<usize> {
        let mut in_flight = self.in_flight.iter();
        in_flight.position(|one| *one.change.apex == *apex)
    }

    /// Returns true if the server may be told of this change now. It needs no room if it replaces one.
    fn can_take(&self, change: &Change) -> bool {
        let limit = if self.is_silent { 1 } else { MAX_IN_FLIGHT };
        self.in_flight.len() < limit || self.position_of(&change.apex).is_some()
    }

    /// Returns the position of the message that must be sent now: one to which no reply has come, or else a
    /// new one.
    fn next(&mut self, changes: &Changes, ids: &mut Ids, now: Instant) -> Option<usize> {
        if !self.is_ready() {
            return None;
        }
        let mut in_flight = self.in_flight.iter();
        if let Some(at) = in_flight.position(|one| one.is_late(now)) {
            self.in_flight[at].try_again(now);
            return Some(at);
        }
        let ((cause, number), change) = changes.from(self.next)?;
        if !self.can_take(change) {
            return None;
        }
        self.next[cause as usize] = number + 1;
        let id = ids.next(&self.in_flight);
        let at = self.position_of(&change.apex);
        let at = at.unwrap_or(self.in_flight.len());
        if let Some(one) = self.in_flight.get_mut(at) {
            one.replace(change.clone(), id);
        } else {
            self.in_flight.push(InFlight::new(change.clone(), id, now));
        }
        Some(at)
    }

    /// Gives up the message at this position. If the zone has changed since the last try, the tries begin
    /// again. Returns the zone's name.
    fn give_up(&mut self, at: usize, now: Instant) -> Arc<[u8]> {
        let one = &mut self.in_flight[at];
        let apex = Arc::clone(&one.change.apex);
        if one.is_replaced {
            (one.tries, one.deadline, one.doubt) = (0, now, None);
        } else {
            self.in_flight.swap_remove(at);
        }
        apex
    }
}

/// A message that waits for a reply.
#[derive(Debug)]
struct InFlight {
    change: Change,
    id: u16,
    /// Number of times that the message was sent because it was its time.
    tries: u32,
    /// When it is sent again or given up.
    deadline: Instant,
    /// Whether a later change of the zone has replaced another one since the last try.
    is_replaced: bool,
    /// The signature with which the message was sent last, if the server has a key.
    signature: Option<RequestSignature>,
    /// Why the last reply does not count.
    doubt: Option<Doubt>,
}

impl InFlight {
    fn new(change: Change, id: u16, now: Instant) -> Self {
        Self {
            change,
            id,
            tries: 1,
            deadline: now + FIRST_TIMEOUT,
            is_replaced: false,
            signature: None,
            doubt: None,
        }
    }

    /// Writes the message, signed with this key if there is one. All tries have the same signature, so a late
    /// reply counts. After a reply that does not count they have a new one, because the clock may have been set.
    fn write(&mut self, key: Option<&Arc<Key>>, time: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.change.message);
        out[..2].copy_from_slice(&self.id.to_be_bytes());
        self.signature = key.map(|key| {
            let last = self.signature.as_ref().filter(|_| self.doubt.is_none());
            let time = last
                .and_then(|last| last.time_again(key, time))
                .unwrap_or(time);
            make_room(out, self.change.apex.len(), key.signature_len());
            RequestSignature::sign(key, time, out)
        });
    }

    /// Verifies the signature of a reply, if the message has one.
    fn verify(&self, reply: &[u8], time: u64) -> Result<(), ReplyFault> {
        let signature = self.signature.as_ref();
        signature.map_or(Ok(()), |signature| signature.verify(reply, time))
    }

    /// Tells of a later change of the zone from now on. The new ID keeps a reply to the old message from
    /// counting. The deadline stays, so a zone that changes often is given up all the same.
    fn replace(&mut self, change: Change, id: u16) {
        (self.change, self.id, self.is_replaced) = (change, id, true);
    }

    /// Returns true if the message must be sent again.
    fn is_late(&self, now: Instant) -> bool {
        self.deadline <= now && self.tries < MAX_TRIES
    }

    /// Returns true if the message must be given up.
    fn is_hopeless(&self, now: Instant) -> bool {
        self.deadline <= now && self.tries >= MAX_TRIES
    }

    /// Notes that the message is sent again.
    fn try_again(&mut self, now: Instant) {
        self.deadline = now + FIRST_TIMEOUT * (1 << self.tries);
        self.tries += 1;
        self.is_replaced = false;
    }
}

/// The IDs of messages.
#[derive(Debug)]
struct Ids {
    secret: [u64; 2],
    next: u64,
}

impl Ids {
    /// Returns an ID that none of these messages has.
    fn next(&mut self, others: &[InFlight]) -> u16 {
        loop {
            let [low, high] = self.secret;
            let mut hasher = SipHasher24::new_with_keys(low, high);
            hasher.write_u64(self.next);
            self.next += 1;
            let id = hasher.finish() as u16;
            if others.iter().all(|one| one.id != id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
