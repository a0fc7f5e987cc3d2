//! Bodies of answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

/// Number of frames of a stream that wait for a client.
pub(super) const WAITING_FRAMES: usize = 8;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum ReplyBody {
    /// All bytes, which are known when the answer begins.
    Whole(Bytes),
    /// Frames that a task sends. The body ends with the channel. If the client goes away, the task's
    /// end of the channel is closed.
    Stream(mpsc::Receiver<Frame<Bytes>>),
}

impl From<String> for ReplyBody {
    fn from(text: String) -> Self {
        Self::Whole(text.into())
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(Frame::data(std::mem::take(bytes))),
            Self::Stream(frames) => ready!(frames.poll_recv(cx)),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
