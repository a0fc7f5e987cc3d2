//! What an echo server is asked: the same bytes, again and again.

use ip::Sum;

use super::link::LoadError;
use super::udp::{ID_LEN, Questions};

/// Link, IP and UDP headers before the message.
const HEADERS: usize = 14 + 20 + 8;

/// Messages of one size.
#[derive(Clone, Debug)]
pub struct Echo {
    message: Vec<u8>,
    sum: Sum,
}

impl Echo {
    /// Messages that make frames of `frame_len` bytes, link header included.
    ///
    /// # Errors
    /// When they would have no room for an identifier, or not fit a link of
    /// 1,500 bytes.
    pub fn new(frame_len: usize) -> Result<Self, LoadError> {
        const LEAST: usize = HEADERS + ID_LEN;
        const MOST: usize = 1514;
        if !(LEAST..=MOST).contains(&frame_len) {
            return Err(LoadError::Asked(format!(
                "frames of {frame_len} bytes: from {LEAST} to {MOST} can be sent"
            )));
        }
        let message: Vec<u8> = (0..frame_len - LEAST).map(|i| i as u8).collect();
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
            Err("not what was sent")
        }
    }
}
