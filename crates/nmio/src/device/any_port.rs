//! A port of any kind.

use crate::netmap::NetmapPort;
use crate::port::Port;
#[cfg(target_os = "linux")]
use crate::{tap::TapPort, xdp::XdpPort};

/// A port whose kind is known only at run time.
///
/// Call [`visit`](Self::visit) once, outside the main loop, so that the compiler specializes the
/// loop for each kind of port.
// The size difference between the variants does not matter, because each thread creates only one
// port.
#[allow(clippy::large_enum_variant)]
pub enum AnyPort {
    /// A ring pair of a netmap port.
    Netmap(NetmapPort),
    /// An `AF_XDP` port.
    #[cfg(target_os = "linux")]
    Xdp(XdpPort),
    /// A tap device's port.
    #[cfg(target_os = "linux")]
    Tap(TapPort),
}

/// Work with a port, written once for all kinds of port.
pub trait PortVisitor {
    /// The result of the work.
    type Output;

    /// Does the work with `port`.
    fn visit<P: Port>(self, port: P) -> Self::Output;
}

impl AnyPort {
    /// Passes the port to `visitor`.
    pub fn visit<V: PortVisitor>(self, visitor: V) -> V::Output {
        match self {
            Self::Netmap(port) => visitor.visit(port),
            #[cfg(target_os = "linux")]
            Self::Xdp(port) => visitor.visit(port),
            #[cfg(target_os = "linux")]
            Self::Tap(port) => visitor.visit(port),
        }
    }

    /// Describes the port's actual settings for people, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        match *self {
            Self::Netmap(ref port) => port.summary(),
            #[cfg(target_os = "linux")]
            Self::Xdp(ref port) => port.summary(),
            #[cfg(target_os = "linux")]
            Self::Tap(ref port) => port.summary(),
        }
    }
}
