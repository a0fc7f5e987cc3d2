//! Tells secondary servers at once that a zone has changed (NOTIFY, RFC 1996).
//!
//! The own network stack only replies, so the kernel sends NOTIFY. A [`Notifier`] has the sockets and the
//! thread. Its [`Schedule`](schedule::Schedule) decides what is sent when, without sockets and clocks.

mod log;
mod message;
mod notifier;
mod schedule;
mod secondary;
mod sockets;

pub(crate) use notifier::Notifier;
pub(crate) use secondary::{Secondaries, Secondary};
