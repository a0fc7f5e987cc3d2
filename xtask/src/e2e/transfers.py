"""Transfers zones with dnspython. Asks for each of their RRsets over UDP and TCP, and compares the answers.

Arguments: the address of the server, and the names of the zones."""

import sys

import dns.message
import dns.query
import dns.rdataclass
import dns.rdatatype
import dns.zone

TIMEOUT = 5
# Proofs and signatures are in answers to other questions.
UNASKED = {dns.rdatatype.RRSIG, dns.rdatatype.NSEC, dns.rdatatype.NSEC3}


def is_hidden(zone, name, rdtype):
    """Returns true if a delegation or a DNAME hides the RRset from queries."""
    above = name
    while above != zone.origin:
        has = lambda kind: zone.get_rdataset(above, kind) is not None
        if has(dns.rdatatype.NS) and not (above == name and rdtype == dns.rdatatype.DS):
            return True
        if has(dns.rdatatype.DNAME) and above != name:
            return True
        above = above.parent()
    return False


def compare(reply, zone, name, rdataset):
    """Fails if the reply has another RRset than the zone, or other signatures."""
    of_types = [(rdataset.rdtype, dns.rdatatype.NONE), (dns.rdatatype.RRSIG, rdataset.rdtype)]
    for rdtype, covers in of_types:
        found = reply.get_rrset(reply.answer, name, dns.rdataclass.IN, rdtype, covers)
        expected = zone.get_rdataset(name, rdtype, covers)
        same = found is None if expected is None else found is not None and set(found) == set(expected)
        if not same or (expected and found.ttl != expected.ttl):
            sys.exit(f"{name} {dns.rdatatype.to_text(rdtype)}: {expected} in the zone, but\n{reply}")


def check(server, origin):
    """Checks a zone. Returns the number of RRsets that were asked for."""
    messages = dns.query.xfr(server, origin, relativize=False, timeout=TIMEOUT)
    zone = dns.zone.from_xfr(messages, relativize=False)
    asked = 0
    for name, rdataset in zone.iterate_rdatasets():
        if rdataset.rdtype in UNASKED or is_hidden(zone, name, rdataset.rdtype):
            continue
        query = dns.message.make_query(name, rdataset.rdtype, want_dnssec=True)
        over_udp, _ = dns.query.udp_with_fallback(query, server, timeout=TIMEOUT)
        compare(over_udp, zone, name, rdataset)
        compare(dns.query.tcp(query, server, timeout=TIMEOUT), zone, name, rdataset)
        asked += 1
    return asked


if __name__ == "__main__":
    server, *zones = sys.argv[1:]
    print(sum(check(server, origin) for origin in zones))
