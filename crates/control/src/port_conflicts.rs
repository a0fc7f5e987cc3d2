//! Ports that several programs want, or that nobody can serve.

use std::collections::HashMap;

use nmio::device::Transport;

use crate::error::Error;
use crate::port_owner::PortOwner;

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
