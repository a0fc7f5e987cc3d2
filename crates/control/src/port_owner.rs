//! The services of a program, and the option or key that sets its port.

use nmio::device::Transport;

/// The option that sets the port of a program, or of the first of several programs.
pub(crate) const PORT_OPTION: &str = "--port";

/// The key that sets the port of a site. Messages about the ports of several sites name it.
pub(crate) const PORT_KEY: &str = "port";

/// The services of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOwner {
    /// The program's name.
    pub program: &'static str,
    /// The option that sets the program's port, such as `--port`.
    pub option: String,
    /// The services, as [`Program::services`](crate::Program::services) returns them.
    pub services: Vec<(Transport, u16)>,
}
