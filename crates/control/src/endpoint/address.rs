//! Where an endpoint listens.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address on which the control thread listens with a socket of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Parses `9153`, `[::1]:9153`, `192.0.2.1:9153`, `unix:PATH` or an absolute path. A port alone is on
/// 127.0.0.1.
impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let address = match text.parse::<u16>() {
            Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            Err(_) => text.parse().map_err(|_| FORM)?,
        };
        if address.port() == 0 {
            return Err("port 0 cannot be found by a client; give a port from 1 to 65535");
        }
        Ok(Self::Tcp(address))
    }
}

const FORM: &str =
    "give a port, such as 9153, an address with a port, such as [::1]:9153, or unix:PATH";

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The Unix socket for the commands that control a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlSocket {
    /// There is none.
    Off,
    /// A socket at this path.
    At(PathBuf),
}

impl FromStr for ControlSocket {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "" => Err("give the path of a socket, or off"),
            path => Ok(Self::At(path.into())),
        }
    }
}

/// Returns the paths at which a program's control socket may be by default. The first one that can be
/// used counts. A user who is not root has a folder of the system for the time of a session. A service
/// has none, but its service manager makes one in `/run`.
pub(crate) fn default_sockets(program: &str) -> Vec<PathBuf> {
    let in_folder = |folder: &str| Path::new(folder).join(program).join("control.sock");
    let user = rustix::process::geteuid();
    let own = (!user.is_root()).then(|| in_folder(&format!("/run/user/{}", user.as_raw())));
    own.into_iter().chain([in_folder("/run")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_the_loopback_address() {
        let parse = |text: &str| text.parse::<ListenAddress>();
        let shown = |text| parse(text).unwrap().to_string();
        assert_eq!(shown("9153"), "127.0.0.1:9153");
        assert_eq!(shown("[::1]:80"), "[::1]:80");
        assert_eq!(shown("/run/a b"), "unix:/run/a b");
        assert_eq!(shown("unix:metrics"), "unix:metrics");
        for wrong in ["", "unix:", "localhost:80", "::1:80:", "70000", "1.2.3.4"] {
            assert_eq!(parse(wrong), Err(FORM), "{wrong}");
        }
        assert!(parse("0").unwrap_err().contains("port 0"));
        assert!(parse("[::]:0").unwrap_err().contains("port 0"));
    }

    #[test]
    fn the_control_socket_can_be_off() {
        assert_eq!("off".parse(), Ok(ControlSocket::Off));
        assert_eq!("./off".parse(), Ok(ControlSocket::At("./off".into())));
        assert!("".parse::<ControlSocket>().is_err());
    }
}
