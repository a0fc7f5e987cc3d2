//! Checks that the records of an RRset fit one message.

use crate::dnssec;
use crate::edns::OPT_LEN;
use crate::name::{self, Shown};
use crate::report::Report;
use crate::rtype::{self, RRSIG};
use crate::tail::{
    Base, FIELDS, MAX_TCP_MESSAGE, POINTER, QUESTION_AT, QUESTION_REST, TailWriter, TooLong,
};
use crate::zone::{NameRef, NameStatus, RrsetRef};

/// Reports an RRset that does not fit the longest message with its signatures.
pub(super) fn check(name: NameRef<'_>, rrset: RrsetRef<'_>, report: &mut Report) {
    let base = match name.status() {
        NameStatus::Cut => Base::Above,
        _ if name::is_wildcard(name.owner()) => Base::Wildcard,
        _ => Base::Exact,
    };
    let qname = match base {
        Base::Exact => name.owner().len(),
        // The qname may have more labels.
        Base::Above | Base::Wildcard => name::MAX_NAME,
    };
    let room = MAX_TCP_MESSAGE - (QUESTION_AT + qname + QUESTION_REST + OPT_LEN);
    let uncompressed = |(_, data): (u16, &[u8])| POINTER + FIELDS + data.len();
    let most: usize = records(name, rrset).map(uncompressed).sum();
    if most > room && written(name, rrset, base).is_none_or(|len| len > room) {
        report.error(
            rrset.place(),
            format!(
                "the {} records of {} do not fit one message of {MAX_TCP_MESSAGE} bytes; remove some",
                rtype::show(rrset.rtype()),
                Shown(name.owner())
            ),
        );
    }
}

/// Returns the types and the data of an RRset's records and of their signatures.
fn records<'z>(name: NameRef<'z>, rrset: RrsetRef<'z>) -> impl Iterator<Item = (u16, &'z [u8])> {
    let rtype = rrset.rtype();
    let signatures = dnssec::signatures(name, rtype).map(|data| (RRSIG, data));
    rrset
        .data()
        .map(move |data| (rtype, data))
        .chain(signatures)
}

/// Returns the length of an RRset in a message, in bytes. Returns `None` if no message is so long.
fn written(name: NameRef<'_>, rrset: RrsetRef<'_>, base: Base) -> Option<usize> {
    let mut writer = TailWriter::new();
    writer.start(name.owner(), base);
    let mut records = records(name, rrset);
    let whole: Result<(), TooLong> =
        records.try_for_each(|(rtype, data)| writer.record(name.owner(), rtype, rrset.ttl(), data));
    whole.ok().map(|()| writer.bytes().len())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Arc;

    use crate::key::Form;
    use crate::load::load_text;
    use crate::respond::{Responder, Transport};
    use crate::{name, prepare_text};

    /// Returns a zone in which `owner` has this number of records, each with the data that `data` returns.
    fn zone(owner: &str, count: u32, data: impl Fn(u32) -> String) -> String {
        let mut text =
            "$ORIGIN example.org.\n$TTL 60\n@ SOA ns.far.net. h 1 2 3 4 5\n@ NS ns.far.net.\n"
                .to_owned();
        for number in 0..count {
            writeln!(text, "{owner} {}", data(number)).unwrap();
        }
        text
    }

    fn address(number: u32) -> String {
        format!(
            "A 10.{}.{}.{}",
            number >> 16,
            number >> 8 & 255,
            number & 255
        )
    }

    /// Returns the number of records in the answer to a query with EDNS over TCP.
    fn answers(zone: &str, owner: &str, qtype: u16) -> u16 {
        let answers = prepare_text(zone, Form::Wire).unwrap();
        let mut responder = Responder::new(Arc::new(answers));
        let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        query.extend(name::parse(owner).unwrap());
        query.extend(qtype.to_be_bytes());
        query.extend(b"\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0");
        let reply = responder.respond(&mut query, Transport::Tcp).unwrap();
        assert!(reply.len() <= 65_535 && query[2] & 2 == 0);
        u16::from_be_bytes([query[6], query[7]])
    }

    /// Checks that `most` records are served at `owner`, and that one more is refused.
    fn check(owner: &str, most: u32, (qname, qtype): (&str, u16), data: impl Fn(u32) -> String) {
        let largest = zone(owner, most, &data);
        assert_eq!(u32::from(answers(&largest, qname, qtype)), most);
        let Err(refused) = load_text("f", None, &zone(owner, most + 1, &data)) else {
            panic!("{owner}");
        };
        let refused = refused.to_string();
        assert!(
            refused.contains("do not fit one message of 65535 bytes; remove some"),
            "{refused}"
        );
    }

    #[test]
    fn an_rrset_may_fill_the_longest_message() {
        // Around the records of 16 bytes, there are 12 + 17 + 4 + 11 bytes.
        check("big", 4_093, ("big.example.org", 1), address);
        // The qname may have 255 bytes.
        let label = "x".repeat(59);
        let longest = format!("{label}.{label}.{label}.{label}.w.example.org");
        assert_eq!(name::parse(&longest).unwrap().len(), 255);
        check("*.w", 4_078, (&longest, 1), address);
        // Compressed names count as they are.
        let exchange = |number| format!("MX {number} x.{}.far.net.", "y".repeat(60));
        check("mx", 4_088, ("mx.example.org", 15), exchange);
    }
}
