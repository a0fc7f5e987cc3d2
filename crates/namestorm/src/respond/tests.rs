//! Tests of replies and of what is counted about them.

use super::*;
use crate::key::Form;
use crate::name;
use crate::zones::Zones;
use crate::{compile, load_text, prepare_text};

#[test]
fn replies_are_counted_for_the_zone_of_the_asked_name() {
    let zone = |name: &str, records: &str| {
        let text = format!("$ORIGIN {name}\n$TTL 60\n@ SOA ns h 1 2 3 4 60\n@ NS ns.x.\n{records}");
        load_text("zone", None, &text).unwrap().zone
    };
    let [a, b] = [
        zone(
            "a.",
            "w A 192.0.2.1\nc CNAME w.b.\nd DNAME b.\n*.s A 192.0.2.3\n",
        ),
        zone("b.", "w A 192.0.2.2\n"),
    ];
    let zones = Zones::new(vec![a, b]).unwrap();
    let answers = compile(&zones, Form::Wire, [1, 2, 3, 4], &mut |_| {}).unwrap();
    let mut responder = Responder::new(answers.into());
    let all = |responder: &Responder| responder.by_group().collect::<Vec<_>>();
    for (name, group, rcode) in [
        ("w.a.", "a.", "NOERROR"),
        ("c.a.", "a.", "NOERROR"),
        ("w.d.a.", "a.", "NOERROR"),
        ("x.s.a.", "a.", "NOERROR"),
        ("none.a.", "a.", "NXDOMAIN"),
        ("w.b.", "b.", "NOERROR"),
        ("none.b.", "b.", "NXDOMAIN"),
        ("w.c.", "none", "REFUSED"),
    ] {
        let count = |responder: &Responder| {
            let mut counts = all(responder).into_iter();
            let found = counts.find(|(label, class, _)| (*label, *class) == (group, rcode));
            found.map_or(0, |(.., count)| count)
        };
        let before = count(&responder);
        let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let name = name::parse(name).unwrap();
        let mut query = [&header[..], &name, &[0, 1, 0, 1]].concat();
        responder.respond(&mut query, Transport::Tcp).unwrap();
        assert_eq!(count(&responder), before + 1, "{group} {rcode}");
    }
    let mut malformed = [0; 12];
    responder.respond(&mut malformed, Transport::Tcp).unwrap();
    let expected = [
        ("none", "NOERROR", 0),
        ("none", "FORMERR", 1),
        ("none", "REFUSED", 1),
        ("other", "NOERROR", 0),
        ("a.", "NOERROR", 4),
        ("a.", "NXDOMAIN", 1),
        ("b.", "NOERROR", 1),
        ("b.", "NXDOMAIN", 1),
    ];
    assert_eq!(all(&responder), expected);
}

#[test]
fn a_head_has_room_for_the_longest_compressed_name() {
    let zone = "$ORIGIN z.\n@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns.y.\n";
    let answers = prepare_text(zone, Form::Wire).unwrap();
    let mut responder = Responder::new(answers.into());
    let labels = [1, b'x'].repeat(name::MAX_LABELS);
    // The qname ends with a pointer to the ID, whose first byte is 0, the root label.
    let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let mut query = [&header[..], &labels, b"\xc0\x00\x00\x01\x00\x01"].concat();
    let reply = responder.respond(&mut query, Transport::Tcp).unwrap();
    let refused = [0, 7, 0x80, 5, 0, 1, 0, 0, 0, 0, 0, 0];
    let expected = [&refused[..], &labels, b"\x00\x00\x01\x00\x01"].concat();
    assert_eq!(reply.rewritten, Some(&expected[..]));
    assert_eq!(reply.head_len, MAX_HEAD);
}
