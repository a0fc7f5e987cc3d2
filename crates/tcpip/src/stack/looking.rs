//! Shows connections to an operator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nmio::Instant;

use super::{Overview, Sending, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::State;
use crate::connection::conn::Conn;
use crate::content::Contents;
use crate::stack::Application;
use crate::stream::Slice;

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Returns the number of places for connections. It never falls. Each connection keeps its
    /// place, and a place may be empty.
    pub fn places(&self) -> usize {
        self.table.records.len()
    }

    /// Describes the connection at a place below [`places`](Self::places) at the time `now`. Returns
    /// `None` if the place is empty. The connection does not change, and the application is not
    /// called.
    pub fn overview(&mut self, place: usize, now: Instant) -> Option<Overview> {
        let state = self.table.records.get(place)?.tcb.state;
        if state == State::Closed {
            return None;
        }
        let now = Moment::from(now);
        let conn = Conn::new(&mut self.table.records[place], &mut self.cx);
        let (rto, idle) = conn.waits(now);
        let edges = conn.tcb.edges();
        let (una, end) = (edges.0, conn.tcb.stream.end());
        let slice = conn.tcb.stream.locate(una, &conn.cx.lists);
        let (addresses, ports) = (conn.tcb.path.addresses, conn.tcb.ports());
        let mut overview = Overview {
            peer: SocketAddr::new(addresses.dst(), ports.1),
            local: SocketAddr::new(addresses.src(), ports.0),
            info: conn.send_info().info(conn.tcb),
            rto: Duration::from_millis(rto.into()),
            age: Duration::ZERO,
            idle: Duration::from_millis(idle.into()),
            bytes_sent: 0,
            bytes_acked: 0,
            bytes_received: 0,
            retransmits: 0,
            sending: slice.map(|slice| sending(slice, &self.sources.contents)),
        };
        self.table.histories[place].tell(edges, now, &mut overview);
        if state == State::SynReceived {
            overview.bytes_acked = 0;
            return Some(overview);
        }
        let unacked = overview.info.unacked;
        let is_fin_acked = una == end + 1;
        let is_fin_in_flight = !is_fin_acked && una + unacked == end + 1;
        let less = |bytes: u64, is_less: bool| bytes.saturating_sub(is_less.into());
        overview.bytes_acked = less(overview.bytes_acked, is_fin_acked);
        let sent = overview.bytes_acked + u64::from(unacked);
        overview.bytes_sent = less(sent, is_fin_in_flight);
        overview.bytes_received = less(overview.bytes_received, has_peers_fin(state));
        Some(overview)
    }
}

/// Describes the rest of a stream entry.
fn sending(slice: Slice, contents: &Contents) -> Sending {
    if slice.source.buffer().is_some() {
        return Sending {
            content: None,
            at: 0,
            len: slice.len.into(),
        };
    }
    let (bytes, _) = contents.get(slice.source.content_index());
    Sending {
        content: Some(Arc::as_ptr(bytes).cast::<u8>().addr()),
        at: slice.from.into(),
        len: bytes.len() as u64,
    }
}

/// Returns true if the peer's FIN has arrived in order.
fn has_peers_fin(state: State) -> bool {
    matches!(
        state,
        State::CloseWait | State::Closing | State::LastAck | State::TimeWait
    )
}
