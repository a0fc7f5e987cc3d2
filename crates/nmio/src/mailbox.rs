//! The one way from outside into a worker: a bounded mailbox for each.
//!
//! Any thread sends; the worker empties its mailbox between two batches, and a bell
//! wakes it when it sleeps. While the worker is busy a message costs no system call.
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
//! A [`Handler`](crate::Handler) shows its bell to the loop, which silences it, and
//! takes its messages in [`handle_messages`](crate::Handler::handle_messages). Several
//! mailboxes of one worker [hang on the same bell](Bell::mailbox).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};

/// A mailbox of `capacity` messages with a bell of its own: see [`Bell::mailbox`].
///
/// # Errors
/// When the process has no file descriptor left for the bell.
pub fn mailbox<M: Send>(capacity: usize) -> io::Result<(Sender<M>, Mailbox<M>)> {
    Ok(Bell::new()?.mailbox(capacity))
}

/// What wakes a worker. It is rung by senders, and silenced before the worker's
/// mailboxes are emptied.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// An eventfd.
    event: OwnedFd,
    /// A message has come since the bell was last silenced. While this is so, no
    /// sender rings again.
    is_rung: AtomicBool,
}

impl Bell {
    /// A bell without mailboxes.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_rung: AtomicBool::new(false),
        })))
    }

    /// A mailbox of `capacity` messages, at least 1, that this bell tells of, and a
    /// sender to it, which can be cloned. Memory for all of them is taken at once.
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

    /// Whether a message may be there.
    #[inline(always)]
    pub fn is_rung(&self) -> bool {
        self.0.is_rung.load(Ordering::Relaxed)
    }

    /// Readable while the bell is rung: a port waits for it beside its device.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn ring(&self) {
        // Release: who finds it rung finds the message, too.
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            // It can only fail when it is set 2^64 times.
            let _ = rustix::io::write(self.event(), &1u64.to_ne_bytes());
        }
    }

    /// What is sent from now on rings again. Whether it was rung: then all mailboxes
    /// must be emptied now, as it will not ring for what is in them. A bell that is
    /// silent costs one load.
    #[inline(always)]
    pub fn silence(&self) -> bool {
        self.is_rung() && self.silence_rung()
    }

    #[cold]
    fn silence_rung(&self) -> bool {
        // Before the swap: a sender that rings after it must not go unheard.
        let _ = rustix::io::read(self.event(), &mut [0u8; 8]);
        self.0.is_rung.swap(false, Ordering::AcqRel)
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
    /// Sends a message, without waiting. It is handled after all that were sent
    /// before by the same thread.
    ///
    /// # Errors
    /// [`SendMessageError::Full`] when the worker has not kept up, and
    /// [`SendMessageError::Closed`] when it has ended. Both give the message back.
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

/// Why a message was not sent. It has the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendMessageError<M> {
    /// The mailbox is full: send it again later, or do without.
    Full(M),
    /// The worker has ended.
    Closed(M),
}

impl<M> SendMessageError<M> {
    /// The message that was not sent.
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

/// A worker's end: see [`mailbox`].
#[derive(Debug)]
pub struct Mailbox<M> {
    /// Nobody waits on either end, so that it takes no lock.
    messages: Receiver<M>,
    capacity: usize,
    bell: Bell,
}

impl<M> Mailbox<M> {
    /// What wakes the worker: see [`Handler::bell`](crate::Handler::bell).
    #[inline(always)]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes all messages, oldest first. Those that come meanwhile may be left for
    /// the next time, so that no sender keeps a worker from its packets.
    pub fn take_all(&mut self, mut handle: impl FnMut(M)) {
        // No more were there when the bell was silenced.
        for message in self.messages.try_iter().take(self.capacity) {
            handle(message);
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
