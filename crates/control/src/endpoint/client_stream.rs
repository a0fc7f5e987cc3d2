//! A connection to a client that may stop reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::admission::Admitted;
use super::listener::Stream;

/// A connection that gives way to others while its client does not read.
pub(super) struct ClientStream<'p> {
    stream: Stream,
    place: &'p Admitted,
    /// Whether the client has no room for the bytes that were written last.
    is_full: bool,
}

impl<'p> ClientStream<'p> {
    pub(super) fn new(stream: Stream, place: &'p Admitted) -> Self {
        Self {
            stream,
            place,
            is_full: false,
        }
    }

    /// Notes whether the client has taken bytes.
    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        match (self.is_full, written.is_pending()) {
            (false, true) => self.place.wait_for_client(),
            (true, false) => self.place.use_for_answer(),
            _ => {}
        }
        self.is_full = written.is_pending();
        written
    }
}

impl AsyncRead for ClientStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}
