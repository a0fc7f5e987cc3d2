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

    /// Returns the longest name below another one.
    fn longest_below(name: &str) -> String {
        let label = "x".repeat(59);
        let longest = format!("{label}.{label}.{label}.{label}.{name}");
        assert_eq!(name::parse(&longest).unwrap().len(), 255);
        longest
    }

    /// Returns the number of records in the answer to a query with EDNS over TCP.
    fn answers(zone: &str, owner: &str, qtype: u16) -> u16 {
        counts(zone, owner, qtype, 0)[0]
    }

    /// Returns the number of records in each section of the reply to a query over TCP. The query's OPT record
    /// has these flags, and the reply must have NOERROR.
    fn counts(zone: &str, owner: &str, qtype: u16, flags: u8) -> [u16; 3] {
        let (is_truncated, counts) = reply(zone, owner, qtype, flags, 0);
        assert!(!is_truncated);
        counts
    }

    /// Like [`counts`], for a reply that leaves this number of bytes free. Also returns whether it is truncated.
    fn reply(zone: &str, owner: &str, qtype: u16, flags: u8, free: usize) -> (bool, [u16; 3]) {
        let answers = prepare_text(zone, Form::Wire).unwrap();
        let mut responder = Responder::new(Arc::new(answers));
        let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        query.extend(name::parse(owner).unwrap());
        query.extend(qtype.to_be_bytes());
        query.extend([0, 1, 0, 0, 41, 4, 208, 0, 0, flags, 0, 0, 0]);
        responder.begin_signed(true, free);
        let reply = responder.respond(&mut query, Transport::Tcp).unwrap();
        assert!(reply.len() + free <= 65_535 && query[3] == 0);
        let counts = [6, 8, 10].map(|at| u16::from_be_bytes([query[at], query[at + 1]]));
        (query[2] & 2 != 0, counts)
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
        check("*.w", 4_078, (&longest_below("w.example.org"), 1), address);
        // Compressed names count as they are.
        let exchange = |number| format!("MX {number} x.{}.far.net.", "y".repeat(60));
        check("mx", 4_088, ("mx.example.org", 15), exchange);
    }
    /// Returns a zone with signatures of these records at the name `*.w`.
    fn signed(wildcard: &str, rtype: &str) -> String {
        let times = "60 20400101000000 20200101000000 1 example.org. QQ==";
        format!(
            "{wildcard}@ NSEC *.w NS SOA RRSIG NSEC\n@ RRSIG SOA 13 2 {times}\n@ RRSIG NSEC 13 2 {times}\n\
             *.w NSEC @ {rtype} RRSIG NSEC\n*.w RRSIG {rtype} 13 3 {times}\n*.w RRSIG NSEC 13 3 {times}\n"
        )
    }

    #[test]
    fn a_signed_wildcard_beyond_the_reach_of_pointers_is_served() {
        let longest = longest_below("w.example.org");
        for count in [1_000, 1_200, 3_000] {
            let exchange = |number| format!("MX {number} x.far.net.");
            let zone = signed(&zone("*.w", count, exchange), "MX");
            assert_eq!(counts(&zone, &longest, 15, 0x80), [count as u16 + 1, 2, 1]);
        }
    }

    #[test]
    fn several_rrsets_leave_room_for_the_longest_qname() {
        let longest = longest_below("w.example.org");
        // The addresses are 400 bytes, and the text is 65,036.
        let text = format!("*.w TXT{}\n", format!(" {}", "y".repeat(255)).repeat(254));
        let wildcard = zone("*.w", 25, address) + &text;
        assert_eq!(counts(&wildcard, &longest, 255, 0), [25, 0, 1]);
        assert_eq!(counts(&wildcard, &longest, 16, 0), [1, 0, 1]);
        assert_eq!(counts(&wildcard, "*.w.example.org", 255, 0), [25, 0, 1]);
        let signed = signed(&wildcard, "A");
        assert_eq!(counts(&signed, &longest, 255, 0x80), [26, 2, 1]);
        assert_eq!(counts(&signed, &longest, 255, 0), [25, 0, 1]);
        let mut glue = zone("ns.w", 4_000, address) + "w NS ns.w\n";
        (0..45).for_each(|number| writeln!(glue, "ns.w AAAA 2001:db8::{number}").unwrap());
        assert_eq!(counts(&glue, &longest, 1, 0), [0, 1, 4_001]);
    }

    /// RFC 4035, sections 3.1.3.3 and 3.1.4.1: the answer of a wildcard has a proof, as has an unsigned
    /// delegation.
    #[test]
    fn several_rrsets_leave_room_for_proofs() {
        let longest = longest_below("w.example.org");
        // With the longer text there is room for the addresses, but not for the proof too.
        for (count, last, expected) in [(250, 248, [27, 2, 1]), (251, 92, [26, 2, 1])] {
            let text = format!(" {}", "y".repeat(255)).repeat(count);
            let text = format!("*.w TXT {}{text}\n", "y".repeat(last));
            let signed = signed(&(zone("*.w", 25, address) + &text), "A");
            assert_eq!(counts(&signed, &longest, 255, 0x80), expected);
            assert_eq!(counts(&signed, "x.w.example.org", 255, 0x80), expected);
            // No proof is needed without the DO bit.
            assert_eq!(counts(&signed, &longest, 255, 0), [26, 0, 1]);
        }
        // Beside 4,066 addresses there is room for one proof. NSEC needs no other.
        for (count, glue_count) in [(4_050, 4_050), (4_066, 4_066), (4_075, 0)] {
            let glue = zone("ns.w", count, address) + "w NS ns.w\n";
            let times = "60 20400101000000 20200101000000 1 example.org. QQ==";
            let signed = format!(
                "{glue}@ NSEC w NS SOA RRSIG NSEC\n@ RRSIG SOA 13 2 {times}\n@ RRSIG NSEC 13 2 {times}\n\
                 w NSEC @ NS RRSIG NSEC\nw RRSIG NSEC 13 3 {times}\n"
            );
            assert_eq!(counts(&signed, &longest, 1, 0x80), [0, 3, glue_count + 1]);
        }
    }

    /// RFC 8482, section 4.1: a reply to ANY need not have all RRsets.
    #[test]
    fn a_reply_to_any_leaves_room_for_a_signature() {
        // A reply with both RRsets would leave 32 bytes free.
        let text = format!(" {}", "y".repeat(255)).repeat(255);
        let text = format!("any TXT {}{text}\n", "y".repeat(150));
        let zone = zone("any", 1, address) + &text;
        for flags in [0, 0x80] {
            let any = reply(&zone, "any.example.org", 255, flags, 364);
            assert_eq!(any, (false, [1, 0, 1]));
        }
    }

    /// A name that exists never gets SERVFAIL, which other types get here.
    #[test]
    fn a_reply_to_any_without_room_for_its_only_rrset_is_truncated() {
        let text = format!(" {}", "y".repeat(255)).repeat(254);
        let last = "y".repeat(100);
        let long = zone("*.w", 1, |_| format!("TXT {last}{text}"));
        let signed = signed(&long, "TXT");
        for (zone, flags, free) in [(&long, 0, 300), (&signed, 0x80, 0), (&signed, 0x80, 300)] {
            let longest = longest_below("w.example.org");
            assert_eq!(reply(zone, &longest, 255, flags, free), (true, [0, 0, 1]));
        }
    }
}
