//! Devices that only FreeBSD has. There are none, so most types of this module have no values.

mod held;
mod kind;
mod monitor;
mod netmap;
mod open;
mod privileges;

pub(super) use held::Held;
pub(super) use kind::{Backend, Kind};
pub use monitor::Monitor;
pub(super) use netmap::join_network;
pub(super) use open::{open_auto, open_tap, open_xdp};
pub(crate) use privileges::Needs;
