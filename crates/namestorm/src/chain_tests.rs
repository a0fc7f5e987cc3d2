//! Tests chains of aliases that end in a large answer. The answer's compression pointers must be
//! adjusted to the new offsets of its names. An answer that does not fit the message must be left
//! out.

use std::fmt::Write as _;
use std::sync::Arc;

use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use ip::Sum;
use testkit::dnssec::{Denial, sign};

use crate::key::Form;
use crate::respond::{Responder, Transport};
use crate::tail::MAX_TCP_MESSAGE;
use crate::{name, prepare_text};

const START: &str = "$ORIGIN example.org.\n$TTL 60\n@ SOA ns host 1 2 3 4 60\n@ NS ns\n\
    ns A 192.0.2.1\nold DNAME new\n";

/// Asks a responder over TCP. Its zone consists of `text` and [`START`], which has a DNAME from
/// `old` to `new`. Returns the length of the reply in bytes, and its records.
fn ask(text: &str, qname: &str, qtype: u16) -> (usize, Vec<String>) {
    ask_zone(&format!("{START}{text}"), qname, qtype, &[])
}

/// Asks for signatures. The zone is `text`.
fn ask_signed(text: &str, qname: &str, qtype: u16) -> (usize, Vec<String>) {
    let opt = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];
    ask_zone(&format!("$ORIGIN example.org.\n{text}"), qname, qtype, &opt)
}

/// Like [`ask`], for the zone `text`. The query ends in `opt`.
fn ask_zone(text: &str, qname: &str, qtype: u16, opt: &[u8]) -> (usize, Vec<String>) {
    let answers = prepare_text(text, Form::Wire).unwrap();
    let mut responder = Responder::new(Arc::new(answers));
    let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!opt.is_empty())];
    query.extend(name::parse(qname).unwrap());
    query.extend(qtype.to_be_bytes());
    query.extend([0, 1]);
    query.extend(opt);
    let mut over_udp = query.clone();
    let link = 1452;
    let reply = responder.respond(&mut over_udp, Transport::Udp { link });
    let (len, is_truncated) = (reply.unwrap().len(), over_udp[2] & 2 != 0);
    assert!(len <= link);
    let reply = responder.respond(&mut query, Transport::Tcp).unwrap();
    assert_eq!(is_truncated, reply.len() > len);
    assert_eq!(reply.tail.sum.fold(), Sum::of(reply.tail.bytes).fold());
    let (head_len, tail, trail) = (
        reply.head_len,
        reply.tail.bytes.to_vec(),
        reply.trail.bytes.to_vec(),
    );
    let bytes = [&query[..head_len], &tail, &trail].concat();
    let message = Message::from_octets(&bytes).unwrap();
    let records = message.iter().map(|record| {
        let (record, _) = record.unwrap();
        let record = record.to_any_record::<AllRecordData<_, ParsedName<_>>>();
        record.unwrap().to_string()
    });
    let records = records.filter(|record| !record.contains(" OPT "));
    (bytes.len(), records.collect())
}

#[test]
fn chains_that_are_cut_and_replies_without_room_are_counted() {
    let mut records = vec![
        (
            "example.org.".to_owned(),
            "SOA",
            "ns host 1 2 3 4 60".to_owned(),
        ),
        ("example.org.".to_owned(), "NS", "ns.far.net.".to_owned()),
        (
            "loop.example.org.".to_owned(),
            "CNAME",
            "loop.example.org.".to_owned(),
        ),
    ];
    records.push(("c17.example.org.".to_owned(), "A", "192.0.2.1".to_owned()));
    for i in 0..17 {
        let target = format!("c{}.example.org.", i + 1);
        records.push((format!("c{i}.example.org."), "CNAME", target));
    }
    for i in 0..4_070 {
        let address = format!("10.0.{}.{}", i >> 8, i & 255);
        records.push(("*.big.example.org.".to_owned(), "A", address));
    }
    let zone = sign("example.org.", 60, &records, Denial::Nsec);
    let answers = prepare_text(&format!("$ORIGIN example.org.\n{zone}"), Form::Wire).unwrap();
    let mut responder = Responder::new(Arc::new(answers));
    let mut ask = |qname: &str, transport| {
        let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        query.extend(name::parse(qname).unwrap());
        query.extend([0, 1, 0, 1, 0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0]);
        let reply = responder.respond(&mut query, transport).unwrap();
        let has_records = !reply.tail.bytes.is_empty();
        let has_reason = reply.trail.bytes.ends_with(&[0, 15, 0, 2, 0, 0]);
        let counters = responder.counters();
        let counted = [counters.chains_cut, counters.without_room];
        let rcode = query[3] & 15;
        assert_eq!(query[2] & 2 != 0, rcode == 0 && !has_records);
        assert_eq!(has_reason, rcode == 2);
        (rcode, has_records, counted)
    };
    let (tcp, udp) = (Transport::Tcp, Transport::Udp { link: 1_452 });
    assert_eq!(ask("c1.example.org", tcp), (0, true, [0, 0]));
    assert_eq!(ask("loop.example.org", tcp), (0, true, [0, 0]));
    assert_eq!(ask("c0.example.org", tcp), (0, true, [1, 0]));
    // The message has room for the proofs of this wildcard unless the qname is long.
    let long = "x".repeat(60);
    let longest = format!("{long}.{long}.{long}.big.example.org");
    assert_eq!(ask("x.big.example.org", tcp), (0, true, [1, 0]));
    assert_eq!(ask(&longest, tcp), (2, false, [1, 1]));
    // Over UDP, a client is told to ask over TCP.
    assert_eq!(ask("x.big.example.org", udp), (0, false, [1, 1]));
    assert_eq!(ask(&longest, udp), (0, false, [1, 1]));
}

#[test]
fn compression_pointers_of_a_long_answer_are_adjusted() {
    // The answer is longer than the largest offset that a pointer can hold (0x3fff), so pointers
    // lead only to names near its start.
    let mut text = String::new();
    for i in 0..900 {
        writeln!(text, "big.new MX {i} m{i}.in{}.far.net.", i / 3).unwrap();
    }
    let (len, direct) = ask(&text, "big.new.example.org", 15);
    assert!(len > 0x4000 && direct.len() == 900, "{len} bytes");
    let (_, chained) = ask(&text, "big.old.example.org", 15);
    assert_eq!(chained[2..], direct);
    let (_, negative) = ask(&text, "a.longer.name.old.example.org", 15);
    assert_eq!(negative.len(), 3, "{negative:?}");
    assert!(negative[2].starts_with("example.org. 60 IN SOA ns.example.org. host.example.org."));
}

#[test]
fn a_chain_that_leaves_no_room_omits_the_final_answer() {
    let mut text = String::new();
    for i in 0..245 {
        writeln!(text, "*.new TXT {i:03}{}", "x".repeat(250)).unwrap();
    }
    let label = "x".repeat(60);
    let (len, direct) = ask(
        &text,
        &format!("{label}.{label}.{label}.new.example.org"),
        16,
    );
    assert_eq!(direct.len(), 245);
    assert!(len > MAX_TCP_MESSAGE - 200, "{len} bytes");
    let (_, chained) = ask(
        &text,
        &format!("{label}.{label}.{label}.old.example.org"),
        16,
    );
    assert_eq!(chained.len(), 2, "{chained:?}");
}

/// Returns a signed zone. Two wildcards have RRsets of 18 kB, and an alias and a DNAME lead to the first.
fn zone_with_large_wildcards(denial: Denial) -> String {
    let mut records = Vec::new();
    let mut add = |owner: &str, rtype, data: String| {
        records.push((format!("{owner}example.org."), rtype, data));
    };
    add("", "SOA", "ns.far.net. host.far.net. 1 2 3 4 60".into());
    add("", "NS", "ns.example.org.".into());
    add("ns.", "A", "192.0.2.1".into());
    add("alias.", "CNAME", "a.b.w.example.org.".into());
    add("old.", "DNAME", "w.example.org.".into());
    for i in 0..80 {
        add("*.w.", "TXT", format!("{i:03}{}", "x".repeat(220)));
    }
    let label = "x".repeat(30);
    for i in 0..900 {
        add("*.m.", "MX", format!("{i} m{i}.{label}.net."));
    }
    add("*.m.", "MX", "5000 ns.example.org.".into());
    sign("example.org.", 60, &records, denial)
}

#[test]
fn proofs_beyond_the_reach_of_pointers_have_whole_names() {
    for denial in [Denial::Nsec, Denial::Nsec3] {
        let zone = zone_with_large_wildcards(denial);
        let lower = zone.to_lowercase();
        // The last RRset of an answer is its proof.
        for (qname, qtype, others) in [
            ("q.w.example.org", 16, 81),
            ("alias.example.org", 16, 81 + 2),
            ("q.old.example.org", 16, 81 + 3),
            ("q.m.example.org", 15, 902),
        ] {
            let (len, records) = ask_signed(&zone, qname, qtype);
            assert!(len > 0x4000, "{len} bytes");
            let at = records
                .iter()
                .position(|it| it.contains(" IN NSEC"))
                .unwrap();
            assert_eq!(at, others, "{qname}");
            let [proof, signature] = &records[at..at + 2] else {
                unreachable!()
            };
            let (owner, rest) = proof.split_once(" 60 IN ").unwrap();
            assert!(
                lower.contains(&format!("\n{}\n", proof.to_lowercase())),
                "{proof}"
            );
            let rtype = rest.split(' ').next().unwrap();
            assert!(
                signature.starts_with(&format!("{owner} 60 IN RRSIG {rtype} ")),
                "{signature}"
            );
        }
    }
}

#[test]
fn aliases_beyond_the_reach_of_pointers_have_whole_names() {
    let mut records = vec![
        (
            "example.org.".to_owned(),
            "SOA",
            "ns host 1 2 3 4 60".to_owned(),
        ),
        ("example.org.".to_owned(), "NS", "ns.far.net.".to_owned()),
        (
            "c9.sub.example.org.".to_owned(),
            "DNAME",
            "end.example.org.".to_owned(),
        ),
        ("*.end.example.org.".to_owned(), "A", "192.0.2.1".to_owned()),
    ];
    let name = |i| format!("{}c{i}.sub.example.org.", if i == 9 { "x." } else { "" });
    for i in 0..9 {
        records.push((name(i), "CNAME", name(i + 1)));
    }
    let mut zone = String::new();
    for line in sign("example.org.", 60, &records, Denial::Nsec).lines() {
        writeln!(zone, "{line}").unwrap();
        // Each alias has the signatures of 31 keys.
        for tag in (100..130).filter(|_| line.contains("RRSIG CNAME")) {
            let other = line.replace("000000 1 example", &format!("000000 {tag} example"));
            writeln!(zone, "{other}").unwrap();
        }
    }
    let (len, records) = ask_signed(&zone, "c0.sub.example.org", 1);
    assert!(len > 0x6000, "{len} bytes");
    for i in 0..9 {
        let of_step = &records[32 * i..32 * (i + 1)];
        let (from, to) = (name(i), name(i + 1));
        assert_eq!(of_step[0], format!("{from} 60 IN CNAME {to}"));
        let covered = format!("{from} 60 IN RRSIG CNAME ");
        assert!(of_step[1..].iter().all(|it| it.starts_with(&covered)));
    }
    let end: Vec<_> = records[32 * 9..]
        .iter()
        .map(|it| it.split(" 1 example").next().unwrap())
        .collect();
    assert_eq!(end[0], "c9.sub.example.org. 60 IN DNAME end.example.org.");
    assert!(end[1].starts_with("c9.sub.example.org. 60 IN RRSIG DNAME "));
    assert_eq!(
        end[2],
        "x.c9.sub.example.org. 60 IN CNAME x.end.example.org."
    );
    assert_eq!(end[3], "x.end.example.org. 60 IN A 192.0.2.1");
    assert!(end[4].starts_with("x.end.example.org. 60 IN RRSIG A "));
    assert_eq!(end.len(), 7, "the proof and its signature follow");
}
