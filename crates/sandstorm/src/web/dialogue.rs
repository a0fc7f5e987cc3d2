//! Passes requests to the application.

use tcpip::WriteError;

use super::Web;
use super::conversation::Conn;
use super::core::Core;
use super::request_times::RequestTimes;
use super::writing::Continuation;
use crate::answer::Answer;
use crate::app::App;
use crate::body::{BodyPart, BodyReader};
use crate::head::field_buffer;
use crate::login::Login;
use crate::pending::{Body, PendingPlace, Phase};
use crate::request::Request;
use crate::session::{self, HeadSearch, Step, as_http_1_1, refuse};
use crate::status::Status;
use crate::verdict::{Intake, Sees};

/// How far the received bytes have been processed.
#[derive(Clone, Copy, Debug)]
enum Processed {
    /// The value is the number of consumed bytes. The next bytes can be processed.
    Continue(usize),
    /// The value is the number of consumed bytes. The connection continues when there are more
    /// bytes, room in the send stream, or an answer.
    Pause(usize),
    /// The connection ends here.
    End,
}

impl Processed {
    /// Returns the progress after an answer. `len` is the number of consumed bytes.
    fn from_continuation(continuation: Continuation, len: usize) -> Self {
        match continuation {
            Continuation::ReadNext | Continuation::Stream => Self::Continue(len),
            Continuation::Wait => Self::Pause(len),
            Continuation::ReadAgain => Self::Pause(0),
            Continuation::End => Self::End,
        }
    }
}

impl<A: App> Web<A> {
    /// Processes the requests in `data`. Returns how many bytes were consumed.
    pub(super) fn process(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> usize {
        let mut at = 0;
        conn.state().wants_room = false;
        loop {
            at += self.core.skip_unread(conn, &data[at..]);
            match self.stream(conn) {
                Continuation::End => return data.len(),
                _ if at == data.len() => break,
                _ => {}
            }
            let place = conn.state().place;
            let unparsed = &data[at..];
            let progress = match self.core.pending.phase(place) {
                None => self.read_head(conn, unparsed),
                Some(Phase::Body(body)) => {
                    let body = *body;
                    self.read_body(conn, place, body, unparsed)
                }
                Some(Phase::Evicted(_)) => match self.core.answer_evicted(conn) {
                    Some(continuation) => Processed::from_continuation(continuation, 0),
                    None => return at,
                },
                // Later requests must wait until the pending one is answered.
                Some(Phase::Answer { .. } | Phase::Room(_) | Phase::Stream(_)) => return at,
            };
            match progress {
                Processed::Continue(len) => at += len,
                Processed::Pause(len) => {
                    at += len;
                    at += self.core.skip_unread(conn, &data[at..]);
                    break;
                }
                Processed::End => return data.len(),
            }
        }
        // If nothing waits, the remaining bytes will never be a complete request.
        self.core.close_if_ended(conn);
        at
    }

    /// Reads the request head at the start of `data`, and decides who answers the request.
    fn read_head(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> Processed {
        if A::SEES == Sees::Missing {
            match self.next(&mut conn.state().session, data) {
                Step::More { consumed } => {
                    self.core.expect_more(conn);
                    return Processed::Pause(consumed);
                }
                Step::Answer(answer) if !self.core.may_be_for_application(&answer) => {
                    return self.send(conn, &answer, data);
                }
                Step::Answer(_) => {}
            }
        }
        let mut fields = field_buffer();
        match conn.state().session.find(data, &mut fields) {
            HeadSearch::More { consumed } => {
                self.core.expect_more(conn);
                Processed::Pause(consumed)
            }
            HeadSearch::Refused(refusal) => {
                let answer = refuse(&self.core.site, refusal, data);
                self.send(conn, &answer, data)
            }
            HeadSearch::LaterMinor { skipped, digit_at } => {
                let head = as_http_1_1(&data[skipped..], digit_at);
                match self.read_head(conn, &head) {
                    Processed::Continue(len) => Processed::Continue(skipped + len),
                    Processed::Pause(len) => Processed::Pause(skipped + len),
                    Processed::End => Processed::End,
                }
            }
            HeadSearch::Head { head, skipped } => {
                let data = &data[skipped..];
                match self.take(conn, Request::new(head, data), data) {
                    Processed::Continue(len) => Processed::Continue(skipped + len),
                    // The send stream had no room for the answer. The request and the empty lines
                    // before it will be read again.
                    Processed::Pause(0) => Processed::Pause(0),
                    Processed::Pause(len) => Processed::Pause(skipped + len),
                    Processed::End => Processed::End,
                }
            }
        }
    }

    /// Sends the site's answer to a request that the application does not see.
    fn send(&mut self, conn: &mut Conn<'_, A::State>, answer: &Answer, data: &[u8]) -> Processed {
        conn.clear_deadline();
        RequestTimes::begin(conn);
        match self.core.send(conn, answer, data) {
            Ok(continuation) => Processed::from_continuation(continuation, answer.consumed()),
            Err(WriteError::Full) => {
                conn.state().wants_room = true;
                RequestTimes::postpone(conn);
                Processed::Pause(0)
            }
            Err(_) => {
                conn.abort();
                Processed::End
            }
        }
    }

    /// Passes the request at the start of `data` to the application. If the request has a body, the
    /// application first decides what happens to the body.
    fn take(
        &mut self,
        conn: &mut Conn<'_, A::State>,
        mut request: Request<'_>,
        data: &[u8],
    ) -> Processed {
        let Self { app, core, .. } = self;
        if !request.is_for_application() {
            let answer = session::answer(&core.site, request.head(), data);
            return self.send(conn, &answer, data);
        }
        RequestTimes::begin(conn);
        // If the site would have refused this request, the site has changed.
        conn.state().login = Login::Unknown;
        if request.body_len().is_none() {
            conn.clear_deadline();
            let verdict = core.exchange(conn, |exchange| app.on_request(&request, exchange));
            let continuation = core.answer(conn, &request, data, verdict);
            return Processed::from_continuation(continuation, request.head_len());
        }
        let intake = core.exchange(conn, |exchange| app.on_head(&request, exchange));
        let expects_continue = request.expects_continue() && data.len() == request.head_len();
        // A client that waits for `100 Continue` may or may not send the body, so it is unknown how
        // many bytes follow.
        let len = request.announced_len().filter(|_| !expects_continue);
        if Core::discard(conn, len) {
            request = request.with_body_discarded();
        }
        let (remaining, in_pieces) = match intake {
            Intake::Unread(verdict) => {
                let continuation = core.answer(conn, &request, data, verdict);
                return Processed::from_continuation(continuation, request.head_len());
            }
            Intake::Whole(limit) => (limit as u64, false),
            Intake::Pieces(limit) => (limit, true),
        };
        if request.announced_len().is_some_and(|len| len > remaining) {
            let continuation = core.answer_page(conn, Status::ContentTooLarge, &request);
            return Processed::from_continuation(continuation, request.head_len());
        }
        let phase = Phase::Body(Body {
            reader: BodyReader::new(request.body_len()),
            remaining,
            in_pieces,
            owes_continue: false,
        });
        let (peer, now) = (conn.peer().ip(), conn.now());
        let head = &data[..request.head_len()];
        let Ok(place) = core.pending.take(phase, head, peer, now) else {
            let continuation = core.answer_page(conn, Status::ServiceUnavailable, &request);
            return Processed::from_continuation(continuation, request.head_len());
        };
        conn.state().place = place;
        conn.state().unread = 0;
        core.expect_more(conn);
        if expects_continue {
            core.send_continue(conn);
        }
        Processed::Continue(request.head_len())
    }

    /// Reads the part of a body that is in `data`.
    fn read_body(
        &mut self,
        conn: &mut Conn<'_, A::State>,
        place: PendingPlace,
        mut body: Body,
        data: &[u8],
    ) -> Processed {
        let Self { app, core, .. } = self;
        // The client has begun to send the body, so it no longer waits for `100 Continue`.
        body.owes_continue = false;
        let mut unparsed = data;
        let failure = loop {
            let piece = match body.reader.next(&mut unparsed) {
                BodyPart::Piece(piece) => piece,
                BodyPart::More => {
                    core.pending
                        .update_body(place, body, data.len(), conn.now());
                    return Processed::Pause(data.len());
                }
                BodyPart::End => {
                    let len = data.len() - unparsed.len();
                    let continuation = Self::finish(app, core, conn, place);
                    return Processed::from_continuation(continuation, len);
                }
                BodyPart::Malformed => break Status::BadRequest,
            };
            let Some(remaining) = body.remaining.checked_sub(piece.len() as u64) else {
                break Status::ContentTooLarge;
            };
            body.remaining = remaining;
            if !body.in_pieces {
                if core.pending.append(place, piece, conn.now()).is_err() {
                    break Status::ServiceUnavailable;
                }
                continue;
            }
            let verdict = core.exchange(conn, |exchange| app.on_body(piece, exchange));
            let Some(verdict) = verdict else { continue };
            let is_read = Core::discard(conn, body.reader.known_left());
            let continuation =
                core.answer_pending(conn, place, is_read, |core, conn, request, bytes| {
                    core.answer(conn, request, bytes, verdict)
                });
            return Processed::from_continuation(continuation, data.len() - unparsed.len());
        };
        let continuation = core.answer_pending(conn, place, false, |core, conn, request, _| {
            core.answer_page(conn, failure, request)
        });
        Processed::from_continuation(continuation, data.len())
    }

    /// Passes a request with a complete body to the application.
    fn finish(
        app: &mut A,
        core: &mut Core,
        conn: &mut Conn<'_, A::State>,
        place: PendingPlace,
    ) -> Continuation {
        conn.clear_deadline();
        core.answer_pending(conn, place, true, |core, conn, request, bytes| {
            let verdict = core.exchange(conn, |exchange| app.on_request(request, exchange));
            core.answer(conn, request, bytes, verdict)
        })
    }
}
