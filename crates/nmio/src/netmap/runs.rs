//! How runs of segments are sent.

/// Maximum length of an IP packet, in bytes, including super-segments.
pub(super) const MAX_PACKET: usize = 65_535;
/// Length in bytes of the IP packets into which a switch cuts a super-segment, if the receiver's port
/// has no virtio-net headers. The segment length in the header does not matter.
const CUT_LEN: usize = 1500;

/// How runs of segments are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// As single frames. The text gives the reason.
    Frames(&'static str),
    /// As super-segments with virtio-net headers. The switch cuts them for ports without such headers.
    ToSwitch,
    /// As super-segments with virtio-net headers, which the other end of the pipe takes whole.
    ToPipe,
}

impl Runs {
    /// Returns true if a virtio-net header precedes each packet.
    pub(super) fn has_headers(self) -> bool {
        !matches!(self, Self::Frames(_))
    }

    /// Returns the value of [`Capabilities::min_segment`](crate::Capabilities::min_segment).
    pub(super) fn min_segment(self) -> usize {
        match self {
            Self::ToSwitch => CUT_LEN,
            Self::Frames(_) | Self::ToPipe => 0,
        }
    }

    /// Returns the length in bytes of the longest IP packet that can arrive.
    pub(super) fn longest_received(self, mtu: usize) -> usize {
        if self.has_headers() { MAX_PACKET } else { mtu }
    }

    /// Describes for people how runs are sent. `max_super_len` is the maximum length of a
    /// super-segment in bytes.
    pub(super) fn describe(self, max_super_len: usize) -> String {
        let cut = match self {
            Self::Frames(why) => return format!("each segment is sent as a frame: {why}"),
            Self::ToSwitch => "the switch cuts them for ports without virtio-net headers",
            Self::ToPipe => "the other end of the pipe must have virtio-net headers, too",
        };
        format!(
            "super-segments of up to {} KB are sent and received whole; {cut}",
            max_super_len.div_ceil(1024)
        )
    }
}
