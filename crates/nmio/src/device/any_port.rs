//! A port of any kind.

use std::io;
use std::time::Duration;

use super::{NewQueue, PacketMemory};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::netmap::NetmapPort;
use crate::port::{Batch, Capabilities, Port, PortCounters, PortHints, PortLevels, SendError};
use crate::super_segment::SuperSegment;
#[cfg(target_os = "linux")]
use crate::{tap::TapPort, xdp::XdpPort};

/// A port whose kind is known only at run time.
///
/// Call [`visit`](Self::visit) once, outside the main loop, so that the compiler specializes the
/// loop for each fast kind of port.
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

    /// Does the work with a fast port.
    fn visit<P: Port>(self, port: P) -> Self::Output;

    /// Does the work with a port of any kind, with one loop for all kinds. A port that makes a system
    /// call for each packet would gain nothing from a loop of its own.
    fn visit_any(self, port: AnyPort) -> Self::Output
    where
        Self: Sized,
    {
        self.visit(port)
    }
}

/// Evaluates `$result`, in which `$port` is the port, for each kind of port.
macro_rules! with_port {
    ($any:expr, $port:ident => $result:expr) => {
        match $any {
            AnyPort::Netmap($port) => $result,
            #[cfg(target_os = "linux")]
            AnyPort::Xdp($port) => $result,
            #[cfg(target_os = "linux")]
            AnyPort::Tap($port) => $result,
        }
    };
}

impl AnyPort {
    /// Passes the port to `visitor`, which gets a fast port as its own type.
    ///
    /// Builds with debug assertions are not fast anyway. There, one loop serves every kind of port,
    /// which compiles in a third of the time.
    pub fn visit<V: PortVisitor>(self, visitor: V) -> V::Output {
        #[cfg(debug_assertions)]
        return visitor.visit_any(self);
        #[cfg(not(debug_assertions))]
        match self {
            Self::Netmap(port) => visitor.visit(port),
            #[cfg(target_os = "linux")]
            Self::Xdp(port) => visitor.visit(port),
            #[cfg(target_os = "linux")]
            Self::Tap(_) => visitor.visit_any(self),
        }
    }

    /// Describes the port's actual settings for people, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        with_port!(self, port => port.summary())
    }
}

/// Each call finds out the kind of port. Use this where speed does not matter, because the compiler
/// then makes the loop only once.
impl Port for AnyPort {
    fn capabilities(&self) -> Capabilities {
        with_port!(self, port => port.capabilities())
    }

    fn pool(&self) -> &Pool {
        with_port!(self, port => port.pool())
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        with_port!(self, port => port.receive(batch, limit))
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        with_port!(self, port => port.send(frame))
    }

    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        with_port!(self, port => port.send_resident(packet))
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        with_port!(self, port => port.send_super(packet))
    }

    fn room(&mut self) -> usize {
        with_port!(self, port => port.room())
    }

    fn flush(&mut self) -> io::Result<bool> {
        with_port!(self, port => port.flush())
    }

    fn hints(&self) -> PortHints {
        with_port!(self, port => port.hints())
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        with_port!(self, port => port.wait(timeout, bell))
    }

    fn poll_device(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        with_port!(self, port => port.poll_device(timeout, bell))
    }

    fn attach(&mut self, queue: NewQueue) -> io::Result<()> {
        with_port!(self, port => port.attach(queue))
    }

    fn shared_memory(&self) -> Option<PacketMemory> {
        with_port!(self, port => port.shared_memory())
    }

    fn counters(&self) -> PortCounters {
        with_port!(self, port => port.counters())
    }

    fn levels(&self) -> PortLevels {
        with_port!(self, port => port.levels())
    }
}
