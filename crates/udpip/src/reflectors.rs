//! Source ports of services that answer any datagram, and so also our answer. A forged datagram from such
//! a port would make the two servers answer each other for ever (CERT advisory CA-1996-01).

/// The first port that systems give to clients. Those below it belong to services.
const FIRST_CLIENT_PORT: u16 = 1024;

const ECHO: u16 = 7;
const DAYTIME: u16 = 13;
const QUOTE_OF_THE_DAY: u16 = 17;
const CHARGEN: u16 = 19;
const TIME: u16 = 37;
/// Older servers that change passwords of Kerberos answer malformed requests with an error.
const KPASSWD: u16 = 464;
/// Servers with UDP answer each message that they do not understand with an error. Resolvers do not send
/// from this port.
const MEMCACHED: u16 = 11_211;

/// Returns true if the port must be checked with [`is_reflector`]. Nearly all clients have other ports.
#[inline(always)]
pub(crate) fn is_suspect(port: u16) -> bool {
    port < FIRST_CLIENT_PORT || port == MEMCACHED
}

/// Returns true if the service at this port answers any datagram.
///
/// A DNS server (53) does not answer an answer. Servers of NTP, SNMP, CLDAP and SSDP answer only requests
/// in their own form, so no loop arises there.
pub(crate) fn is_reflector(port: u16) -> bool {
    matches!(
        port,
        ECHO | DAYTIME | QUOTE_OF_THE_DAY | CHARGEN | TIME | KPASSWD | MEMCACHED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reflector_is_suspect() {
        let reflectors: Vec<_> = (0..=u16::MAX).filter(|port| is_reflector(*port)).collect();
        assert_eq!(reflectors, [7, 13, 17, 19, 37, 464, 11_211]);
        assert!(reflectors.into_iter().all(is_suspect));
        let suspects: Vec<_> = (0..=u16::MAX).filter(|port| is_suspect(*port)).collect();
        assert_eq!(suspects, [(0..1024).collect(), vec![11_211]].concat());
    }
}
