//! Passes requests to the application.

use tcpip::WriteError;

use super::Web;
use super::conversation::Conn;
use super::core::{After, Core};
use crate::app::App;
use crate::body::{BodyReader, Part};
use crate::head::field_buffer;
use crate::pending::{Body, Phase, Place};
use crate::request::Request;
use crate::session::{self, Answer, Found, Step, as_1_1, refuse};
use crate::status::Status;
use crate::verdict::{Intake, Sees};

/// How far the received bytes have been processed.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The value is the number of consumed bytes. The next bytes can be processed.
    On(usize),
    /// The value is the number of consumed bytes. The connection continues when there are more
    /// bytes, room in the send stream, or an answer.
    Stop(usize),
    /// The connection ends here.
    Ends,
}

impl Progress {
    /// Returns the progress after an answer. `len` is the number of consumed bytes.
    fn after(after: After, len: usize) -> Self {
        match after {
            After::GoesOn | After::Streams => Self::On(len),
            After::Waits => Self::Stop(len),
            After::Ends => Self::Ends,
        }
    }
}

impl<A: App> Web<A> {
    /// Processes the requests in `data`. Returns how many bytes were consumed.
    pub(super) fn converse(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> usize {
        let mut at = 0;
        conn.state().wants_room = false;
        loop {
            at += self.core.skip_unread(conn, &data[at..]);
            match self.stream(conn) {
                After::Ends => return data.len(),
                _ if at == data.len() => break,
                _ => {}
            }
            let place = conn.state().place;
            let rest = &data[at..];
            let progress = match self.core.pending.phase(place) {
                None => self.read_head(conn, rest),
                Some(Phase::Body(body)) => {
                    let body = *body;
                    self.read_body(conn, place, body, rest)
                }
                Some(Phase::Evicted(_)) => match self.core.turn_away(conn) {
                    Some(after) => Progress::after(after, 0),
                    None => return at,
                },
                // Later requests must wait until the pending one is answered.
                Some(Phase::Answer { .. } | Phase::Room(_) | Phase::Stream(_)) => return at,
            };
            match progress {
                Progress::On(len) => at += len,
                Progress::Stop(len) => {
                    at += len;
                    at += self.core.skip_unread(conn, &data[at..]);
                    break;
                }
                Progress::Ends => return data.len(),
            }
        }
        let place = conn.state().place;
        let is_under_way = self.core.pending.phase(place).is_some();
        if conn.state().has_ended && !is_under_way && !conn.state().wants_room {
            // The client sends no more, so the remaining bytes will never be a complete request.
            conn.close();
        }
        at
    }

    /// Reads the request head at the start of `data`, and decides who answers the request.
    fn read_head(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> Progress {
        if A::SEES == Sees::Missing {
            match self.next(&mut conn.state().session, data) {
                Step::More { consumed } => {
                    self.core.expect_more(conn);
                    return Progress::Stop(consumed);
                }
                Step::Answer(answer) if !self.core.may_be_for_application(&answer) => {
                    return self.send(conn, &answer, data);
                }
                Step::Answer(_) => {}
            }
        }
        let mut fields = field_buffer();
        match conn.state().session.find(data, &mut fields) {
            Found::More { consumed } => {
                self.core.expect_more(conn);
                Progress::Stop(consumed)
            }
            Found::Refused(refusal) => self.send(conn, &refuse(refusal, data), data),
            Found::LaterMinor { skipped, digit_at } => {
                let head = as_1_1(&data[skipped..], digit_at);
                match self.read_head(conn, &head) {
                    Progress::On(len) => Progress::On(skipped + len),
                    Progress::Stop(len) => Progress::Stop(skipped + len),
                    Progress::Ends => Progress::Ends,
                }
            }
            Found::Head { head, skipped } => {
                let data = &data[skipped..];
                match self.take(conn, Request::new(head, data), data) {
                    Progress::On(len) => Progress::On(skipped + len),
                    // The send stream had no room for the answer. The request and the empty lines
                    // before it will be read again.
                    Progress::Stop(0) => Progress::Stop(0),
                    Progress::Stop(len) => Progress::Stop(skipped + len),
                    Progress::Ends => Progress::Ends,
                }
            }
        }
    }

    /// Sends the site's answer to a request that the application does not see.
    fn send(&mut self, conn: &mut Conn<'_, A::State>, answer: &Answer, data: &[u8]) -> Progress {
        conn.clear_deadline();
        match self.core.send(conn, answer, data) {
            Ok(()) if answer.close => Progress::Ends,
            Ok(()) => Progress::On(answer.consumed),
            Err(WriteError::Full) => {
                conn.state().wants_room = true;
                Progress::Stop(0)
            }
            Err(_) => {
                conn.abort();
                Progress::Ends
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
    ) -> Progress {
        let Self { app, core, .. } = self;
        if !request.is_for_application() {
            let answer = session::answer(&core.site, request.head(), data);
            return self.send(conn, &answer, data);
        }
        if request.body_len().is_none() {
            conn.clear_deadline();
            let verdict = core.exchange(conn, |exchange| app.on_request(&request, exchange));
            let after = core.answer(conn, &request, data, verdict);
            return Progress::after(after, request.head_len());
        }
        let intake = core.exchange(conn, |exchange| app.on_head(&request, exchange));
        let waits_to_go_on = request.waits_to_go_on() && data.len() == request.head_len();
        // A client that waits for `100 Continue` may or may not send the body, so it is unknown how
        // many bytes follow.
        let len = request.announced_len().filter(|_| !waits_to_go_on);
        if Core::discard(conn, len) {
            request = request.with_body_discarded();
        }
        let (left, in_pieces) = match intake {
            Intake::Unread(verdict) => {
                let after = core.answer(conn, &request, data, verdict);
                return Progress::after(after, request.head_len());
            }
            Intake::Whole(limit) => (limit as u64, false),
            Intake::Pieces(limit) => (limit, true),
        };
        if request.announced_len().is_some_and(|len| len > left) {
            let after = core.answer_page(conn, Status::ContentTooLarge, &request);
            return Progress::after(after, request.head_len());
        }
        let phase = Phase::Body(Body {
            reader: BodyReader::new(request.body_len()),
            left,
            in_pieces,
            owes_continue: false,
        });
        let (peer, now) = (conn.peer().ip(), conn.now());
        let head = &data[..request.head_len()];
        let Ok(place) = core.pending.take(phase, head, peer, now) else {
            let after = core.answer_page(conn, Status::ServiceUnavailable, &request);
            return Progress::after(after, request.head_len());
        };
        conn.state().place = place;
        conn.state().unread = 0;
        core.expect_more(conn);
        if waits_to_go_on {
            core.send_continue(conn);
        }
        Progress::On(request.head_len())
    }

    /// Reads the part of a body that is in `data`.
    fn read_body(
        &mut self,
        conn: &mut Conn<'_, A::State>,
        place: Place,
        mut body: Body,
        data: &[u8],
    ) -> Progress {
        let Self { app, core, .. } = self;
        // The client has begun to send the body, so it no longer waits for `100 Continue`.
        body.owes_continue = false;
        let mut rest = data;
        let failure = loop {
            let piece = match body.reader.next(&mut rest) {
                Part::Piece(piece) => piece,
                Part::More => {
                    core.pending
                        .update_body(place, body, data.len(), conn.now());
                    return Progress::Stop(data.len());
                }
                Part::End => {
                    let len = data.len() - rest.len();
                    let after = Self::finish(app, core, conn, place);
                    return Progress::after(after, len);
                }
                Part::Malformed => break Status::BadRequest,
            };
            let Some(left) = body.left.checked_sub(piece.len() as u64) else {
                break Status::ContentTooLarge;
            };
            body.left = left;
            if !body.in_pieces {
                if core.pending.append(place, piece, conn.now()).is_err() {
                    break Status::ServiceUnavailable;
                }
                continue;
            }
            let verdict = core.exchange(conn, |exchange| app.on_body(piece, exchange));
            let Some(verdict) = verdict else { continue };
            let is_read = Core::discard(conn, body.reader.known_left());
            let after = core.answer_pending(conn, place, is_read, |core, conn, request, bytes| {
                core.answer(conn, request, bytes, verdict)
            });
            return Progress::after(after, data.len() - rest.len());
        };
        let after = core.answer_pending(conn, place, false, |core, conn, request, _| {
            core.answer_page(conn, failure, request)
        });
        Progress::after(after, data.len())
    }

    /// Passes a request with a complete body to the application.
    fn finish(app: &mut A, core: &mut Core, conn: &mut Conn<'_, A::State>, place: Place) -> After {
        conn.clear_deadline();
        core.answer_pending(conn, place, true, |core, conn, request, bytes| {
            let verdict = core.exchange(conn, |exchange| app.on_request(request, exchange));
            core.answer(conn, request, bytes, verdict)
        })
    }
}
