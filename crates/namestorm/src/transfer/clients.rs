//! Who may ask for zone transfers.

use std::net::IpAddr;

use control::Prefix;

/// Maximum number of networks.
const MAX_NETWORKS: usize = 256;

/// The clients that may ask for zone transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferClients(Vec<Prefix>);

impl TransferClients {
    /// Allows transfers to the clients in these networks.
    ///
    /// # Errors
    /// Returns a message for the operator if there are more than 256 networks.
    pub fn new(networks: &[Prefix]) -> Result<Self, String> {
        if networks.len() > MAX_NETWORKS {
            return Err(format!(
                "--allow-transfer has {} networks, but {MAX_NETWORKS} are the maximum: combine them",
                networks.len()
            ));
        }
        Ok(Self(networks.to_vec()))
    }

    /// Returns true if no client may ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this client may ask.
    pub fn contains(&self, client: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(client))
    }

    /// Returns the number of networks.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
