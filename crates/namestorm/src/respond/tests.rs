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
    let zone_counts = Arc::clone(answers.zone_counts());
    let mut responder = Responder::new(answers.into());
    responder.set_zone_counts(zone_counts.open());
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
    responder.respond(&mut [0; 12], Transport::Tcp).unwrap();
    let by_zone = [0, 1, 2].map(|zone| zone_counts.of(zone)[0]);
    assert_eq!(by_zone, [5, 2, 0]);
    // The last reply was not from a zone, and the next one is taken back.
    let before = *responder.counters();
    responder.uncount(&before);
    let mut query = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x01w\x01b\0\0\x01\0\x01".to_vec();
    responder.respond(&mut query, Transport::Tcp).unwrap();
    assert_eq!(zone_counts.of(1), [3, 0]);
    responder.uncount(&before);
    assert_eq!(zone_counts.of(1), [2, 0]);
    responder.respond(&mut [0; 12], Transport::Tcp).unwrap();
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
    // Replies without question have no type.
    let by_type = responder.by_type().filter(|(.., count)| *count > 0);
    let expected = [
        ("A", "NOERROR", 5),
        ("A", "NXDOMAIN", 2),
        ("A", "REFUSED", 1),
    ];
    assert_eq!(by_type.collect::<Vec<_>>(), expected);
}

/// Over TCP, nothing may be left out of a reply, and it cannot be truncated.
#[test]
fn a_reply_over_tcp_without_room_for_its_signature_is_servfail_with_the_reason() {
    const SIGNATURE: usize = 78;
    const OPT: [u8; 15] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4, 0, 3, 0, 0];
    let zone = |addresses: usize| {
        let address = |n: usize| format!("w A 10.0.{}.{}\n", n >> 8, n & 255);
        let addresses: String = (0..addresses).map(address).collect();
        format!("$ORIGIN z.\n$TTL 60\n@ SOA ns h 1 2 3 4 60\n@ NS ns.y.\n{addresses}")
    };
    // Around the addresses of 16 bytes, there are 12 + 9 + 11 bytes and the signature.
    for (addresses, is_whole) in [(4_089, true), (4_090, false), (4_093, false)] {
        let answers = prepare_text(&zone(addresses), Form::Wire).unwrap();
        let mut responder = Responder::new(answers.into());
        let nsid = "n".repeat(128).parse().ok();
        responder.set_identity(Identity::new(nsid.as_ref(), None, None).into());
        let header = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        let query = [&header[..], b"\x01w\x01z\0\0\x01\0\x01", &OPT].concat();
        responder.begin_signed(true, SIGNATURE);
        let mut message = query.clone();
        let reply = responder.respond(&mut message, Transport::Tcp).unwrap();
        assert!(reply.len() + SIGNATURE <= MAX_TCP_MESSAGE);
        let has_reason = reply.trail.bytes.ends_with(&[0, 15, 0, 2, 0, 0]);
        let [is_truncated, is_servfail] = [message[2] & 2 != 0, message[3] & 15 == 2];
        assert_eq!(
            reply.tail.bytes.len(),
            16 * addresses * usize::from(is_whole)
        );
        assert_eq!(
            (is_truncated, is_servfail, has_reason),
            (false, !is_whole, !is_whole)
        );
        assert_eq!(responder.counters().without_room, u64::from(!is_whole));
        let mut over_udp = query.clone();
        let udp = Transport::Udp { link: 1_232 };
        responder.respond(&mut over_udp, udp).unwrap();
        assert_eq!((over_udp[2] & 2, over_udp[3] & 15), (2, 0));
        responder.end_signed();
        let mut unsigned = query.clone();
        let reply = responder.respond(&mut unsigned, Transport::Tcp).unwrap();
        assert_eq!(reply.tail.bytes.len(), 16 * addresses);
    }
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
