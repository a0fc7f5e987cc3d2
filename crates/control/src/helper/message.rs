//! Messages between the two processes: text, and descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors in one message; the kernel takes 253.
const MOST_DESCRIPTORS: usize = 64;
/// Bytes of one message: a start block and a few hundred addresses are a tenth
/// of it.
const MOST_BYTES: usize = 128 << 10;

/// Sends `message`, without descriptors.
pub(super) fn send(socket: BorrowedFd<'_>, message: &impl Serialize) -> io::Result<()> {
    send_with(socket, &serde_json::to_vec(message)?, &[])
}

/// Receives what [`send`] sent; `None` when the other end is closed.
pub(super) fn receive<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<M>> {
    let mut bytes = vec![0; MOST_BYTES];
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
        .chunks(MOST_DESCRIPTORS)
        .try_for_each(|some| send_with(socket, &[0], some))
}

/// Receives so many descriptors.
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

fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if bytes.len() > MOST_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [IoSlice::new(bytes)];
    sendmsg(socket, &bytes, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_with(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(bytes)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(come) = message {
            descriptors.extend(come);
        }
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::helper::socket_pair;

    #[test]
    fn a_message_arrives_whole_or_is_refused() {
        let (here, there) = socket_pair().unwrap();
        // Quotes take two bytes.
        let longest = "x".repeat(MOST_BYTES - 2);
        for text in ["", "some text", &longest] {
            send(here.as_fd(), &text).unwrap();
            let come = receive::<String>(there.as_fd()).unwrap();
            assert_eq!(come.as_deref(), Some(text));
        }
        let error = send(here.as_fd(), &(longest + "x")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn as_many_descriptors_arrive_as_were_sent() {
        let (here, there) = socket_pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        for count in [0, 1, MOST_DESCRIPTORS, 256] {
            send_descriptors(here.as_fd(), &vec![null.as_fd(); count]).unwrap();
            let come = receive_descriptors(there.as_fd(), count).unwrap();
            assert_eq!(come.len(), count);
        }
        drop(here);
        assert!(receive_descriptors(there.as_fd(), 1).is_err());
        assert!(receive::<String>(there.as_fd()).unwrap().is_none());
    }
}
