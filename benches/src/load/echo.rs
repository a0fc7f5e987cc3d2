//! Requests of the UDP echo protocol. All of them have the same bytes after the identifier.

use ip::Sum;

use super::link::LoadError;
use super::udp::{ID_LEN, Questions};

/// Length of the link, IP and UDP headers in bytes.
const HEADERS: usize = 14 + 20 + 8;

/// Echo requests of one size.
#[derive(Clone, Debug)]
pub struct Echo {
    message: Vec<u8>,
    sum: Sum,
}

impl Echo {
    /// Creates requests whose frames are `frame_len` bytes long, including the link header.
    ///
    /// # Errors
    /// Fails if the frame has no room for an identifier or exceeds an MTU of 1,500 bytes.
    pub fn new(frame_len: usize) -> Result<Self, LoadError> {
        const MIN_LEN: usize = HEADERS + ID_LEN;
        const MAX_LEN: usize = 1514;
        if !(MIN_LEN..=MAX_LEN).contains(&frame_len) {
            return Err(LoadError::Asked(format!(
                "frames of {frame_len} bytes are not possible: give {MIN_LEN} to {MAX_LEN}"
            )));
        }
        let message: Vec<u8> = (0..frame_len - MIN_LEN).map(|i| i as u8).collect();
        Ok(Self {
            sum: Sum::of(&message),
            message,
        })
    }
}

impl Questions for Echo {
    #[inline(always)]
    fn next(&mut self) -> (u32, &[u8], Sum) {
        (0, &self.message, self.sum)
    }

    #[inline(always)]
    fn check(&self, _: u32, reply: &[u8]) -> Result<(), &'static str> {
        if reply[ID_LEN..] == self.message {
            Ok(())
        } else {
            Err("wrong echo")
        }
    }
}
