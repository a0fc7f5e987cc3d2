//! What an application writes to answer requests itself.

use std::time::Duration;

use tcpip::{CloseReason, Timer};

use crate::exchange::{Exchange, Ticket};
use crate::prepared::Replies;
use crate::request::Request;
use crate::verdict::{Intake, More, Sees, Verdict};

/// The longest body of a request that is collected, where an application does not say
/// otherwise.
pub const BODY_LIMIT: usize = 64 << 10;

/// An application in a web server: it answers requests beside the site, or instead of
/// it. Each worker has its own.
///
/// Callbacks must not wait: all clients of the worker wait with them. Each is called
/// once for a request, however often its answer finds no room.
pub trait App {
    /// What the application remembers of one connection. It starts as the default.
    type State: Default;
    /// What comes to it from other threads, by a mailbox
    /// ([`Http::with_mailbox`](crate::Http::with_mailbox)). `()` where nothing does.
    type Message: Send;

    /// Which requests it sees.
    const SEES: Sees = Sees::Everything;

    /// The longest body that is collected, without an [`on_head`](Self::on_head) that
    /// says otherwise; a longer one is refused with 413.
    const BODY_LIMIT: usize = BODY_LIMIT;

    /// The worker has begun, and there is no client yet: the first
    /// [timers](Clients::set_timer) can be set. Nothing, by default.
    fn on_start(&mut self, clients: &mut impl Clients<Self::State>) {
        let _ = clients;
    }

    /// A request is whole, body included. Says how it is answered.
    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Verdict;

    /// The head of a request with a body has come. Says what becomes of the body: it
    /// is collected, by default.
    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Self::State>) -> Intake {
        let _ = (head, exchange);
        Intake::Whole(Self::BODY_LIMIT)
    }

    /// A piece of a body has come that is taken in [pieces](Intake::Pieces). With a
    /// verdict the request is answered at once, and the rest of the body is
    /// [not read](Intake::Unread).
    fn on_body(
        &mut self,
        piece: &[u8],
        exchange: &mut Exchange<'_, Self::State>,
    ) -> Option<Verdict> {
        let _ = (piece, exchange);
        None
    }

    /// There is room for the next piece of a response that is made in
    /// [pieces](Verdict::Stream). The callback writes it to the exchange's response, of
    /// which only the body is used now. A piece should have some kilobytes.
    fn on_more(&mut self, exchange: &mut Exchange<'_, Self::State>) -> More {
        let _ = exchange;
        More::Last
    }

    /// A message has come from another thread.
    fn on_message(&mut self, message: Self::Message, clients: &mut impl Clients<Self::State>) {
        let _ = (message, clients);
    }

    /// A [timer](Clients::set_timer) of the application has passed.
    fn on_timer(&mut self, timer: Timer, clients: &mut impl Clients<Self::State>) {
        let _ = (timer, clients);
    }

    /// A connection is over. Answers that it waits for are not sent any more.
    fn on_close(&mut self, state: &mut Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}

/// All clients of a worker, in the hands of a callback that is about no request.
pub trait Clients<S> {
    /// Answers a request that was to be answered [later](Verdict::Later): as `answer`
    /// says, which gets it as [`App::on_request`] does. `false` when nobody waits for
    /// this any more: the client has gone, the request's time has passed, or it has given
    /// way to others. With [`Verdict::Later`] the request waits again, for the whole time.
    fn answer(
        &mut self,
        ticket: Ticket,
        answer: impl FnOnce(&Request<'_>, &mut Exchange<'_, S>) -> Verdict,
    ) -> bool;

    /// Goes on with a response that [waits](More::Wait): [`App::on_more`] is called when
    /// the callback in hand has returned. `false` when the response is not under way any
    /// more.
    fn resume(&mut self, ticket: Ticket) -> bool;

    /// Where replies are made that are sent often.
    fn replies(&mut self) -> Replies<'_>;

    /// Calls [`App::on_timer`] in `after` from now, once. A timer that runs already is
    /// set anew.
    fn set_timer(&mut self, timer: Timer, after: Duration);
}

/// No application: the site answers everything.
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
