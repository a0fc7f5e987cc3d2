//! Processing of in-order response data.

use nmio::{Instant, Port};

use super::client::Client;
use super::connection::{Connection, Flags};
use super::error;
use super::head::{Head, Parsed, parse};
use super::pages::PreparedPage;
use crate::load::meter::Phase;
use crate::load::tcp::{combined, continued};

/// Result of parsing the data that precedes a body.
enum Step {
    /// The body begins at this offset of the data.
    Body(usize),
    /// The head is still incomplete.
    More,
    /// The connection has failed.
    Failed,
}

impl Client {
    /// Processes `data`, the next bytes in order. Returns false if the connection has failed.
    #[inline(always)]
    pub(super) fn deliver<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        data: &[u8],
        now: Instant,
    ) -> bool {
        let connection = &mut self.connections[id as usize];
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(data.len() as u32);
        let body = if connection.flags.intersects(Flags::BODY) {
            data
        } else {
            match self.begin(port, id, data) {
                Step::Body(at) => &data[at..],
                Step::More => return true,
                Step::Failed => return false,
            }
        };
        let connection = &mut self.connections[id as usize];
        let Some(left) = connection.body_left.checked_sub(body.len() as u32) else {
            self.fail(port, id, error::LENGTH);
            return false;
        };
        if !body.is_empty() {
            connection.crc = continued(connection.crc, body);
        }
        connection.body_left = left;
        if left == 0 {
            self.complete(id, now);
        }
        true
    }

    /// Processes a part of the body that arrived out of order and is now the next in order. Returns
    /// false if the connection has failed.
    #[cold]
    pub(super) fn deliver_range<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        len: u32,
        crc: u32,
        now: Instant,
    ) -> bool {
        let connection = &mut self.connections[id as usize];
        connection.rcv_nxt = connection.rcv_nxt.wrapping_add(len);
        let in_body = connection.flags.intersects(Flags::BODY);
        let Some(left) = connection.body_left.checked_sub(len).filter(|_| in_body) else {
            self.fail(port, id, error::LENGTH);
            return false;
        };
        connection.crc = combined(connection.crc, crc, len);
        connection.body_left = left;
        if left == 0 {
            self.complete(id, now);
        }
        true
    }

    /// Parses data of a response whose head is not complete yet.
    #[inline(always)]
    fn begin<P: Port>(&mut self, port: &mut P, id: u32, data: &[u8]) -> Step {
        let connection = &mut self.connections[id as usize];
        // There can be no response before the request has been sent.
        if !connection.flags.intersects(Flags::BUSY) || connection.flags.intersects(Flags::REQUEST)
        {
            self.fail(port, id, error::UNASKED);
            return Step::Failed;
        }
        let page = self.pages.get(connection.page);
        if !connection.flags.intersects(Flags::TROUBLE)
            && let Some(head) = page.head.find(data)
        {
            accept(connection, &head, page);
            return Step::Body(head.len);
        }
        self.begin_slowly(port, id, data)
    }

    /// Parses a head that is incomplete or differs from the remembered one.
    #[inline(never)]
    fn begin_slowly<P: Port>(&mut self, port: &mut P, id: u32, data: &[u8]) -> Step {
        let connection = &mut self.connections[id as usize];
        let page = self.pages.get_mut(connection.page);
        let known = match self.troubles.get_mut(&id) {
            Some(trouble) if !trouble.head.is_empty() => {
                let known = trouble.head.len();
                trouble.head.extend_from_slice(data);
                known
            }
            _ => 0,
        };
        let parsed = match self.troubles.get(&id) {
            Some(trouble) if known > 0 => parse(&trouble.head, page.field.as_ref()),
            _ => parse(data, page.field.as_ref()),
        };
        match parsed {
            Parsed::Whole(head) => {
                accept(connection, &head, page);
                if known > 0 {
                    self.troubles.remove(&id);
                    connection.flags.remove(Flags::TROUBLE);
                } else if !connection.flags.intersects(Flags::BAD_HEAD) {
                    page.head.remember(head, data);
                }
                // The head may have begun in earlier data. The length of that part is subtracted.
                Step::Body(head.len.saturating_sub(known))
            }
            Parsed::Part if known > 0 => Step::More,
            Parsed::Part => {
                if let Some(trouble) = self.trouble(id) {
                    trouble.head.extend_from_slice(data);
                    return Step::More;
                }
                self.fail(port, id, error::MALFORMED);
                Step::Failed
            }
            Parsed::Malformed => {
                self.fail(port, id, error::MALFORMED);
                Step::Failed
            }
        }
    }

    /// Checks a complete response. Then takes the next request, or waits for the server to close.
    #[inline(always)]
    fn complete(&mut self, id: u32, now: Instant) {
        let measuring = self.meter.phase() == Phase::Measuring;
        let connection = &mut self.connections[id as usize];
        let flags = connection.flags;
        connection.flags.remove(Flags::RESPONSE);
        let page = connection.page;
        if flags.intersects(Flags::BAD_STATUS) {
            self.meter.error(error::STATUS);
        } else if flags.intersects(Flags::BAD_LENGTH) {
            self.meter.error(error::LENGTH);
        } else if flags.intersects(Flags::BAD_FIELD) {
            self.meter.error(error::FIELD);
        } else if !self.pages.has_crc(page, connection.crc) {
            self.meter.error(error::CHECKSUM);
        } else if measuring {
            let (requested_at, lane) = (connection.requested_at, connection.lane);
            let len = self.pages.get(page).len as usize;
            self.meter.complete(requested_at, now, len);
            self.lanes.count(lane, now.since(requested_at));
        }
        let server_closes = flags.intersects(Flags::EXPECT_FIN);
        self.after_response(id, server_closes, now);
    }
}

/// Records in the connection how a head differs from that of the page, its body length, and its wish
/// to close.
#[inline(always)]
fn accept(connection: &mut Connection, head: &Head, page: &PreparedPage) {
    connection.flags.insert(Flags::BODY);
    if head.status != page.status {
        connection.flags.insert(Flags::BAD_STATUS);
    } else if head.body_len != page.len {
        connection.flags.insert(Flags::BAD_LENGTH);
    } else if !head.has_field {
        connection.flags.insert(Flags::BAD_FIELD);
    }
    if head.close {
        connection.flags.insert(Flags::EXPECT_FIN);
    }
    connection.body_left = match head.chunked {
        Some(_) => 0,
        None => head.body_len,
    };
    connection.crc = head.chunked.unwrap_or(0);
}
