//! Tests chains of aliases that end in a large answer. The answer's compression pointers must be
//! adjusted to the new offsets of its names. An answer that does not fit the message must be left
//! out.

use std::fmt::Write as _;
use std::sync::Arc;

use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;

use crate::key::Form;
use crate::respond::{Responder, Transport};
use crate::tail::MAX_TCP_MESSAGE;
use crate::{name, prepare_text};

const START: &str = "$ORIGIN example.org.\n$TTL 60\n@ SOA ns host 1 2 3 4 60\n@ NS ns\n\
    ns A 192.0.2.1\nold DNAME new\n";

/// Asks a responder over TCP. Its zone consists of `text` and [`START`], which has a DNAME from
/// `old` to `new`. Returns the length of the reply in bytes, and its records.
fn ask(text: &str, qname: &str, qtype: u16) -> (usize, Vec<String>) {
    let answers = prepare_text(&format!("{START}{text}"), Form::Wire).unwrap();
    let mut responder = Responder::new(Arc::new(answers));
    let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(name::parse(qname).unwrap());
    query.extend(qtype.to_be_bytes());
    query.extend([0, 1]);
    let reply = responder.respond(&mut query, Transport::Tcp).unwrap();
    let (head_len, tail) = (reply.head_len, reply.tail.bytes.to_vec());
    let bytes = [&query[..head_len], &tail].concat();
    let message = Message::from_octets(&bytes).unwrap();
    let records = message.iter().map(|record| {
        let (record, _) = record.unwrap();
        let record = record.to_any_record::<AllRecordData<_, ParsedName<_>>>();
        record.unwrap().to_string()
    });
    (bytes.len(), records.collect())
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
