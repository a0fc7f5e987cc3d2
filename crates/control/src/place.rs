//! Where programs and sites are served.

use std::net::{IpAddr, SocketAddr};

use nmio::device::Transport;

use crate::status::PlaceStatus;

/// Where a program, or one of its sites, is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The program's name.
    pub program: &'static str,
    /// The site, if the program has several, or if the site has addresses of its own.
    pub site: Option<String>,
    /// The addresses of the site. Empty for all addresses of the server.
    pub addresses: Vec<IpAddr>,
    /// The services, as [`Program::services`](crate::Program::services) returns them.
    pub services: Vec<(Transport, u16)>,
}

impl Place {
    /// Describes the place while the server has the addresses `served`.
    pub(crate) fn among(&self, served: &[IpAddr]) -> PlaceStatus {
        let mut ports: Vec<u16> = self.services.iter().map(|(_, port)| *port).collect();
        ports.sort_unstable();
        ports.dedup();
        let is_here = |one: &&IpAddr| self.addresses.is_empty() || self.addresses.contains(one);
        let addresses = served.iter().filter(is_here);
        let pairs = addresses.flat_map(|address| {
            let ports = ports.iter();
            ports.map(|port| SocketAddr::new(*address, *port).to_string())
        });
        PlaceStatus {
            program: self.program.to_owned(),
            site: self.site.clone(),
            at: pairs.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_each_pair_of_an_address_and_a_port_once() {
        let served = ["192.0.2.1", "2001:db8::1", "192.0.2.2"].map(|a| a.parse().unwrap());
        let mut place = Place {
            program: "dns",
            site: None,
            addresses: Vec::new(),
            services: vec![(Transport::Udp, 53), (Transport::Tcp, 53)],
        };
        let all = ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"];
        assert_eq!(place.among(&served).at, all);
        assert_eq!(place.among(&served).site_line(), None);
        place.site = Some("a".to_owned());
        place.addresses = vec![served[1], "192.0.2.9".parse().unwrap()];
        let line = place.among(&served).site_line();
        assert_eq!(line.as_deref(), Some("a: [2001:db8::1]:53"));
        let line = place.among(&[]).site_line();
        assert_eq!(line.as_deref(), Some("a: no address"));
    }
}
