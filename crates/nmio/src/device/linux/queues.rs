//! Chooses how many of an interface's queues to serve.
//!
//! Client packets can arrive on any RX queue, so by default the server serves all of them, with one
//! worker each. The user can ask for fewer. The server refuses this if the RSS indirection table
//! may direct packets to the other queues, unless the user accepts their loss (`partial`).

use std::thread;

use crate::device::lines::Lines;
use crate::device::{DeviceError, MAX_QUEUES, Queues};
use crate::sys::{Channels, Control};

/// An interface's queues as its driver reports them, and this host's number of cores.
struct InterfaceQueues<'a> {
    interface: &'a str,
    rx: u32,
    tx: u32,
    /// Numbers of queues as reported by ethtool. `None`: the driver does not report them to
    /// ethtool, so `ethtool -L` cannot change them.
    channels: Option<Channels>,
    is_veth: bool,
    /// The RSS indirection table: the RX queue for each hash value. `None`: the driver does not
    /// report the table.
    indirection_table: Option<Vec<u32>>,
    cores: u32,
}

/// Returns the number of queues to serve, starting with queue 0. Adds lines about the choice to
/// `lines`.
pub(super) fn choose(
    control: &Control,
    interface: &str,
    requested: Queues,
    lines: &mut Lines,
) -> Result<u32, DeviceError> {
    let channels = control.channels(interface);
    let counts = channels
        .map(|channels| (channels.rx, channels.tx))
        .or_else(|| control.listed_queues(interface));
    let Some((rx, tx)) = counts else {
        // If this number is too large, a worker gets an error when it binds to its queue.
        let served = requested.number().unwrap_or(1);
        lines.push((
            "queues",
            format!("{served}; the driver does not report how many {interface} has"),
        ));
        return Ok(served);
    };
    let queues = InterfaceQueues {
        interface,
        rx,
        tx,
        channels,
        is_veth: control.is_veth(interface),
        indirection_table: control.indirection_table(interface),
        cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
    };
    queues.choose(requested, lines)
}

impl InterfaceQueues<'_> {
    fn choose(&self, requested: Queues, lines: &mut Lines) -> Result<u32, DeviceError> {
        let interface = self.interface.to_owned();
        let served = requested.number().unwrap_or(self.rx);
        // Each worker needs an RX queue and a TX queue.
        if requested == Queues::All && self.rx > self.tx {
            return Err(DeviceError::FewTxQueues {
                interface,
                rx: self.rx,
                tx: self.tx,
                remedy: self.resize_command(self.rx),
            });
        }
        let pairs = self.rx.min(self.tx);
        if served > pairs.min(MAX_QUEUES) {
            return Err(DeviceError::TooManyQueues {
                interface,
                asked: served,
                has: pairs,
                remedy: self.resize_command(served.min(MAX_QUEUES)),
            });
        }
        let unserved = self.rx - served;
        if unserved > 0 && matches!(requested, Queues::Exactly(_)) && !self.are_unused_from(served)
        {
            return Err(DeviceError::UnservedQueues {
                interface,
                has: self.rx,
                served,
                remedy: self.resize_command(served),
            });
        }
        lines.push(("queues", format!("{served} of {}", self.rx)));
        if unserved > 0 && self.are_unused_from(served) {
            lines.push((
                "flow table",
                "sends no packets to the unserved queues".to_owned(),
            ));
        } else if unserved > 0 {
            let others = match unserved {
                1 => "the other queue".to_owned(),
                _ => format!("the other {unserved} queues"),
            };
            lines.push((
                "warning",
                format!(
                    "clients whose packets arrive on {others} of {} are not served, because of the \
                     option partial",
                    self.interface
                ),
            ));
        }
        if served > self.cores {
            let advice = format!(
                "{served} workers share {} cores; use fewer queues: {}",
                self.cores,
                self.resize_command(self.cores)
            );
            lines.push(("advice", advice));
        }
        Ok(served)
    }

    /// Returns true if the RSS indirection table is known and directs no packets to queue `first`
    /// or any later queue.
    fn are_unused_from(&self, first: u32) -> bool {
        self.indirection_table
            .as_ref()
            .is_some_and(|table| !table.is_empty() && table.iter().all(|queue| *queue < first))
    }

    /// Returns the command that sets the interface's number of queue pairs to `number`, or explains
    /// why no command can.
    fn resize_command(&self, number: u32) -> String {
        let interface = self.interface;
        match self.channels {
            None => format!("the driver of {interface} cannot change it"),
            Some(channels) if number > channels.max => {
                format!("{interface} can have at most {}", channels.max)
            }
            Some(Channels { combined: true, .. }) => {
                format!("ethtool -L {interface} combined {number}")
            }
            // Native XDP on veth requires at least as many RX queues as the peer has TX queues.
            // Therefore the peer must reduce its TX queues first.
            Some(channels) if self.is_veth && number < channels.rx => format!(
                "ethtool -L PEER tx {number} at the other end, then ethtool -L {interface} rx \
                 {number} tx {number}"
            ),
            Some(_) => format!("ethtool -L {interface} rx {number} tx {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network card with `rx` of its 8 combined queues in use, on a host with 4 cores.
    fn card(rx: u32) -> InterfaceQueues<'static> {
        InterfaceQueues {
            interface: "eth0",
            rx,
            tx: rx,
            channels: Some(Channels {
                rx,
                tx: rx,
                max: 8,
                combined: true,
            }),
            is_veth: false,
            indirection_table: None,
            cores: 4,
        }
    }

    fn choose(queues: &InterfaceQueues<'_>, requested: Queues) -> (Result<u32, String>, Lines) {
        let mut lines = Lines::new();
        let result = queues.choose(requested, &mut lines);
        (result.map_err(|error| error.to_string()), lines)
    }

    fn refusal(queues: &InterfaceQueues<'_>, requested: Queues) -> String {
        choose(queues, requested).0.unwrap_err()
    }

    #[test]
    fn all_queues_are_served_by_default() {
        for rx in [1, 2, 4] {
            let (result, lines) = choose(&card(rx), Queues::All);
            assert_eq!(result, Ok(rx));
            assert_eq!(lines, [("queues", format!("{rx} of {rx}"))]);
        }
    }

    #[test]
    fn more_queues_than_cores_are_served_with_advice() {
        let (result, lines) = choose(&card(8), Queues::All);
        assert_eq!(result, Ok(8));
        let (name, advice) = &lines[1];
        assert_eq!(*name, "advice");
        assert!(
            advice.ends_with("ethtool -L eth0 combined 4") && advice.contains("8 workers"),
            "{advice}"
        );
    }

    #[test]
    fn fewer_queues_are_refused_with_the_command_that_reduces_them() {
        let text = refusal(&card(4), Queues::Exactly(2));
        assert!(text.contains("ethtool -L eth0 combined 2"), "{text}");
        assert!(text.contains("queues=2,partial"), "{text}");
        let veth = InterfaceQueues {
            channels: Some(Channels {
                rx: 4,
                tx: 4,
                max: 4,
                combined: false,
            }),
            is_veth: true,
            ..card(4)
        };
        let text = refusal(&veth, Queues::Exactly(2));
        assert!(text.contains("ethtool -L eth0 rx 2 tx 2"), "{text}");
        assert!(text.contains("ethtool -L PEER tx 2"), "{text}");
    }

    #[test]
    fn fewer_queues_suffice_if_the_flow_table_skips_the_others() {
        let with = |table: &[u32]| InterfaceQueues {
            indirection_table: Some(table.to_vec()),
            ..card(4)
        };
        let (result, lines) = choose(&with(&[0, 1, 0, 1]), Queues::Exactly(2));
        assert_eq!(result, Ok(2));
        assert!(lines.iter().any(|(name, _)| *name == "flow table"));
        assert!(lines.iter().all(|(name, _)| *name != "warning"));
        for others in [&[0, 1, 2, 1][..], &[]] {
            refusal(&with(others), Queues::Exactly(2));
        }
    }

    #[test]
    fn the_partial_option_serves_fewer_queues_with_a_warning() {
        let (result, lines) = choose(&card(4), Queues::Partial(1));
        assert_eq!(result, Ok(1));
        let warning = lines.iter().find(|(name, _)| *name == "warning").unwrap();
        assert!(warning.1.contains("other 3 queues"), "{warning:?}");
        let (_, lines) = choose(&card(2), Queues::Partial(1));
        assert!(lines.iter().any(|(_, value)| {
            value.starts_with("clients whose packets arrive on the other queue of eth0 are")
        }));
        let (result, lines) = choose(&card(4), Queues::Partial(4));
        assert_eq!((result, lines.len()), (Ok(4), 1));
    }

    #[test]
    fn more_queues_than_the_interface_has_are_refused() {
        for requested in [Queues::Exactly(6), Queues::Partial(6)] {
            let text = refusal(&card(4), requested);
            assert!(text.contains("ethtool -L eth0 combined 6"), "{text}");
        }
        let text = refusal(&card(4), Queues::Exactly(9));
        assert!(text.contains("at most 8"), "{text}");
        let fixed = InterfaceQueues {
            channels: None,
            ..card(4)
        };
        let text = refusal(&fixed, Queues::Exactly(5));
        assert!(text.contains("cannot change it"), "{text}");
    }

    #[test]
    fn each_rx_queue_needs_a_tx_queue() {
        let lopsided = InterfaceQueues { tx: 1, ..card(2) };
        let text = refusal(&lopsided, Queues::All);
        assert!(text.contains("ethtool -L eth0 combined 2"), "{text}");
        refusal(&lopsided, Queues::Exactly(2));
        // Additional TX queues are allowed.
        let (result, _) = choose(&InterfaceQueues { tx: 4, ..card(2) }, Queues::All);
        assert_eq!(result, Ok(2));
    }

    #[test]
    fn more_queues_than_the_steering_program_knows_are_refused() {
        let huge = InterfaceQueues {
            channels: Some(Channels {
                rx: 300,
                tx: 300,
                max: 300,
                combined: true,
            }),
            ..card(300)
        };
        let text = refusal(&huge, Queues::All);
        assert!(text.contains("ethtool -L eth0 combined 256"), "{text}");
    }
}
