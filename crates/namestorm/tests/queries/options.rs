//! Tests the bytes of replies with EDNS options and in class CHAOS, in every mode.

use crate::harness::{Client, FORMS, MODES, Query, name, prepare_beside};
use namestorm::Identity;

const ZONE: &str = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n";

/// Sends a query in every mode, for every form of names, over IPv4 and IPv6. Each reply must be
/// `expected`.
fn expect(query: &Query, expected: &[&[u8]]) {
    let nsid = "n1".parse().unwrap();
    let identity = Identity::new(Some(&nsid), "1.0".parse().ok().as_ref(), None);
    for form in FORMS {
        let answers = prepare_beside(&[("example.org.", ZONE)], &["broken."], form);
        for mode in MODES {
            for v6 in [false, true] {
                let mut client = Client::of_server(&answers, mode, v6, &identity);
                // Only the second reply can reuse a resident packet.
                for _ in 0..2 {
                    let reply = client.ask(&query.bytes()).unwrap();
                    assert_eq!(reply, expected.concat(), "{form} {mode} {v6}");
                }
            }
        }
    }
}

fn query(text: &str, qtype: u16, options: &[u8]) -> Query {
    Query {
        edns: Some((1232, 0, 0)),
        options: options.to_vec(),
        ..Query::new(&name(text), qtype)
    }
}

#[test]
fn rfc_5001_2_3_a_reply_has_the_nsid_in_its_opt_record() {
    let query = query("ns.example.org", 1, &[0, 3, 0, 0]);
    expect(
        &query,
        &[
            &[0x12, 0x34, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 1],
            &query.name,
            &[0, 1, 0, 1],
            &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1],
            &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 6],
            &[0, 3, 0, 2, b'n', b'1'],
        ],
    );
}

#[test]
fn rfc_9660_3_2_a_reply_has_the_version_of_its_zone() {
    // The expiry is only for queries for the SOA record (RFC 7314, section 3.2).
    let options = [0, 19, 0, 0, 0, 9, 0, 0];
    let version = &[0, 19, 0, 6, 2, 0, 0, 0, 0, 1];
    let query_a = query("none.ns.example.org", 1, &options);
    let soa = [
        &b"\xc0\x14\0\x06\0\x01\0\0\0\x3c\0\x20\x02ns\xc0\x14\x04host\xc0\x14\0\0\0\x01"[..],
        &[0, 0, 28, 32, 0, 0, 14, 16, 0, 18, 117, 0, 0, 0, 1, 44],
    ];
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0];
    expect(
        &query_a,
        &[
            &[0x12, 0x34, 0x85, 3, 0, 1, 0, 0, 0, 1, 0, 1],
            &query_a.name,
            &[0, 1, 0, 1],
            &soa.concat(),
            &opt,
            &[10],
            version,
        ],
    );
    let query_soa = query("example.org", 6, &options);
    let client = |query: &Query| {
        let answers = prepare_beside(&[("example.org.", ZONE)], &["broken."], FORMS[0]);
        let mut client = Client::of_server(&answers, MODES[0], false, &Identity::default());
        client.ask(&query.bytes()).unwrap()
    };
    let expected = [&[18][..], &[0, 9, 0, 4, 0, 18, 117, 0], version].concat();
    assert!(client(&query_soa).ends_with(&[&opt[..], &expected].concat()));
    // A name outside our zones has no version, and neither has a zone that could not be loaded.
    for (name, error) in [("example.net", 20), ("www.broken", 24)] {
        let reply = client(&query(name, 6, &options));
        assert!(reply.ends_with(&[&opt[..], &[6, 0, 15, 0, 2, 0, error]].concat()));
    }
}

#[test]
fn rfc_8914_2_an_error_has_its_reason_in_the_opt_record() {
    for (text, rcode, reason) in [("www.broken", 2, 24), ("example.net", 5, 20)] {
        let query = query(text, 1, &[]);
        expect(
            &query,
            &[
                &[0x12, 0x34, 0x81, rcode, 0, 1, 0, 0, 0, 0, 0, 1],
                &query.name,
                &[0, 1, 0, 1],
                &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 6],
                &[0, 15, 0, 2, 0, reason],
            ],
        );
    }
}

#[test]
fn rfc_4892_a_text_in_class_chaos_has_ttl_0() {
    for (text, answer) in [
        ("VERSION.bind", &b"1.0"[..]),
        ("version.server", b"1.0"),
        ("hostname.bind", b"n1"),
        ("id.SERVER", b"n1"),
    ] {
        let mut query = Query::new(&name(text), 16);
        query.qclass = 3;
        let len = answer.len() as u8;
        expect(
            &query,
            &[
                &[0x12, 0x34, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0],
                &query.name,
                &[0, 16, 0, 3],
                &[0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, len + 1, len],
                answer,
            ],
        );
    }
}
