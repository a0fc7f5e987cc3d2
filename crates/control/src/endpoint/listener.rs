//! Listening sockets of the kernel, over TCP or at a path.

use std::io::{self, ErrorKind};
use std::net::{self, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::{fs, pin};

use nix::sys::stat::{Mode, umask};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::endpoint::address::ListenAddress;
use crate::writable::check_folder;

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
                check_length(path)?;
                if has_dead_socket(path)? {
                    fs::remove_file(path)?;
                }
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

    /// Checks that [`bind`](Self::bind) would succeed. Makes and removes no file. On Linux, a server that
    /// starts meanwhile can bind the address.
    ///
    /// # Errors
    /// Those of `bind`.
    pub(super) fn check(address: &ListenAddress) -> io::Result<()> {
        match address {
            ListenAddress::Tcp(address) => bind_only(*address).map(drop),
            ListenAddress::Unix(path) => {
                check_length(path)?;
                has_dead_socket(path)?;
                check_folder(path)
            }
        }
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

/// Binds a socket that does not listen. On Linux, another socket can bind the address too and listen there.
fn bind_only(address: net::SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// Checks that the path of a socket is not too long for the system.
fn check_length(path: &Path) -> io::Result<()> {
    SocketAddr::from_pathname(path)
        .map(drop)
        .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "the path is too long for a socket"))
}

/// Returns true if there is a socket at `path` on which no process listens any more.
fn has_dead_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                ErrorKind::AddrInUse,
                "another running server has this socket",
            )),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) => Err(error),
        },
        Ok(_) => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file at this path that is not a socket",
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
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

    #[test]
    fn a_check_finds_what_binding_would_fail_with() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| ListenAddress::Unix(folder.path().join(path));
        let check =
            |address: &ListenAddress| Listener::check(address).map_err(|error| error.kind());
        let live = at("live");
        assert_eq!(check(&live), Ok(()));
        let _listener = Listener::bind(&live).unwrap();
        drop(Listener::bind(&at("dead")).unwrap());
        fs::write(folder.path().join("file"), "").unwrap();
        for (path, error) in [
            ("none/socket", Some(ErrorKind::NotFound)),
            ("file", Some(ErrorKind::AlreadyExists)),
            ("file/socket", Some(ErrorKind::NotADirectory)),
            (&"x".repeat(108), Some(ErrorKind::InvalidInput)),
            ("dead", None),
            ("live", Some(ErrorKind::AddrInUse)),
        ] {
            assert_eq!(check(&at(path)).err(), error, "{path}");
            let bound = Listener::bind(&at(path)).err();
            assert_eq!(bound.map(|bound| bound.kind()), error, "{path}");
        }
        let tcp = |address: &str| check(&ListenAddress::Tcp(address.parse().unwrap()));
        assert_eq!(tcp("192.0.2.99:9153"), Err(ErrorKind::AddrNotAvailable));
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap().to_string();
        assert_eq!(tcp(&taken), Err(ErrorKind::AddrInUse));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_can_listen_during_a_check() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let checked = bind_only(address.parse().unwrap()).unwrap();
            let address = rustix::net::getsockname(&checked).unwrap();
            let address = net::SocketAddr::try_from(address).unwrap();
            let _listening = TcpListener::bind(address).unwrap();
            let later = bind_only(address).unwrap_err();
            assert_eq!(later.kind(), ErrorKind::AddrInUse);
        }
    }
}
