//! Messages between the server and the helper process: JSON text, and file descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ready::ready_within;

/// Maximum number of descriptors in one message. The kernel allows 253.
const MAX_DESCRIPTORS: usize = 64;
/// Maximum size of one message in bytes. The facts about an interface with a few hundred addresses
/// need only a tenth of this size.
const MAX_BYTES: usize = 128 << 10;

/// Sends `message` as text, without descriptors.
pub(super) fn send(socket: BorrowedFd<'_>, message: &impl Serialize) -> io::Result<()> {
    send_with(socket, &serde_json::to_vec(message)?, &[])
}

/// Receives a message that [`send`] has sent. Returns `None` if the other side is closed.
pub(super) fn receive<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<M>> {
    let mut bytes = vec![0; MAX_BYTES];
    let len = receive_with(socket, &mut bytes, &mut Vec::new())?;
    if len == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes[..len])?))
}

/// Sends descriptors.
pub(super) fn send_descriptors(
    socket: BorrowedFd<'_>,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    descriptors
        .chunks(MAX_DESCRIPTORS)
        .try_for_each(|chunk| send_with(socket, &[0], chunk))
}

/// Receives `count` descriptors.
pub(super) fn receive_descriptors(
    socket: BorrowedFd<'_>,
    count: usize,
) -> io::Result<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    while descriptors.len() < count {
        let before = descriptors.len();
        receive_with(socket, &mut [0], &mut descriptors)?;
        if descriptors.len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(descriptors)
}

/// Receives and discards everything until the other side is closed, or until an error other than
/// EMFILE occurs. `until` limits the time.
pub(super) fn drain(socket: BorrowedFd<'_>, until: Option<Instant>) {
    loop {
        if !ready_within(socket, PollFlags::IN, until) {
            return;
        }
        match receive_with(socket, &mut [0], &mut Vec::new()) {
            Ok(0) => return,
            // With EMFILE, the kernel has closed some of the descriptors. This does not matter,
            // because all descriptors are discarded anyway.
            Err(error) if error.raw_os_error() != Some(libc::EMFILE) => return,
            _ => {}
        }
    }
}

fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if bytes.len() > MAX_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [IoSlice::new(bytes)];
    sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_with(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(bytes)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    // The kernel has closed the descriptors that did not fit or that exceeded the process's limit.
    // They cannot be received again.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::net::sockopt::{Timeout, set_socket_timeout};

    use super::*;
    use crate::helper::socket_pair;

    #[test]
    fn a_message_arrives_whole_or_is_refused() {
        let (near, far) = socket_pair().unwrap();
        // The quotation marks of the JSON string take two bytes.
        let longest = "x".repeat(MAX_BYTES - 2);
        for text in ["", "some text", &longest] {
            send(near.as_fd(), &text).unwrap();
            let received = receive::<String>(far.as_fd()).unwrap();
            assert_eq!(received.as_deref(), Some(text));
        }
        let error = send(near.as_fd(), &(longest + "x")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn as_many_descriptors_arrive_as_were_sent() {
        let (near, far) = socket_pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        for count in [0, 1, MAX_DESCRIPTORS, 256] {
            send_descriptors(near.as_fd(), &vec![null.as_fd(); count]).unwrap();
            let received = receive_descriptors(far.as_fd(), count).unwrap();
            assert_eq!(received.len(), count);
        }
        drop(near);
        assert!(receive_descriptors(far.as_fd(), 1).is_err());
        assert!(receive::<String>(far.as_fd()).unwrap().is_none());
    }

    /// Creates two connected sockets. The second socket has a receive timeout of 2 s, and the first
    /// one sends it a message with too many descriptors.
    fn send_too_many_descriptors() -> (OwnedFd, OwnedFd) {
        const SENT: usize = 2 * MAX_DESCRIPTORS;
        let (near, far) = socket_pair().unwrap();
        let timeout = Some(Duration::from_secs(2));
        set_socket_timeout(&far, Timeout::Recv, timeout).unwrap();
        let null = File::open("/dev/null").unwrap();
        let descriptors = [null.as_fd(); SENT];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [IoSlice::new(&[0])];
        sendmsg(&near, &bytes, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        (near, far)
    }

    #[test]
    fn lost_descriptors_are_an_error() {
        let (_near, far) = send_too_many_descriptors();
        let error = receive_descriptors(far.as_fd(), 2 * MAX_DESCRIPTORS).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
    }

    #[test]
    fn draining_ends_only_when_the_other_end_closes() {
        let (near, far) = send_too_many_descriptors();
        send(near.as_fd(), &"unread").unwrap();
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(near);
        });
        drain(far.as_fd(), None);
        // All messages have been drained, so receiving finds the end of the stream without
        // blocking.
        set_socket_timeout(&far, Timeout::Recv, Some(Duration::from_micros(1))).unwrap();
        assert!(receive::<String>(far.as_fd()).unwrap().is_none());
        closing.join().unwrap();
    }

    #[test]
    fn draining_ends_in_time() {
        let (_near, far) = socket_pair().unwrap();
        drain(far.as_fd(), Some(Instant::now() + Duration::from_millis(1)));
    }
}
