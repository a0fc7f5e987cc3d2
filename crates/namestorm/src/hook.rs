//! Hooks: user code that answers the queries for some names.

use std::net::SocketAddr;

use nmio::Instant;

use crate::name::{self, Name};
use crate::records::{RecordError, Records};
use crate::rtype;

/// Answers queries over UDP and TCP for the names that were [registered](crate::Zones::hook) for
/// the hook. Each worker has its own hook, and calls it synchronously for each query for a
/// registered name.
///
/// A hook does not slow down queries for other names, because prepared answers are looked up first.
/// The hook never receives malformed queries, zone transfers, or queries with an unsupported EDNS
/// version. All queries that it receives have class IN or ANY.
///
/// A hook must not block, because all clients of its worker would have to wait. Slow work belongs
/// in other threads, which send their results to the hook as [messages](Self::on_message).
pub trait Hook {
    /// The type of messages from other threads; `()` if there are none.
    type Message: Send;

    /// Answers a question: adds records to `records` and returns [`Verdict::Records`], or returns
    /// another verdict. Any other verdict discards the added records.
    ///
    /// `now` is the current time of the worker's monotonic clock. For the time of day, use
    /// [`SystemTime`](std::time::SystemTime). If a TCP connection's send buffer has no room for the
    /// reply, the hook receives the same query again later.
    ///
    /// # Errors
    ///
    /// Returns an error if a record is refused. The client then gets SERVFAIL. The log and the
    /// server's final summary report the number of these errors.
    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        now: Instant,
    ) -> Result<Verdict, RecordError>;

    /// Handles a message from another thread. The worker calls this method between two batches of
    /// packets. Does nothing by default.
    fn on_message(&mut self, message: Self::Message, now: Instant) {
        let _ = (message, now);
    }

    /// Returns the time at which the worker must call [`on_timer`](Self::on_timer), or `None` (the
    /// default) if no timer is set. The worker calls this method in every pass of its event loop.
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Called when the time returned by [`poll_timeout`](Self::poll_timeout) has come. Afterwards,
    /// `poll_timeout` must return a later time or `None`, or else the worker never sleeps. Does
    /// nothing by default.
    fn on_timer(&mut self, now: Instant) {
        let _ = now;
    }
}

/// A hook's decision about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client receives the added records. If the hook has added no records, this verdict is
    /// equivalent to [`NoData`](Self::NoData).
    Records,
    /// The client receives the answer that it would get without the hook. Examples are the name's
    /// records, those of a matching wildcard, and a negative answer.
    Zone,
    /// NODATA: the name exists, but has no records of the type. The client receives the zone's SOA
    /// (RFC 2308).
    NoData,
    /// NXDOMAIN: the name does not exist. The client receives the zone's SOA (RFC 2308).
    NxDomain,
    /// The client receives REFUSED.
    Refused,
    /// The client receives no reply. If the query came over TCP, the connection is closed after the
    /// replies to earlier queries.
    Drop,
}

/// A hook, with the details of the query. `peer` returns the client's address and port. `peer` is a
/// function, so that the address is read only for queries that reach the hook.
pub(crate) struct HookContext<'h, H, P> {
    pub(crate) hook: &'h mut H,
    pub(crate) peer: P,
    pub(crate) over_tcp: bool,
    pub(crate) now: Instant,
}

impl<'h, H, P> HookContext<'h, H, P> {
    /// Returns the same details with another `peer`.
    pub(crate) fn with_peer<Q>(self, peer: Q) -> HookContext<'h, H, Q> {
        HookContext {
            hook: self.hook,
            peer,
            over_tcp: self.over_tcp,
            now: self.now,
        }
    }
}

impl<H: Hook, P: Fn() -> SocketAddr> HookContext<'_, H, P> {
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

/// A question to a hook.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    name: &'q [u8],
    rtype: u16,
    peer: SocketAddr,
    over_tcp: bool,
}

impl<'q> Question<'q> {
    /// Returns the qname in wire format, with upper and lower case as in the query.
    pub fn name(&self) -> &'q [u8] {
        self.name
    }

    /// Returns the labels of the qname, leftmost first, except the root label.
    pub fn labels(&self) -> impl Iterator<Item = &'q [u8]> + use<'q> {
        name::labels(self.name)
    }

    /// Returns true if the question is for this name, ignoring case (RFC 4343).
    pub fn is_for(&self, name: &Name) -> bool {
        name::eq(self.name, name.as_wire())
    }

    /// Returns the type asked for. [`rtype::ANY`] stands for all types.
    pub fn rtype(&self) -> u16 {
        self.rtype
    }

    /// Returns the client's address and port. The client is usually a recursive resolver that asks
    /// on behalf of other hosts. Over UDP, the address may be forged.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns true if the query came over TCP. In this case, the TCP handshake has verified the
    /// client's address.
    pub fn is_over_tcp(&self) -> bool {
        self.over_tcp
    }

    /// Returns true if the question asks for this type or for all types ([`rtype::ANY`]).
    pub fn wants(&self, rtype: u16) -> bool {
        self.rtype == rtype || self.rtype == rtype::ANY
    }
}

/// A hook for servers without hooked names: all answers come from the zones.
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
