//! A part of the server that its user writes: it answers some names itself.

use std::net::SocketAddr;

use nmio::Instant;

use crate::name::{self, Name};
use crate::records::{RecordError, Records};
use crate::rtype;

/// Answers the names that it was [registered](crate::Zones::hook) for, in the pass over
/// the received query, over UDP and TCP alike. One belongs to each worker.
///
/// Other names cost nothing more than without a hook: their answers are found before a
/// hook is thought of. Malformed queries, other classes than IN, unknown versions of
/// EDNS and transfers are answered without asking it.
///
/// Whatever a hook does delays every other client of its worker. It must not wait:
/// what another thread finds out comes to it by a [message](Self::on_message).
pub trait Hook {
    /// What comes to it from other threads, by a mailbox. `()` where nothing does.
    type Message: Send;

    /// Answers a question: adds records to `records` and says [`Verdict::Records`], or
    /// gives another verdict. What was added counts for nothing then.
    ///
    /// `now` is the worker's clock; the time of day is
    /// [`SystemTime`](std::time::SystemTime)'s. A query over TCP may come twice, when
    /// there was no room for its reply.
    ///
    /// # Errors
    /// When a record is not taken. The client gets SERVFAIL then.
    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        now: Instant,
    ) -> Result<Verdict, RecordError>;

    /// A message has come from outside, between two batches. Nothing, by default.
    fn on_message(&mut self, message: Self::Message, now: Instant) {
        let _ = (message, now);
    }

    /// When [`on_timer`](Self::on_timer) is to be called. Asked once per batch; never, by
    /// default.
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time that [`poll_timeout`](Self::poll_timeout) gave has come. It must give a
    /// later one from now on, or none: the worker does not sleep before a time that has
    /// passed. Nothing, by default.
    fn on_timer(&mut self, now: Instant) {
        let _ = now;
    }
}

/// What a hook does with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client gets the records that were added. Without any it is told that there
    /// are none of this type, as by [`NoData`](Self::NoData).
    Records,
    /// The client gets what the zone has: its records, its wildcard's, or that there is
    /// nothing.
    Zone,
    /// The name exists and has no such records: the zone's SOA (RFC 2308).
    NoData,
    /// The name does not exist: the zone's SOA (RFC 2308).
    NxDomain,
    /// The client is refused.
    Refused,
    /// The client gets no reply. Over TCP its connection is closed, behind the replies
    /// before this one.
    Drop,
}

/// A hook, and who asks it when. `peer` gives the client's address and port. It is called
/// when a hook is asked, so that other queries do not pay for it.
pub(crate) struct Asking<'h, H, P> {
    pub(crate) hook: &'h mut H,
    pub(crate) peer: P,
    pub(crate) over_tcp: bool,
    pub(crate) now: Instant,
}

impl<H: Hook, P: Fn() -> SocketAddr> Asking<'_, H, P> {
    /// Asks the hook for records of this type at `name`.
    pub(crate) fn ask(
        &mut self,
        name: &[u8],
        rtype: u16,
        records: &mut Records<'_>,
    ) -> Result<Verdict, RecordError> {
        let question = Question {
            name,
            rtype,
            peer: (self.peer)(),
            over_tcp: self.over_tcp,
        };
        self.hook.answer(&question, records, self.now)
    }
}

/// What is asked of a hook.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    name: &'q [u8],
    rtype: u16,
    peer: SocketAddr,
    over_tcp: bool,
}

impl<'q> Question<'q> {
    /// The name that is asked for, in wire format and in the case of the query.
    pub fn name(&self) -> &'q [u8] {
        self.name
    }

    /// The labels of the name, from the leftmost, the root left out.
    pub fn labels(&self) -> impl Iterator<Item = &'q [u8]> + use<'q> {
        name::labels(self.name)
    }

    /// Whether it asks for this name. Case does not matter (RFC 4343).
    pub fn is_for(&self, name: &Name) -> bool {
        name::eq(self.name, name.as_wire())
    }

    /// The type that is asked for, [`rtype::ANY`] for all of them.
    pub fn rtype(&self) -> u16 {
        self.rtype
    }

    /// The client's address and port: most often those of a resolver that asks for others.
    /// Over UDP they may be forged.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether it came over TCP: then nobody has forged the client's address.
    pub fn is_over_tcp(&self) -> bool {
        self.over_tcp
    }

    /// Whether records of this type answer it: it asks for the type, or for all.
    pub fn wants(&self, rtype: u16) -> bool {
        self.rtype == rtype || self.rtype == rtype::ANY
    }
}

/// No hook: the zones have all answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoHook;

impl Hook for NoHook {
    type Message = ();

    #[inline(always)]
    fn answer(
        &mut self,
        _question: &Question<'_>,
        _records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        Ok(Verdict::Zone)
    }
}
