//! The services of a program, and the option or key that sets its port.

use std::collections::HashMap;

use nmio::device::Transport;

use crate::error::Error;

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

/// Returns [`Error::PortZero`] and [`Error::PortTwice`] for each port that cannot be served.
pub(crate) fn wrong_ports(owners: &[PortOwner]) -> Vec<Error> {
    let mut taken: HashMap<(Transport, u16), &PortOwner> = HashMap::new();
    let mut wrong = Vec::new();
    for owner in owners {
        for &(transport, port) in &owner.services {
            if port == 0 {
                let option = owner.option.clone();
                wrong.push(Error::PortZero { option });
            } else if let Some(other) = taken.get(&(transport, port)) {
                wrong.push(Error::PortTwice {
                    programs: [other.program, owner.program],
                    options: [other.option.clone(), owner.option.clone()],
                    transport,
                    port,
                });
            } else {
                taken.insert((transport, port), owner);
            }
        }
    }
    wrong
}
