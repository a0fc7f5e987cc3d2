//! Devices that only Linux has: `auto`, `xdp:` and `tap:`.

mod addressing;
mod affinity;
mod auto;
mod error;
mod followed;
mod held;
mod kind;
mod lost_offloads;
mod monitor;
mod namespace;
mod napi;
mod netlink;
mod netmap;
mod network;
mod open;
mod opened;
mod pair;
mod pfifo;
mod privileges;
mod queues;
mod ready;
mod replaced_queue;

pub(super) use held::Held;
pub(super) use kind::{Backend, Kind};
pub use monitor::Monitor;
pub(crate) use netlink::{dropped_without_queue, longest_supers, queue_kinds};
pub(super) use netmap::join_network;
pub(super) use open::{open_auto, open_tap, open_xdp};
pub(crate) use privileges::Needs;
