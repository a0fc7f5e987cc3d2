//! A connection begins.

use ip::Path;

use super::{Negotiated, State, Tcb};
use crate::stream::Stream;
use crate::wire::Seq;

/// What a SYN, or the cookie of one, says of a new connection.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) negotiated: Negotiated,
    /// The most bytes of data in a segment.
    pub(crate) mss: u16,
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    /// As the segment's field has it.
    pub(crate) window: u16,
    pub(crate) ts_recent: u32,
}

impl Tcb {
    /// A connection in SYN-RECEIVED, which nobody knows of yet, between our port
    /// and the peer's.
    pub(crate) fn half_open(
        path: Path,
        (own_port, peer_port): (u16, u16),
        opening: &Opening,
        ts_offset: u32,
    ) -> Self {
        let &Opening {
            negotiated,
            mss,
            iss,
            irs,
            window,
            ts_recent,
        } = opening;
        Self {
            path,
            own_port,
            peer_port,
            sum: Tcb::connection_sum(&path, own_port, peer_port),
            mss,
            mss_most: mss,
            state: State::SynReceived,
            negotiated,
            ts_recent,
            ts_offset,
            snd_una: iss,
            snd_nxt: iss + 1,
            stream: Stream::new(iss + 1),
            snd_wnd: u32::from(window),
            // A SYN's window is not scaled.
            max_snd_wnd: window.div_ceil(1 << negotiated.peer_scale()),
            snd_wl1: irs,
            rcv_nxt: irs + 1,
            rcv_adv: irs + 1,
            ..Tcb::closed()
        }
    }
}
