//! Streamed responses, whose length is unknown when they begin.

use std::io::Write as _;

use tcpip::{CongestionControl, Connections};

use super::Web;
use super::conversation::{Conn, Conversation};
use super::core::Core;
use super::writing::Continuation;
use crate::app::App;
use crate::date::SLOT_LEN;
use crate::pending::{Outgoing, OutgoingContent, Phase, Stream};
use crate::request::Request;
use crate::response::HeadLayout;
use crate::verdict::More;

/// Maximum number of pieces to request from the application in a row. More are requested when the
/// client has acknowledged these pieces.
const PIECES_AT_A_TIME: usize = 4;

impl<A: App> Web<A> {
    /// Asks the application for more pieces of the connection's streamed response, if there is one
    /// that does not wait to be resumed.
    pub(super) fn stream(&mut self, conn: &mut Conn<'_, A::State>) -> Continuation {
        let Self { app, core, .. } = self;
        let mut continuation = Continuation::Stream;
        for _ in 0..PIECES_AT_A_TIME {
            let place = conn.state().place;
            let stream = match core.pending.phase(place) {
                Some(Phase::Stream(stream)) if !stream.waits => *stream,
                _ => break,
            };
            let more = core.exchange_of(conn, stream.serial, |exchange| app.on_more(exchange));
            continuation = core.continue_stream(conn, stream, more);
            if continuation != Continuation::Stream {
                break;
            }
        }
        if continuation == Continuation::ReadNext {
            conn.offer_again();
        }
        continuation
    }

    /// Continues the streamed responses that a message or timer callback has started or resumed.
    pub(super) fn resume<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<A::State>, C>,
    ) {
        while let Some(id) = self.core.resumed.pop() {
            if let Some(mut conn) = connections.get(id) {
                self.stream(&mut conn);
            }
        }
    }
}

impl Core {
    /// Begins a streamed response with the status, fields and body of the exchange's response.
    pub(super) fn begin_stream<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
    ) -> Continuation {
        // HTTP/1.0 has no chunks, so the end of the connection ends the body.
        let chunked = request.head().minor > 0;
        let close = !request.keep_alive() || !chunked;
        let stamp = self.now.or_closing(close);
        let may_have_body = !self.response.status().is_bodiless();
        let framing = match (chunked, may_have_body) {
            (true, true) => "Transfer-Encoding: chunked\r\n",
            _ => "",
        };
        let (common, out) = (self.site.fields(), &mut self.out);
        let HeadLayout { slot_at, .. } = self.response.write_head(common, framing, false, out);
        self.slots.write(stamp, &mut out[slot_at..][..SLOT_LEN]);
        let has_body = may_have_body && !request.is_head();
        if has_body {
            self.append_piece(chunked);
        }
        let stream = has_body.then_some(Stream {
            serial: self.serial,
            chunked,
            close,
            waits: false,
        });
        let outgoing = Outgoing::new(OutgoingContent::None, stamp).followed_by(stream);
        self.deliver(conn, outgoing)
    }

    /// Sends the piece that the application has written.
    fn continue_stream<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        mut stream: Stream,
        more: More,
    ) -> Continuation {
        self.out.clear();
        self.append_piece(stream.chunked);
        // An acknowledgement triggers the next piece, but an empty piece is not acknowledged.
        stream.waits = more == More::Wait || self.out.is_empty();
        if more == More::Last && stream.chunked {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
        let stamp = self.now.or_closing(stream.close);
        let stream = (more != More::Last).then_some(stream);
        let outgoing = Outgoing::new(OutgoingContent::None, stamp).followed_by(stream);
        self.deliver(conn, outgoing)
    }

    /// Appends the response's body to the output buffer, as a chunk if `chunked` is set.
    fn append_piece(&mut self, chunked: bool) {
        let (body, out) = (self.response.body(), &mut self.out);
        if !chunked {
            out.extend_from_slice(body);
        } else if !body.is_empty() {
            // Writing to a vector does not fail.
            let _ = write!(out, "{:x}\r\n", body.len());
            out.extend_from_slice(body);
            out.extend_from_slice(b"\r\n");
        }
    }
}
