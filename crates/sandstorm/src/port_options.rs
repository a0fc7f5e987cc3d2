//! The options that the sites of a port share.

use std::net::IpAddr;

use clap::ValueEnum;
use control::ConnectionArgs;

/// What the sites of a port must have in common, because the server decides about a connection before it knows the
/// host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortOptions {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mode: ModeArg,
    pub(crate) connections: ConnectionArgs,
}

/// How packets are sent.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeArg {
    /// Choose at the start: `pre-copy` on AF_XDP if the packets fit into the memory beside the
    /// responses, and `memcopy` otherwise. The start block says which, and why.
    Auto,
    /// Keep the site's packets in the port's memory, and patch them there before they are sent.
    /// This takes one frame of memory per packet.
    PreCopy,
    /// Copy each packet into a free frame to send it.
    #[value(name = "memcopy")]
    MemCopy,
}

impl From<ModeArg> for tcpip::SendMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::PreCopy => Self::PreCopy,
            ModeArg::Auto | ModeArg::MemCopy => Self::MemCopy,
        }
    }
}
