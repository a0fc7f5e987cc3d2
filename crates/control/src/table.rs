//! The list of all TCP connections, as `ss -tin` would show them if they were the kernel's.
//!
//! The control thread sends a [`Walk`](walk::Walk) to one worker after another. The worker fills it
//! with at most 64 connections between two batches of packets, and sends it back. The control thread
//! turns the connections into lines of JSON and asks for the next slice. A client that goes away
//! therefore ends the walk.

pub(crate) mod filter;
pub(crate) mod line;
pub(crate) mod list;
pub(crate) mod walk;
