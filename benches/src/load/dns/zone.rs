//! Zones with the names that [`Queries`](super::Queries) ask for.

use std::fs;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use testkit::dnssec::{Denial, Record, sign};

const APEX: &str = "bench.test.";
const TTL: u32 = 300;
const SOA: &str = "ns host 1 7200 3600 1209600 300";
/// Each of so many delegations of a TLD has a DS record, as more than half of those of .nl.
const SECURE: u32 = 2;

/// What a zone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Signed addresses, a wildcard and two DNAMEs, with NSEC records.
    Nsec,
    /// The same, with NSEC3 records.
    Nsec3,
    /// Delegations with DS records, like the root, with NSEC records.
    Root,
    /// Delegations like those of a TLD, with NSEC3 records and opt-out.
    Tld,
    /// Some names of a hoster's customer. The zone has no name of its own, so that it can be served
    /// as many zones.
    Hoster,
}

/// Writes a zone with `names` names, beginning with `host0`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(file: &Path, form: Form, names: u32) -> io::Result<()> {
    fs::write(file, text(form, names))
}

/// Returns the text of a zone with `names` names, beginning with `host0`.
pub(crate) fn text(form: Form, names: u32) -> String {
    let text = match form {
        Form::Nsec => sign(APEX, TTL, &addresses(names), Denial::Nsec),
        Form::Nsec3 => sign(APEX, TTL, &addresses(names), Denial::Nsec3),
        Form::Root => sign(APEX, TTL, &delegations(names, 1), Denial::Nsec),
        Form::Tld => sign(APEX, TTL, &delegations(names, SECURE), Denial::OptOut),
        Form::Hoster => return CUSTOMER.to_owned(),
    };
    format!("$ORIGIN {APEX}\n{text}")
}

/// Zone of a hoster's customer.
const CUSTOMER: &str = "\
$TTL 300
@ SOA ns host 1 7200 3600 1209600 300
@ NS ns.bench.test.
@ A 192.0.2.80
@ AAAA 2001:db8::80
@ MX 10 mail
@ TXT \"v=spf1 mx -all\"
www A 192.0.2.80
www AAAA 2001:db8::80
mail A 192.0.2.25
";

/// Returns the address of a name.
fn address(number: u32) -> String {
    let [_, a, b, c] = number.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

fn record(labels: &str, rtype: &'static str, data: &str) -> Record {
    (format!("{labels}{APEX}"), rtype, data.to_owned())
}

/// Returns the records at the apex of a signed zone. The key is a number, because no server of the
/// comparison verifies signatures.
fn apex() -> Vec<Record> {
    vec![
        record("", "SOA", SOA),
        record("", "NS", "ns"),
        record("", "DNSKEY", &format!("257 3 13 {}", "AQID".repeat(21))),
        record("ns.", "A", "192.0.2.53"),
    ]
}

fn addresses(names: u32) -> Vec<Record> {
    let mut records = apex();
    records.extend([
        record("*.wild.", "A", "192.0.2.54"),
        record("old.", "DNAME", "older"),
        record("older.", "DNAME", APEX),
    ]);
    let hosts = (0..names).map(|n| record(&format!("host{n}."), "A", &address(n)));
    records.extend(hosts);
    records
}

/// Returns delegations to two servers each. One of `secure` delegations has a DS record.
fn delegations(names: u32, secure: u32) -> Vec<Record> {
    let digest = "5a".repeat(32);
    let mut records = apex();
    for number in 0..names {
        let name = format!("host{number}.");
        for server in ["a", "b"] {
            let server = format!("{server}.servers{}.example.", number % 1000);
            records.push(record(&name, "NS", &server));
        }
        if number % secure == 0 {
            records.push(record(
                &name,
                "DS",
                &format!("{} 13 2 {digest}", number % 65536),
            ));
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use namestorm::{Responder, Transport, Zones, compile, load_text, prepare_text};

    use super::super::{Kind, Queries};
    use super::*;
    use crate::load::udp::Questions as _;

    /// Asserts that Namestorm's replies to 1,000 queries pass the generator's checks.
    #[track_caller]
    fn assert_answered(answers: namestorm::Answers, kind: Kind) {
        let mut responder = Responder::new(Arc::new(answers));
        let mut queries = Queries::about(kind, (0..NAMES).cycle().take(1_000), 1);
        if kind.has_versions() {
            queries = queries.of_two_versions();
        }
        for _ in 0..1_000 {
            let (number, message, _) = queries.next();
            let mut message = [&[0x12, 0x34], message].concat();
            let transport = Transport::Udp { link: 1472 };
            let reply = responder.respond(&mut message, transport).unwrap();
            let (head_len, tail, trail) = (reply.head_len, reply.tail.bytes, reply.trail.bytes);
            let reply = [&message[..head_len], tail, trail].concat();
            assert_eq!(queries.check(number, &reply), Ok(()), "{kind:?} {reply:x?}");
        }
    }

    const NAMES: u32 = 50;

    #[test]
    fn every_kind_of_query_has_a_right_reply_from_its_zone() {
        for (form, kinds) in [
            (
                Form::Nsec,
                &[Kind::Signed, Kind::Missing, Kind::Wildcard, Kind::Dname][..],
            ),
            (
                Form::Nsec3,
                &[Kind::Signed, Kind::Missing, Kind::Wildcard, Kind::Dname],
            ),
            (Form::Root, &[Kind::Root]),
            (Form::Tld, &[Kind::Tld]),
        ] {
            let text = text(form, NAMES);
            for &kind in kinds {
                assert_answered(prepare_text(&text, namestorm::Form::Wire).unwrap(), kind);
            }
        }
    }

    #[test]
    fn a_hoster_has_a_zone_for_each_customer() {
        let zone = |number| {
            let origin = format!("$ORIGIN host{number}.bench.test.\n");
            load_text("zone", None, &(origin + CUSTOMER)).unwrap().zone
        };
        let zones = Zones::new((0..NAMES).map(zone).collect()).unwrap();
        let answers = compile(
            &zones,
            namestorm::Form::Wire,
            crate::workload::SECRET,
            &mut |_| {},
        )
        .unwrap();
        assert_answered(answers, Kind::Hoster);
    }
}
