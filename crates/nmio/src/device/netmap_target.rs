//! What a netmap port is connected to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ParseDeviceError;
use super::interface_name::interface_name;

/// Maximum length of the name of a netmap port, in bytes: `NETMAP_REQ_IFNAMSIZ` minus the
/// terminating zero.
const MAX_NAME: usize = netmap_sys::NETMAP_REQ_IFNAMSIZ - 1;
/// Start of the names of VALE switches.
const SWITCH: &str = "vale";

/// What a netmap port is connected to. Each holds its name in netmap's notation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetmapTarget {
    /// A network interface, whose packets then bypass the kernel.
    Interface(String),
    /// A VALE switch, which netmap emulates: `valeX:Y` is port `Y` of switch `valeX`. The port is
    /// created if it does not exist.
    Switch(String),
    /// One end of a pipe: `NAME{N` or `NAME}N`. The other end has the other bracket.
    Pipe(String),
}

impl NetmapTarget {
    /// Parses the name of a port.
    ///
    /// # Errors
    /// A [`ParseDeviceError`] that says which part of the name is wrong.
    pub(super) fn parse(name: &str) -> Result<Self, ParseDeviceError> {
        let wrong = || ParseDeviceError::NetmapName(name.to_owned());
        if name.contains('/') {
            return Err(ParseDeviceError::NetmapMonitor(name.to_owned()));
        }
        let is_word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b':')
        };
        if name.len() > MAX_NAME {
            return Err(wrong());
        }
        if let Some((parent, id)) = name.rsplit_once(['{', '}']) {
            // The parent may be an interface or a port of a switch.
            let parent = parent
                .strip_prefix(SWITCH)
                .and_then(|rest| rest.split_once(':'))
                .map_or(is_word(parent), |(switch, port)| {
                    (switch.is_empty() || is_word(switch)) && is_word(port)
                });
            return if parent && is_word(id) {
                Ok(Self::Pipe(name.to_owned()))
            } else {
                Err(wrong())
            };
        }
        match name.split_once(':') {
            Some((switch, port))
                if switch.starts_with(SWITCH) && is_word(switch) && is_word(port) =>
            {
                Ok(Self::Switch(name.to_owned()))
            }
            Some(_) => Err(wrong()),
            None => interface_name(name).map(Self::Interface),
        }
    }

    /// Returns the name in netmap's notation.
    pub fn name(&self) -> &str {
        match self {
            Self::Interface(name) | Self::Switch(name) | Self::Pipe(name) => name,
        }
    }
}

impl fmt::Display for NetmapTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_port_is_recognised() {
        use NetmapTarget::{Interface, Pipe, Switch};
        for (name, kind) in [
            ("eth0", Interface as fn(String) -> NetmapTarget),
            ("vale0", Interface),
            ("vale0:1", Switch),
            ("vale:srv", Switch),
            ("valeabc:x.y", Switch),
            ("pipe{1", Pipe),
            ("pipe}1", Pipe),
            ("eth0{a", Pipe),
            ("vale0:1{7", Pipe),
        ] {
            assert_eq!(
                NetmapTarget::parse(name),
                Ok(kind(name.to_owned())),
                "{name}"
            );
        }
    }

    #[test]
    fn other_names_are_refused() {
        let long = format!("vale0:{}", "x".repeat(60));
        for name in [
            "", "x:1", "vale0:", ":1", "{1", "pipe{", "a b{1", "va le:1", "x:y{1", &long,
        ] {
            let error = NetmapTarget::parse(name).unwrap_err();
            assert!(
                matches!(
                    error,
                    ParseDeviceError::NetmapName(_) | ParseDeviceError::Name(_)
                ),
                "{name}: {error}"
            );
        }
        for name in ["eth0/r", "vale0:1/rt", "pipe{1/z"] {
            assert_eq!(
                NetmapTarget::parse(name),
                Err(ParseDeviceError::NetmapMonitor(name.to_owned()))
            );
        }
    }
}
