//! Whether a device sends super-segments.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether to send super-segments.
///
/// # `AF_XDP`
/// `AF_XDP` can send only single frames, so super-segments go through a packet socket. The socket
/// copies each packet once. This costs no more than `AF_XDP` in copy mode, which also copies each
/// packet once.
///
/// # VALE switches and pipes
/// A netmap port of a VALE switch can put a virtio-net header before each packet. Ports with such
/// headers exchange super-segments whole. If the receiver's port has no headers, the switch cuts
/// super-segments in software, and computes all checksums. On a pipe, both ends must have headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Offload {
    /// Sends super-segments if `AF_XDP` copies packets anyway. If the device does not segment TCP, the
    /// kernel does, unless the device has several TX queues. A port of a switch and one end of a pipe send
    /// none.
    ///
    /// In zero-copy mode, no super-segments are sent. Frames then need no copy, and super-segments
    /// could overtake them.
    #[default]
    Auto,
    /// Sends super-segments even if the kernel must segment them and the device drops some. If the
    /// port cannot send them, for example in zero-copy mode, opening it fails.
    On,
    /// Never sends super-segments.
    Off,
}

impl Offload {
    /// Parses the value of the option `offload=`.
    pub(super) fn parse(value: &str) -> Option<Self> {
        match value {
            "auto" => Some(Self::Auto),
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// The option `offload=` with a comma before it. The default is not written.
impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "",
            Self::On => ",offload=on",
            Self::Off => ",offload=off",
        })
    }
}
