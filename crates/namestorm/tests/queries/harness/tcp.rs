//! The client's side of DNS over TCP.

use namestorm::Hook;
use testkit::{ACK, Layout, Opt, Route, SYN, Segment, read_segment};

use super::{Client, PORT};

/// The client's side of a connection.
pub(crate) struct Connection {
    /// The next sequence number to send.
    pub(crate) seq: u32,
    /// The next sequence number to acknowledge.
    pub(crate) ack: u32,
}

impl Connection {
    pub(crate) fn open<H: Hook>(client: &mut Client<H>) -> Self {
        let mut connection = Self { seq: 0, ack: 0 };
        let syn = Segment {
            bits: SYN,
            options: vec![Opt::Mss(1460)],
            ..Segment::default()
        };
        connection.ack = end(&connection.exchange(client, &syn).unwrap());
        connection
    }

    /// Sends `data` as the next bytes of the connection. Returns the last segment that the server
    /// sends in response, if any.
    pub(crate) fn send<H: Hook>(&mut self, client: &mut Client<H>, data: &[u8]) -> Option<Segment> {
        let segment = Segment {
            bits: ACK,
            seq: self.seq,
            ack: self.ack,
            data: data.to_vec(),
            ..Segment::default()
        };
        self.exchange(client, &segment)
    }

    fn exchange<H: Hook>(&mut self, client: &mut Client<H>, segment: &Segment) -> Option<Segment> {
        let segment = Segment {
            window: u16::MAX,
            ..segment.clone()
        };
        self.seq += segment.span();
        let route = Route::to_server(false, 40_000, PORT);
        let sent = client.handle(&route.segment(&segment, Layout::Usual))?;
        let received = read_segment(&sent).unwrap();
        assert_eq!(received.route, route.back());
        Some(received.segment)
    }
}

/// Returns the sequence number that follows a segment.
pub(crate) fn end(segment: &Segment) -> u32 {
    segment.seq.wrapping_add(segment.span())
}

/// Returns a message with its length field.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend(message);
    bytes
}
