//! Bounded mailboxes, through which other threads send messages to a worker.
//!
//! Any thread can send. The worker handles messages between two batches of packets. A bell (an
//! eventfd) wakes a sleeping worker. Sending a message makes a system call only if the bell is
//! silent.
//!
//! ```
//! let (sender, mut mailbox) = nmio::mailbox(2)?;
//! let outside = std::thread::spawn(move || {
//!     sender.send("first").unwrap();
//!     sender.send("second").unwrap();
//!     sender.send("third").unwrap_err().into_message()
//! });
//! assert_eq!(outside.join().unwrap(), "third", "the mailbox is full");
//! assert!(mailbox.bell().silence());
//! let mut taken = Vec::new();
//! mailbox.take_all(|message| taken.push(message));
//! assert_eq!(taken, ["first", "second"]);
//! assert!(!mailbox.bell().is_rung());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A handler passes its bell to the event loop through [`Handler::bell`](crate::Handler::bell). If
//! the bell was rung, the loop silences it and calls
//! [`Handler::handle_messages`](crate::Handler::handle_messages), in which the handler takes its
//! messages. Several mailboxes of one worker [share a bell](Bell::mailbox).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};

/// Creates a mailbox for `capacity` messages with its own bell (see [`Bell::mailbox`]).
///
/// # Errors
/// If the process has no free file descriptor for the bell.
///
/// # Panics
/// As [`Bell::mailbox`] does.
pub fn mailbox<M: Send>(capacity: usize) -> io::Result<(Sender<M>, Mailbox<M>)> {
    Ok(Bell::new()?.mailbox(capacity))
}

/// Wakes a worker. Senders ring the bell, and the event loop silences it before the worker takes
/// its messages.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The eventfd of the bell.
    event: OwnedFd,
    /// Whether a message was sent since the bell was last silenced. If so, senders need not write
    /// to the eventfd again.
    is_rung: AtomicBool,
}

impl Bell {
    /// Creates a bell without mailboxes.
    ///
    /// # Errors
    /// If the process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_rung: AtomicBool::new(false),
        })))
    }

    /// Creates a mailbox for `capacity` messages (at least 1), and its sender. Each message to the
    /// mailbox rings this bell. Memory for all messages is allocated now.
    ///
    /// # Panics
    /// If the messages would need more memory than a process can have.
    pub fn mailbox<M: Send>(&self, capacity: usize) -> (Sender<M>, Mailbox<M>) {
        let capacity = capacity.max(1);
        let (sender, receiver) = sync_channel(capacity);
        let sender = Sender {
            messages: sender,
            bell: self.clone(),
        };
        let mailbox = Mailbox {
            messages: receiver,
            capacity,
            bell: self.clone(),
        };
        (sender, mailbox)
    }

    /// Returns true if the bell was rung and not silenced yet, so a message may be waiting.
    #[inline(always)]
    pub fn is_rung(&self) -> bool {
        self.0.is_rung.load(Ordering::Relaxed)
    }

    /// Returns the eventfd, which is readable while the bell is rung. A port waits for the eventfd
    /// and its device at the same time, and does not read it.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn ring(&self) {
        // Release ordering: the thread that silences the bell also sees the message.
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            // Ignore errors: the eventfd's counter is full only after 2^64 writes without a read.
            let _ = rustix::io::write(self.event(), &1u64.to_ne_bytes());
        }
    }

    /// Silences the bell, so that the next message rings it again. Returns true if the bell was
    /// rung.
    ///
    /// If the result is true, the caller must take all messages, because the bell does not ring
    /// again for them. If the bell was not rung, this call costs one load. A bell that another thread is
    /// just ringing stays rung, and the result is false.
    #[inline(always)]
    pub fn silence(&self) -> bool {
        self.is_rung() && self.silence_rung()
    }

    #[cold]
    fn silence_rung(&self) -> bool {
        // Read the eventfd before the swap, so that a ring after the swap is not lost. If the read
        // fails, the sender has not written yet. Its write would leave the eventfd of a silent bell
        // readable, and every wait would return at once.
        rustix::io::read(self.event(), &mut [0u8; 8]).is_ok()
            && self.0.is_rung.swap(false, Ordering::AcqRel)
    }
}

/// Sends messages to one worker, from any thread.
#[derive(Debug)]
pub struct Sender<M> {
    messages: SyncSender<M>,
    bell: Bell,
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            bell: self.bell.clone(),
        }
    }
}

impl<M> Sender<M> {
    /// Sends a message without blocking. Messages from one thread arrive in order.
    ///
    /// # Errors
    /// [`SendMessageError::Full`] if the mailbox is full, and [`SendMessageError::Closed`] if the
    /// worker has dropped the mailbox. Both errors contain the message.
    pub fn send(&self, message: M) -> Result<(), SendMessageError<M>> {
        self.messages
            .try_send(message)
            .map_err(|error| match error {
                TrySendError::Full(message) => SendMessageError::Full(message),
                TrySendError::Disconnected(message) => SendMessageError::Closed(message),
            })?;
        self.bell.ring();
        Ok(())
    }
}

/// Why a message was not sent. Each variant contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendMessageError<M> {
    /// The mailbox is full. Send the message again later, or drop it.
    Full(M),
    /// The worker has dropped the mailbox, for example because it has exited.
    Closed(M),
}

impl<M> SendMessageError<M> {
    /// Returns the message that was not sent.
    pub fn into_message(self) -> M {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<M> fmt::Display for SendMessageError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the worker's mailbox is full; send again later",
            Self::Closed(_) => "the worker has ended",
        })
    }
}

impl<M> fmt::Debug for SendMessageError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

impl<M> std::error::Error for SendMessageError<M> {}

/// The worker's end of a [`mailbox`].
#[derive(Debug)]
pub struct Mailbox<M> {
    /// The receiving end of the channel. This module makes only nonblocking calls on the channel,
    /// and they take no lock.
    messages: Receiver<M>,
    capacity: usize,
    bell: Bell,
}

impl<M> Mailbox<M> {
    /// Returns the bell that wakes the worker (see [`Handler::bell`](crate::Handler::bell)).
    #[inline(always)]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Passes all waiting messages to `handle`, oldest first. Messages that arrive during the call
    /// may wait for the next call, so senders cannot keep the worker from handling packets.
    pub fn take_all(&mut self, mut handle: impl FnMut(M)) {
        // At most `capacity` messages were waiting when the bell was silenced, so none of these is
        // left behind.
        for message in self.messages.try_iter().take(self.capacity) {
            handle(message);
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
