//! What to open.

use super::runs::Runs;
use crate::device::{DeviceError, MemoryPlan, NetmapTarget, Offload};
use crate::port::Wait;
use crate::steering::Classifier;

/// What to open.
pub(crate) struct NetmapConfig {
    pub(crate) target: NetmapTarget,
    /// Whether to send super-segments.
    pub(crate) offload: Offload,
    pub(crate) partial_checksums: bool,
    /// The ring pair to open.
    pub(crate) ring: u32,
    /// Number of ring pairs of the host's stack. 0: the port has none.
    pub(crate) host_rings: u32,
    pub(crate) mtu: usize,
    /// Which packets go to the server; `None`: all.
    pub(crate) classifier: Option<Classifier>,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
}

impl NetmapConfig {
    pub(super) fn is_pipe(&self) -> bool {
        matches!(self.target, NetmapTarget::Pipe(_))
    }

    pub(super) fn is_interface(&self) -> bool {
        matches!(self.target, NetmapTarget::Interface(_))
    }

    /// Chooses how to send runs of segments, as requested by `offload=` and as far as the port
    /// allows.
    pub(super) fn runs(&self) -> Result<Runs, DeviceError> {
        let why = match (&self.target, self.offload) {
            (_, Offload::Off) => "offload=off was given",
            (NetmapTarget::Interface(_), _) => "netmap sends only single frames to an interface",
            (NetmapTarget::Pipe(_), Offload::Auto) => {
                "the other end of a pipe may not take them; offload=on sends them"
            }
            (NetmapTarget::Switch(_), Offload::Auto) => {
                "a switch cuts super-segments in software, if the receiver does not take them whole; \
                 offload=on sends them"
            }
            (_, Offload::On) if self.memory.resident_frames > 0 => {
                return Err(DeviceError::Offload {
                    interface: self.target.name().to_owned(),
                    why: "packets are resident (--mode pre-copy), and a received super-segment would \
                          not fit in a frame of their size"
                        .to_owned(),
                });
            }
            (NetmapTarget::Switch(_), Offload::On) => return Ok(Runs::ToSwitch),
            (NetmapTarget::Pipe(_), Offload::On) => return Ok(Runs::ToPipe),
        };
        Ok(Runs::Frames(why))
    }
}
