//! Who may ask for zone transfers.

use std::net::IpAddr;
use std::str::FromStr;

use control::{Prefix, WrongWords};

use crate::name::Name;
use crate::tsig::split_key;

/// Maximum number of rules.
const MAX_RULES: usize = 256;

/// Clients that may ask for zone transfers: those of a network, perhaps only with a certain key.
///
/// ```
/// use namestorm::TransferRule;
///
/// for text in ["192.0.2.53", "2001:db8::/32", "0.0.0.0/0 secondary-key"] {
///     assert!(text.parse::<TransferRule>().is_ok());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRule {
    network: Prefix,
    /// The key that must sign the query.
    key: Option<Name>,
}

impl TransferRule {
    /// Returns the key that must sign the query, if there is one.
    pub(crate) fn key(&self) -> Option<&Name> {
        self.key.as_ref()
    }
}

impl FromStr for TransferRule {
    type Err = WrongWords<String>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut wrong = WrongWords::default();
        let (network, key) = split_key(text, "network", &mut wrong);
        let network = wrong.take(text, network, network.parse());
        wrong.finish(network.map(|network| Self { network, key }))
    }
}

/// The clients that may ask for zone transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferClients(Vec<TransferRule>);

impl TransferClients {
    /// Allows transfers to the clients of each of these rules.
    ///
    /// # Errors
    /// Returns a message for the operator if there are more than 256 rules.
    pub fn new(rules: &[TransferRule]) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!(
                "--allow-transfer has {} networks, but {MAX_RULES} are the maximum: combine them",
                rules.len()
            ));
        }
        Ok(Self(rules.to_vec()))
    }

    /// Returns true if no client may ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this client may ask. `key` is the name of the key that has signed its query, in wire
    /// format, if there is one.
    pub fn contains(&self, client: IpAddr, key: Option<&[u8]>) -> bool {
        let is_signed_by =
            |name: &Name| key.is_some_and(|key| crate::name::eq(key, name.as_wire()));
        self.0
            .iter()
            .any(|rule| rule.network.contains(client) && rule.key.as_ref().is_none_or(is_signed_by))
    }

    /// Returns the number of networks.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the key of each rule.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Option<&Name>> {
        self.0.iter().map(TransferRule::key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_network_and_perhaps_a_key() {
        let rule = |text: &str| text.parse::<TransferRule>();
        assert_eq!(rule("192.0.2.7 \t k."), rule("192.0.2.7 k"));
        assert_eq!(rule("192.0.2.7 "), rule("192.0.2.7"));
        for (text, error) in [
            ("", "give an address"),
            ("192.0.2.7/33 k", "an IPv4 network has"),
            ("192.0.2.7 a..b", "'a..b' is not a domain name"),
            ("192.0.2.7 k1 k2", "give at most one key"),
        ] {
            let found = rule(text).unwrap_err().to_string();
            assert!(found.starts_with(error), "{text}: {found}");
        }
        let all = rule("192.0.2.7/33 a..b k").unwrap_err();
        let places: Vec<_> = all.iter().map(|(at, _)| at).collect();
        assert_eq!(places, [0, 13, 18]);
    }
}
