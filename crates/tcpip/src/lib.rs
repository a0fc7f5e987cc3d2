//! Pre-packetized TCP: the paper's `libtcpip`.
mod app;
mod config;
mod congestion;
mod content;
mod counters;
mod input;
mod output;
mod recv;
mod rto;
mod segments;
mod server;
mod stack;
mod table;
mod tcb;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timers;
mod wire;
mod writes;

pub use app::{Application, CloseReason, Connection, WriteError};
pub use config::Config;
pub use congestion::{CongestionControl, Flight, Reno};
pub use content::{
    ContentError, ContentId, Contents, Family, MAX_CLASSES, MAX_CONTENT_LEN, MAX_CONTENTS,
    MAX_SLOT_LEN, Mode, Slot, Totals,
};
pub use counters::Counters;
pub use recv::MAX_RANGES;
pub use rto::{INITIAL_RTO_AFTER_LOSS_MS, INITIAL_RTO_MS, MAX_RTO_MS, MIN_RTO_MS};
pub use server::Server;
pub use stack::{DEFAULT_MSS_V4, DEFAULT_MSS_V6, MIN_MSS, Stack};
pub use tcb::STREAM_ENTRIES;
pub use writes::MAX_WRITE_LEN;
