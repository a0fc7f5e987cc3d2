//! The trait that an application implements to answer requests itself.

use std::time::Duration;

use tcpip::{CloseReason, Timer};

use crate::exchange::{Exchange, Ticket};
use crate::prepared::Replies;
use crate::request::Request;
use crate::verdict::{Intake, More, Sees, Verdict};

/// The longest request body that is collected by default.
pub const BODY_LIMIT: usize = 64 << 10;

/// An application in a web server. It answers requests together with the site, or instead of it.
/// Each worker has its own application.
///
/// Callbacks must not block, because all clients of the worker would wait. Each callback is called
/// only once for a request, even when its response must wait until the send stream has room.
pub trait App {
    /// What the application remembers of one connection. Starts as the default value.
    type State: Default;
    /// Messages from other threads, which arrive by a mailbox
    /// ([`Http::with_mailbox`](crate::Http::with_mailbox)). Use `()` if there are none.
    type Message: Send;

    /// Which requests the application sees.
    const SEES: Sees = Sees::Everything;

    /// The longest request body that is collected, unless [`on_head`](Self::on_head) decides
    /// otherwise. A request with a longer body is refused with 413.
    const BODY_LIMIT: usize = BODY_LIMIT;

    /// Called when the worker has started, before the first client. Here the application can set
    /// its first [timers](Clients::set_timer). Does nothing by default.
    fn on_start(&mut self, clients: &mut impl Clients<Self::State>) {
        let _ = clients;
    }

    /// Called when a request is complete, including its body. Decides how it is answered.
    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Verdict;

    /// Called when the head of a request with a body has arrived. Decides what happens to the body.
    /// By default the server collects it.
    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Self::State>) -> Intake {
        let _ = (head, exchange);
        Intake::Whole(Self::BODY_LIMIT)
    }

    /// Called for each piece of a body that is taken in [pieces](Intake::Pieces). If it returns a
    /// verdict, the request is answered at once, and the rest of the body is [not
    /// read](Intake::Unread).
    fn on_body(
        &mut self,
        piece: &[u8],
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Option<Verdict> {
        let _ = (piece, exchange);
        None
    }

    /// Called when the send stream has room for the next piece of a [streamed](Verdict::Stream)
    /// response. The callback writes the piece to the body of the exchange's response; status and
    /// fields are ignored now. A piece should have a few kilobytes.
    fn on_more(&mut self, exchange: &mut Exchange<'_, Self::State>) -> More {
        let _ = exchange;
        More::Last
    }

    /// Called for each message from another thread.
    fn on_message(&mut self, message: Self::Message, clients: &mut impl Clients<Self::State>) {
        let _ = (message, clients);
    }

    /// Called when a [timer](Clients::set_timer) of the application has expired.
    fn on_timer(&mut self, timer: Timer, clients: &mut impl Clients<Self::State>) {
        let _ = (timer, clients);
    }

    /// Called when a connection has ended. Answers that were still pending for it are not sent.
    fn on_close(&mut self, state: &mut Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}

/// All clients of a worker, for callbacks that do not belong to one request.
pub trait Clients<S> {
    /// Answers a request that was deferred with [`Verdict::Later`]. `answer` gets the request as
    /// [`App::on_request`] does. If it returns [`Verdict::Later`], the request waits again, with a
    /// fresh timeout.
    ///
    /// Returns `false` if the request no longer waits for an answer. Then the client has gone, or
    /// the request has timed out or was evicted to free memory.
    fn answer(
        &mut self,
        ticket: Ticket,
        answer: impl FnOnce(&Request<'_>, &mut Exchange<'_, S>) -> Verdict,
    ) -> bool;

    /// Continues a streamed response that [waits](More::Wait): [`App::on_more`] is called when the
    /// present callback has returned. Returns `false` if the response is no longer being sent.
    fn resume(&mut self, ticket: Ticket) -> bool;

    /// Makes replies that are sent often.
    fn replies(&mut self) -> Replies<'_>;

    /// Calls [`App::on_timer`] once, after the duration `after`. Restarts the timer if it is
    /// already running.
    fn set_timer(&mut self, timer: Timer, after: Duration);
}

/// The absence of an application: the site answers everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteOnly;

impl App for SiteOnly {
    type State = ();
    type Message = ();

    const SEES: Sees = Sees::Nothing;

    fn on_request(&mut self, _: &Request<'_>, _: &mut Exchange<'_, ()>) -> Verdict {
        Verdict::Site
    }
}
