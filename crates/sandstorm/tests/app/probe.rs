//! An application that gives each kind of answer.

use std::time::Duration;

use nmio::mailbox::Sender;
use sandstorm::{
    App, Clients, Exchange, Intake, More, PreparedId, Replies, Request, Response, Sees, StatusCode,
    Ticket, Verdict,
};
use tcpip::{CloseReason, ContentError, Timer};

const FORBIDDEN: StatusCode = StatusCode::new(403).unwrap();
const NO_CONTENT: StatusCode = StatusCode::new(204).unwrap();
const TICK: Timer = Timer::new(0);
const START: Timer = Timer::new(1);
/// Maximum length of a body that is received in pieces, in bytes.
const PIECES_LIMIT: u64 = 500_000;

/// The state of a connection.
#[derive(Default)]
pub(crate) struct Visitor {
    visits: u32,
    /// Number of body bytes received in pieces so far.
    bytes: usize,
    /// Whether the request is answered after the first piece of its body.
    answers_early: bool,
    /// Number of pieces of the response still to be sent. Each piece is `len` bytes long.
    pieces: usize,
    len: usize,
    /// Whether the next piece must wait until a message arrives.
    waits_for_message: bool,
}

/// The application. It receives all requests if `FIRST` is set, and otherwise only those that the
/// site cannot serve.
pub(crate) struct Probe<const FIRST: bool> {
    count: u32,
    prepared: PreparedId,
    prepared_later: Option<PreparedId>,
    /// The sender of the application's own mailbox, with which it sends messages to itself.
    sender: Sender<Ticket>,
    /// Tickets of the requests that are answered when the timer `TICK` expires.
    waiting: Vec<Ticket>,
    /// Ticket of a request that the application tries to answer only after it has timed out.
    too_late: Option<Ticket>,
    /// Tickets of requests with large bodies. They are answered when `TICK` expires.
    huge: Vec<Ticket>,
    /// Tickets of streamed responses that wait for a message.
    streams: Vec<Ticket>,
    /// Results of [`Clients::resume`] for the streamed responses.
    pub(crate) resumed: Vec<bool>,
    /// Results of [`Clients::answer`] for the deferred answers.
    pub(crate) answered: Vec<bool>,
    pub(crate) closed: u32,
    /// Whether the timer set by [`App::on_start`] has expired.
    pub(crate) is_started: bool,
}

impl<const FIRST: bool> Probe<FIRST> {
    pub(crate) fn new(
        sender: Sender<Ticket>,
        replies: &mut Replies<'_>,
    ) -> Result<Self, ContentError> {
        let mut response = Response::new();
        response.add_field("Content-Type", "text/x-probe").unwrap();
        response.add_field("Cache-Control", "no-cache").unwrap();
        response.write(b"prepared\n");
        Ok(Self {
            count: 0,
            prepared: replies.add(&response)?,
            prepared_later: None,
            sender,
            waiting: Vec::new(),
            too_late: None,
            huge: Vec::new(),
            streams: Vec::new(),
            resumed: Vec::new(),
            answered: Vec::new(),
            closed: 0,
            is_started: false,
        })
    }
}

impl<const FIRST: bool> App for Probe<FIRST> {
    type State = Visitor;
    type Message = Ticket;

    const SEES: Sees = if FIRST {
        Sees::Everything
    } else {
        Sees::Missing
    };

    fn on_start(&mut self, clients: &mut impl Clients<Visitor>) {
        clients.set_timer(START, Duration::ZERO);
    }

    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Visitor>,
    ) -> Verdict {
        exchange.state().visits += 1;
        if request.query() == Some("extra") {
            exchange.add_field("X-Extra", "yes").unwrap();
        }
        if request.query() == Some("type") {
            exchange.add_field("Content-Type", "text/x-other").unwrap();
        }
        if request.query() == Some("later") {
            self.sender.send(exchange.ticket()).unwrap();
            return Verdict::Later;
        }
        match request.path() {
            "/count" => {
                self.count += 1;
                exchange.text(format_args!("{}\n", self.count))
            }
            "/prepared" => Verdict::Prepared(self.prepared),
            "/remove" => {
                assert!(exchange.replies().remove(self.prepared));
                exchange.text(format_args!("removed\n"))
            }
            "/prepare" => {
                let prepared = self.prepared_later.get_or_insert_with(|| {
                    let mut response = Response::new();
                    response.write(b"for all\n");
                    exchange.replies().add(&response).unwrap()
                });
                Verdict::Prepared(*prepared)
            }
            "/server" => {
                exchange.add_field("Server", "mine").unwrap();
                exchange.text(format_args!("other\n"))
            }
            "/nothing" => {
                exchange.set_status(NO_CONTENT);
                Verdict::Made
            }
            "/refused" => Verdict::Refuse(FORBIDDEN),
            "/long" => {
                let len = request.query().unwrap().parse().unwrap();
                exchange.response().write(&b"x".repeat(len));
                Verdict::Made
            }
            "/stream" | "/stream-slowly" => {
                let (pieces, len) = request.query().unwrap().split_once('x').unwrap();
                let visitor = exchange.state();
                visitor.pieces = pieces.parse().unwrap();
                visitor.len = len.parse().unwrap();
                visitor.waits_for_message = request.path() == "/stream-slowly";
                exchange.add_field("X-Pieces", pieces).unwrap();
                exchange.response().write(b"begins");
                Verdict::Stream
            }
            "/later" => {
                self.sender.send(exchange.ticket()).unwrap();
                Verdict::Later
            }
            "/never" => {
                self.too_late = Some(exchange.ticket());
                Verdict::Later
            }
            "/visits" => {
                let visits = exchange.state().visits;
                exchange.text(format_args!("visit {visits}"))
            }
            "/huge" if request.query().is_some() => {
                self.huge.push(exchange.ticket());
                Verdict::Later
            }
            "/huge" => {
                let len = request.body().len();
                exchange.text(format_args!("{len} bytes"))
            }
            "/peer" => {
                let peer = exchange.peer();
                exchange.text(format_args!("{peer}"))
            }
            "/pieces" => {
                let bytes = std::mem::take(&mut exchange.state().bytes);
                exchange.text(format_args!("{bytes} bytes"))
            }
            "/none" | "/docs" => Verdict::Site,
            "/a.txt" if request.method() != "POST" => Verdict::Site,
            _ => {
                let body = String::from_utf8(request.body().to_vec()).unwrap();
                exchange.text(format_args!(
                    "{} {} {body}",
                    request.method(),
                    request.target()
                ))
            }
        }
    }

    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Visitor>) -> Intake {
        exchange.state().answers_early = head.path() == "/stop";
        match head.path() {
            "/pieces" | "/stop" => Intake::Pieces(PIECES_LIMIT),
            "/unread-later" => {
                self.sender.send(exchange.ticket()).unwrap();
                Intake::Unread(Verdict::Later)
            }
            "/huge" => Intake::Whole(usize::MAX),
            "/unread" => Intake::Unread(Verdict::Refuse(FORBIDDEN)),
            _ => Intake::Whole(Self::BODY_LIMIT),
        }
    }

    fn on_body(&mut self, piece: &[u8], exchange: &mut Exchange<'_, Visitor>) -> Option<Verdict> {
        let visitor = exchange.state();
        visitor.bytes += piece.len();
        visitor.answers_early.then_some(Verdict::Refuse(FORBIDDEN))
    }

    fn on_more(&mut self, exchange: &mut Exchange<'_, Visitor>) -> More {
        let visitor = exchange.state();
        let (len, waits_for_message) = (visitor.len, visitor.waits_for_message);
        let Some(remaining) = visitor.pieces.checked_sub(1) else {
            return More::Last;
        };
        visitor.pieces = remaining;
        exchange.response().write(&b"p".repeat(len));
        if waits_for_message {
            self.streams.push(exchange.ticket());
            self.sender.send(exchange.ticket()).unwrap();
            return More::Wait;
        }
        More::Next
    }

    fn on_message(&mut self, ticket: Ticket, clients: &mut impl Clients<Visitor>) {
        if let Some(at) = self.streams.iter().position(|stream| *stream == ticket) {
            self.streams.swap_remove(at);
            self.resumed.push(clients.resume(ticket));
            return;
        }
        assert!(
            !clients.resume(ticket),
            "only a streamed response can be resumed"
        );
        self.waiting.push(ticket);
        clients.set_timer(TICK, Duration::from_millis(50));
    }

    fn on_timer(&mut self, timer: Timer, clients: &mut impl Clients<Visitor>) {
        if timer == START {
            assert_eq!(self.count, 0);
            self.is_started = true;
            return;
        }
        if let Some(ticket) = self.too_late {
            assert!(!clients.answer(ticket, |_, _| unreachable!("the request has timed out")));
        }
        for ticket in std::mem::take(&mut self.huge) {
            let is_answered = clients.answer(ticket, |request, exchange| {
                let len = request.body().len();
                exchange.text(format_args!("later {len} bytes"))
            });
            self.answered.push(is_answered);
        }
        for ticket in std::mem::take(&mut self.waiting) {
            let mut defers_again = false;
            let is_answered = clients.answer(ticket, |request, exchange| {
                assert_eq!(exchange.ticket(), ticket);
                if request.path() == "/a.txt" {
                    exchange.add_field("X-Extra", "yes").unwrap();
                    return Verdict::Site;
                }
                if request.query() == Some("stream") {
                    exchange.response().write(b"begins later");
                    exchange.state().pieces = 1;
                    exchange.state().len = 3;
                    return Verdict::Stream;
                }
                exchange.state().bytes += 1;
                if request.query() == Some("again") && exchange.state().bytes < 3 {
                    defers_again = true;
                    return Verdict::Later;
                }
                let body = std::str::from_utf8(request.body()).unwrap();
                exchange.state().bytes = 0;
                exchange.text(format_args!(
                    "later {}{body}",
                    request.query().unwrap_or("")
                ))
            });
            if defers_again {
                self.waiting.push(ticket);
                clients.set_timer(TICK, Duration::from_millis(50));
            } else {
                self.answered.push(is_answered);
                assert!(!clients.answer(ticket, |_, _| unreachable!(
                    "the request was answered before"
                )));
            }
        }
    }

    fn on_close(&mut self, _: &mut Visitor, _: CloseReason) {
        self.closed += 1;
    }
}
