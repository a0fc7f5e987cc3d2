//! The `App` trait, which an application implements to answer HTTP requests.

use std::time::Duration;

use tcpip::{CloseReason, Timer};

use crate::exchange::{Exchange, Ticket};
use crate::prepared::Replies;
use crate::request::Request;
use crate::verdict::{Intake, More, Sees, Verdict};

/// Default maximum length of a collected request body, in bytes.
pub const BODY_LIMIT: usize = 64 << 10;

/// An application in a web server. It answers requests in addition to the site, or instead of it.
/// Each worker runs its own instance.
///
/// Callbacks must not block, because all clients of the worker would wait. If the send stream has
/// no room for a response, the server stores the response and does not call the callback again.
pub trait App {
    /// The application's state for one connection. It starts as the default value.
    type State: Default;
    /// Messages from other threads, delivered through a mailbox
    /// ([`Http::with_mailbox`](crate::Http::with_mailbox)). Use `()` if there are none.
    type Message: Send;

    /// Which requests reach the application.
    const SEES: Sees = Sees::Everything;

    /// Maximum length of a collected request body in bytes, unless [`on_head`](Self::on_head) sets
    /// another limit. Longer bodies are refused with 413.
    const BODY_LIMIT: usize = BODY_LIMIT;

    /// Called once, when the application has been created and before the first client connects. The
    /// application can set its first [timers](Clients::set_timer) here. Does nothing by default.
    fn on_start(&mut self, clients: &mut impl Clients<Self::State>) {
        let _ = clients;
    }

    /// Decides how to answer a request. Called when the request and its body have arrived
    /// completely, unless [`on_head`](Self::on_head) or [`on_body`](Self::on_body) has already
    /// given the verdict.
    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Verdict;

    /// Called when the head of a request with a body has arrived. Decides what happens to the body.
    /// By default, the server collects the body.
    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Self::State>) -> Intake {
        let _ = (head, exchange);
        Intake::Whole(Self::BODY_LIMIT)
    }

    /// Called for each piece of a body that is received in [pieces](Intake::Pieces). If the
    /// callback returns a verdict, the server answers immediately and does [not
    /// read](Intake::Unread) the rest of the body.
    fn on_body(
        &mut self,
        piece: &[u8],
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Option<Verdict> {
        let _ = (piece, exchange);
        None
    }

    /// Called when the server needs the next piece of a [streamed](Verdict::Stream) response. The
    /// callback writes the piece to the body of the exchange's response. The status and the fields
    /// of this response have no effect, because the head has already been written. A piece should
    /// be a few kilobytes long.
    fn on_more(&mut self, exchange: &mut Exchange<'_, Self::State>) -> More {
        let _ = exchange;
        More::Last
    }

    /// Called for each message that arrives in the worker's
    /// [mailbox](crate::Http::with_mailbox).
    fn on_message(&mut self, message: Self::Message, clients: &mut impl Clients<Self::State>) {
        let _ = (message, clients);
    }

    /// Called when a [timer](Clients::set_timer) of the application has expired.
    fn on_timer(&mut self, timer: Timer, clients: &mut impl Clients<Self::State>) {
        let _ = (timer, clients);
    }

    /// Called when a connection has ended. Pending answers for the connection are discarded.
    fn on_close(&mut self, state: &mut Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}

/// Access to all clients of a worker, for callbacks that do not belong to a single request.
pub trait Clients<S> {
    /// Answers a request that was deferred with [`Verdict::Later`]. `answer` gets the same
    /// arguments as [`App::on_request`]. If it returns [`Verdict::Later`], the request is deferred
    /// again with a new timeout.
    ///
    /// Returns `false` if the request no longer waits. It may have been answered, timed out or
    /// evicted, or its client may have disconnected. It may also be left to the site, which still
    /// checks its password.
    fn answer(
        &mut self,
        ticket: Ticket,
        answer: impl FnOnce(&Request<'_>, &mut Exchange<'_, S>) -> Verdict,
    ) -> bool;

    /// Continues a streamed response that [waits](More::Wait): [`App::on_more`] is called after the
    /// current callback returns. Returns `false` if no streamed response with this ticket is in
    /// progress.
    fn resume(&mut self, ticket: Ticket) -> bool;

    /// Gives access to the prepared replies, to add and remove them.
    fn replies(&mut self) -> Replies<'_>;

    /// Starts `timer`, or restarts it if it is already running. [`App::on_timer`] is called once,
    /// when the duration `after` has passed.
    fn set_timer(&mut self, timer: Timer, after: Duration);
}

/// The absence of an application: the site answers all requests.
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
