//! Which connections a list has.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use tcpip::{Overview, State};

use crate::prefix::Prefix;
use crate::units::number;

/// The options that choose connections. A connection must match all that are given.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Only the connections of clients with this address, or in this network: ADDRESS or
    /// ADDRESS/BITS.
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    peer: Option<Prefix>,

    /// Only connections with this port on either side.
    // The programs change the help of the option of `serve` that has the id `port`.
    #[arg(id = "port_of_either", long = "port", value_name = "PORT", value_parser = number::<u16>(1..=u16::MAX))]
    port: Option<u16>,

    /// Only connections in this state.
    #[arg(long, value_enum)]
    state: Option<StateName>,
}

impl ConnectionFilter {
    /// Chooses only the connections of clients in this network.
    #[must_use]
    pub fn with_peer(self, peer: Prefix) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }

    /// Chooses only connections with this port on either side.
    #[must_use]
    pub fn with_port(self, port: u16) -> Self {
        Self {
            port: Some(port),
            ..self
        }
    }

    /// Chooses only connections in this state.
    #[must_use]
    pub fn with_state(self, state: State) -> Self {
        Self {
            state: Some(state.into()),
            ..self
        }
    }

    pub(crate) fn matches(&self, connection: &Overview) -> bool {
        let Overview { peer, local, .. } = connection;
        self.peer.is_none_or(|prefix| prefix.contains(peer.ip()))
            && self
                .port
                .is_none_or(|port| peer.port() == port || local.port() == port)
            && self
                .state
                .is_none_or(|state| state == connection.info.state.into())
    }

    /// Returns the filter as the query of a URL, with an `&` at the end unless it is empty.
    pub(crate) fn to_query(&self) -> String {
        let mut query = String::new();
        // Writing to a string cannot fail.
        if let Some(peer) = self.peer {
            let _ = write!(query, "peer={peer}&");
        }
        if let Some(port) = self.port {
            let _ = write!(query, "port={port}&");
        }
        if let Some(state) = self.state {
            let _ = write!(query, "state={}&", state.name());
        }
        query
    }

    /// Sets the part of the filter with this name.
    ///
    /// # Errors
    /// `None` if there is no such part, and the rule for the value if that cannot be understood.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Option<String>> {
        match name {
            "peer" => self.peer = Some(value.parse()?),
            "port" => self.port = Some(number(1..=u16::MAX)(value)?),
            "state" => self.state = Some(StateName::from_str(value, false).map_err(|_| states())?),
            _ => return Err(None),
        }
        Ok(())
    }
}

/// The states of a connection, with the names that `ss` uses.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateName {
    SynRecv,
    Established,
    CloseWait,
    #[value(name = "fin-wait-1")]
    FinWait1,
    #[value(name = "fin-wait-2")]
    FinWait2,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl From<State> for StateName {
    fn from(state: State) -> Self {
        match state {
            State::Closed => Self::Closed,
            State::SynReceived => Self::SynRecv,
            State::Established => Self::Established,
            State::CloseWait => Self::CloseWait,
            State::FinWait1 => Self::FinWait1,
            State::FinWait2 => Self::FinWait2,
            State::Closing => Self::Closing,
            State::LastAck => Self::LastAck,
            State::TimeWait => Self::TimeWait,
        }
    }
}

impl StateName {
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The rule for a state in a query.
fn states() -> String {
    let names: Vec<_> = StateName::value_variants()
        .iter()
        .map(|state| state.name())
        .collect();
    format!("give one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::walk::example;

    fn filter(parts: &[(&str, &str)]) -> ConnectionFilter {
        let mut filter = ConnectionFilter::default();
        for (name, value) in parts {
            filter.set(name, value).unwrap();
        }
        filter
    }

    #[test]
    fn a_connection_must_match_all_parts() {
        let mut connection = example("192.0.2.7:5000");
        connection.info.state = State::FinWait2;
        for (parts, expected) in [
            (&[][..], true),
            (&[("peer", "192.0.2.7")], true),
            (&[("peer", "192.0.2.6")], false),
            (&[("peer", "192.0.2.0/29")], true),
            (&[("peer", "192.0.2.8/29")], false),
            (&[("peer", "0.0.0.0/0")], true),
            (&[("peer", "::/0")], false),
            (&[("port", "5000")], true),
            (&[("port", "80")], true),
            (&[("port", "81")], false),
            (&[("state", "fin-wait-2")], true),
            (&[("state", "established")], false),
            (&[("state", "fin-wait-2"), ("port", "81")], false),
        ] {
            assert_eq!(filter(parts).matches(&connection), expected, "{parts:?}");
        }
        let connection = example("[2001:db8::1]:5000");
        assert!(filter(&[("peer", "2001:db8::/32")]).matches(&connection));
        assert!(!filter(&[("peer", "2001:db9::/32")]).matches(&connection));
    }

    #[test]
    fn a_query_has_the_whole_filter() {
        let parts = [
            ("peer", "2001:db8::/32"),
            ("port", "7"),
            ("state", "last-ack"),
        ];
        let all = filter(&parts);
        assert_eq!(all.to_query(), "peer=2001:db8::/32&port=7&state=last-ack&");
        assert!(ConnectionFilter::default().to_query().is_empty());
        for (name, value) in [
            ("peer", "localhost"),
            ("peer", "192.0.2.1/33"),
            ("peer", "::1/129"),
            ("port", "http"),
            ("port", "0"),
            ("state", "open"),
        ] {
            let refused = ConnectionFilter::default().set(name, value).unwrap_err();
            assert!(refused.is_some(), "{name}={value}");
        }
        assert_eq!(ConnectionFilter::default().set("color", "red"), Err(None));
        let states = ConnectionFilter::default()
            .set("state", "open")
            .unwrap_err()
            .unwrap();
        assert!(
            states.starts_with("give one of syn-recv, established, "),
            "{states}"
        );
    }
}
