//! Listening sockets of the kernel, over TCP or at a path.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::{fs, pin};

use nix::sys::stat::{Mode, umask};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::endpoint::address::ListenAddress;

/// A socket that listens. It is made before the thread drops its privileges.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `address`. A Unix socket can be used only by the user who started the server, and
    /// by root. It replaces the socket of a process that has ended.
    ///
    /// # Errors
    /// If the address is in use or may not be used. A file that is not a socket is never removed.
    pub(super) fn bind(address: &ListenAddress) -> io::Result<Self> {
        let listener = match address {
            ListenAddress::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
            ListenAddress::Unix(path) => {
                remove_dead_socket(path)?;
                // Nobody may connect between the creation of the socket and a change of its mode.
                let usual = umask(Mode::from_bits_truncate(0o177));
                let bound = UnixListener::bind(path);
                umask(usual);
                Self::Unix(bound?)
            }
        };
        match &listener {
            Self::Tcp(tcp) => tcp.set_nonblocking(true)?,
            Self::Unix(unix) => unix.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Returns true if only programs on this host can reach the socket, browsers among them.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(tcp) => {
                // An IPv6 socket may have an IPv4 address.
                let address = tcp.local_addr().map(|own| own.ip().to_canonical());
                address.is_ok_and(|own| own.is_loopback())
            }
            Self::Unix(_) => false,
        }
    }

    /// Makes the socket one of the current runtime.
    pub(super) fn into_async(self) -> io::Result<AsyncListener> {
        Ok(match self {
            Self::Tcp(tcp) => AsyncListener::Tcp(tokio::net::TcpListener::from_std(tcp)?),
            Self::Unix(unix) => AsyncListener::Unix(tokio::net::UnixListener::from_std(unix)?),
        })
    }
}

/// Removes the socket at `path` if no process listens on it any more.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                ErrorKind::AddrInUse,
                "another running server has this socket",
            )),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
        },
        Ok(_) => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file at this path that is not a socket",
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A listening socket of a runtime.
pub(super) enum AsyncListener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A connection of either kind.
pub(super) type Stream = pin::Pin<Box<dyn Duplex>>;

/// What HTTP needs of a connection.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

impl AsyncListener {
    /// Waits for the next connection.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(tcp) => Box::pin(tcp.accept().await?.0),
            Self::Unix(unix) => Box::pin(unix.accept().await?.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn all_forms_of_a_loopback_address_are_local() {
        for (address, expected) in [
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("[::ffff:127.0.0.1]:0", true),
            ("0.0.0.0:0", false),
        ] {
            let listener = Listener::Tcp(TcpListener::bind(address).unwrap());
            assert_eq!(listener.is_loopback(), expected, "{address}");
        }
    }

    #[test]
    fn only_a_dead_processs_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = ListenAddress::Unix(path.clone());
        let first = Listener::bind(&address).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner may connect");
        let refused = Listener::bind(&address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(first);
        assert!(path.exists(), "a dead process leaves its socket");
        drop(Listener::bind(&address).unwrap());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        let refused = Listener::bind(&address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
