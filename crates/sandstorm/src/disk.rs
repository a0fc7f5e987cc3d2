//! Files whose content is not kept in memory. It is read when a client asks for it.
//!
//! A [`DiskFile`] knows where a file is, and which version of it is served. The file is read in
//! *chunks*, on threads beside the workers ([`Reads`]). Each worker keeps the chunks that were used
//! lately ([`Chunks`]), within a bound.

mod buffer;
mod cache;
mod chunks;
mod file;
mod reads;

pub(crate) use buffer::Buffer;
pub(crate) use chunks::{Chunks, Found};
pub(crate) use file::{CHUNK_LEN, DiskFile, InUse, MAX_TOGETHER, ReadError};
pub(crate) use reads::Reads;
