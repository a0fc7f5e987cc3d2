//! Records of single requests: each worker hands them through a bounded ring to a thread that writes
//! them as lines or frames of a log.
//!
//! A worker copies a few bytes and never waits. If the ring is full, the record is dropped and
//! counted. The writer's thread turns records into text. Each log has its own, so that a log that is
//! stuck holds up no other.

mod client;
mod destination;
mod frame;
mod frame_file;
mod frames;
#[cfg(test)]
mod full_disk;
mod log;
mod log_file;
mod ring;
mod unwritten;
mod writer;

pub use client::{CLIENT_LEN, client_from_bytes, client_to_bytes};
pub use destination::LogDestination;
pub use frames::FrameDestination;
pub use log::{LogName, RecordLog};
pub use ring::RecordSender;
pub(crate) use ring::{RecordReader, ring};
pub(crate) use writer::Writers;
