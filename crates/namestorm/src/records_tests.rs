use std::net::Ipv6Addr;

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A composed answer: section counts, the whole tail, and the tail without its optional records.
type Composed = ([u8; 6], Vec<u8>, Option<Vec<u8>>);

/// Returns the answer that `fill` composes for a question for `a.org`.
fn composed(
    fill: impl FnOnce(&mut Records<'_>) -> Result<(), RecordError>,
) -> Result<Composed, RecordError> {
    let mut composer = Composer::new();
    fill(&mut composer.start(name("a.org").as_wire()))?;
    assert!(!composer.is_empty());
    let body = composer.body();
    assert!(body.authoritative && body.prepared.is_none());
    let required = body.required.map(|(tail, count)| {
        assert_eq!(count, 0);
        tail.bytes.to_vec()
    });
    Ok((body.counts, body.tail.bytes.to_vec(), required))
}

#[test]
fn records_are_composed_with_compressed_names() {
    let (counts, tail, required) = composed(|records| {
        records.add(rtype::MX, 7, b"\0\x05\x01m\x01a\x03org\0")?;
        records.add_address(7, Ipv6Addr::LOCALHOST.into())?;
        records.add_to(
            Section::Authority,
            &name("ORG"),
            rtype::NS,
            7,
            b"\x01m\x01a\x03org\0",
        )?;
        records.add_to(
            Section::Additional,
            &name("m.a.org"),
            rtype::A,
            7,
            &[1, 2, 3, 4],
        )
    })
    .unwrap();
    assert_eq!(counts, [0, 2, 0, 1, 0, 1]);
    let answers = [
        // The owner is a pointer to the qname. The data is "m" and a pointer to the qname.
        &b"\xc0\x0c\0\x0f\0\x01\0\0\0\x07\0\x06\0\x05\x01m\xc0\x0c"[..],
        b"\xc0\x0c\0\x1c\0\x01\0\0\0\x07\0\x10",
        &Ipv6Addr::LOCALHOST.octets(),
    ]
    .concat();
    // The tail starts at offset 12 + 7 + 4. The name "m.a.org" starts 14 bytes later.
    let rest = b"\xc0\x0e\0\x02\0\x01\0\0\0\x07\0\x02\xc0\x25\xc0\x25\0\x01\0\x01\0\0\0\x07\0\x04";
    let expected = [&answers[..], rest, &[1, 2, 3, 4]].concat();
    assert_eq!(tail, expected);
    assert_eq!(required.unwrap(), expected[..expected.len() - 16]);
}

#[test]
fn add_text_makes_a_single_string() {
    let (counts, tail, required) = composed(|records| records.add_text(1, "hello")).unwrap();
    assert_eq!((counts, required), ([0, 1, 0, 0, 0, 0], None));
    assert_eq!(tail, b"\xc0\x0c\0\x10\0\x01\0\0\0\x01\0\x06\x05hello");
    let longest = "x".repeat(255);
    let (_, tail, _) = composed(|records| records.add_text(1, &longest)).unwrap();
    assert_eq!(tail.len(), 12 + 256);
    let longer = "x".repeat(256);
    let error = composed(|records| records.add_text(1, &longer)).unwrap_err();
    assert_eq!(error, RecordError::Data(rtype::TXT));
}

#[test]
fn an_invalid_record_is_refused_and_adds_nothing() {
    let cases: [(u16, u32, &[u8], RecordError); 9] = [
        (rtype::ANY, 1, b"", RecordError::Type(255)),
        (rtype::OPT, 1, b"", RecordError::Type(41)),
        (0, 1, b"", RecordError::Type(0)),
        (rtype::A, 1 << 31, &[1; 4], RecordError::Ttl(1 << 31)),
        (rtype::A, 1, &[1; 5], RecordError::Data(1)),
        (rtype::A, 1, &[1; 3], RecordError::Data(1)),
        (rtype::TXT, 1, b"\x05four", RecordError::Data(16)),
        (rtype::CNAME, 1, b"\x01a\xc0\x0c", RecordError::Data(5)),
        (rtype::MX, 1, b"\0\x01\x01m", RecordError::Data(15)),
    ];
    for (rtype, ttl, data, expected) in cases {
        let mut composer = Composer::new();
        let error = composer
            .start(name("a.org").as_wire())
            .add(rtype, ttl, data)
            .unwrap_err();
        assert_eq!(error, expected);
        assert!(composer.is_empty());
        assert_eq!(Rrset::new(rtype, ttl, [data]), Err(expected));
    }
    let largest = (1 << 31) - 1;
    composed(|records| records.add(rtype::A, largest, &[1; 4])).unwrap();
}

#[test]
fn sections_must_be_filled_in_order() {
    let sections = [Section::Answer, Section::Authority, Section::Additional];
    for first in sections {
        for second in sections {
            let outcome = composed(|records| {
                records.add_to(first, &name("b.org"), rtype::A, 1, &[1; 4])?;
                records.add_to(second, &name("b.org"), rtype::A, 1, &[1; 4])
            });
            let expected = (second < first).then_some(RecordError::Order);
            assert_eq!(outcome.err(), expected, "{first:?}, then {second:?}");
        }
    }
}

#[test]
fn an_answer_is_limited_to_one_tcp_message() {
    let head = 12 + name("a.org").as_wire().len() + 4;
    let room = 65_535 - OPT_LEN - head;
    // The record has an unknown type, so its data can be arbitrary.
    let fitting = vec![7; room - POINTER - FIELDS];
    let (_, tail, _) = composed(|records| records.add(65_280, 1, &fitting)).unwrap();
    assert_eq!(tail.len(), room);
    let longer = vec![7; fitting.len() + 1];
    let mut composer = Composer::new();
    let name = name("a.org");
    let mut records = composer.start(name.as_wire());
    assert_eq!(records.add(65_280, 1, &longer), Err(RecordError::TooLong));
    assert_eq!(
        records.add(65_280, 1, &vec![7; 65_536]),
        Err(RecordError::TooLong)
    );
    // The refused records were not kept, so there is still room for a record that fits.
    assert_eq!(records.add(65_280, 1, &fitting), Ok(()));
    assert_eq!(records.add_text(1, ""), Err(RecordError::TooLong));
    let rrset = Rrset::new(rtype::A, 1, [[1; 4]]).unwrap();
    assert_eq!(records.add_rrset(&rrset), Err(RecordError::TooLong));
    assert_eq!(composer.body().counts, [0, 1, 0, 0, 0, 0]);
    let many = (0..5_000_u16).map(|_| [0; 4]);
    assert_eq!(Rrset::new(rtype::A, 1, many), Err(RecordError::TooLong));
}

#[test]
fn an_rrset_is_composed_for_any_qname() {
    let rrset = Rrset::new(rtype::A, 9, [[1, 2, 3, 4], [5, 6, 7, 8]]).unwrap();
    assert_eq!(
        (rrset.rtype(), rrset.len(), rrset.is_empty()),
        (1, 2, false)
    );
    let (counts, tail, _) = composed(|records| records.add_rrset(&rrset)).unwrap();
    assert_eq!(counts, [0, 2, 0, 0, 0, 0]);
    let expected = b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x01\x02\x03\x04\
        \xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x05\x06\x07\x08";
    assert_eq!(tail, expected);
    let none = Rrset::new(rtype::A, 9, [[0; 4]; 0]).unwrap();
    assert!(none.is_empty());
    let mut composer = Composer::new();
    let name = name("a.org");
    let mut records = composer.start(name.as_wire());
    records.add_rrset(&none).unwrap();
    assert!(composer.is_empty());
}

#[test]
fn composing_does_not_allocate_after_reserve() {
    let mut composer = Composer::new();
    composer.reserve();
    let longest: Name = [63, 63, 63, 61]
        .map(|len| "x".repeat(len))
        .join(".")
        .parse()
        .unwrap();
    let data = vec![7; 65_535];
    let before = composer.memory();
    for _ in 0..3 {
        let mut records = composer.start(longest.as_wire());
        while records
            .add_to(Section::Answer, &longest, rtype::NS, 1, longest.as_wire())
            .is_ok()
        {}
        assert_eq!(records.add(65_280, 1, &data), Err(RecordError::TooLong));
        let mut records = composer.start(longest.as_wire());
        for number in 0..100 {
            let other: Name = format!("{number}.{}", "x.".repeat(50)).parse().unwrap();
            records
                .add_to(Section::Answer, &other, rtype::NS, 1, other.as_wire())
                .unwrap();
        }
    }
    assert_eq!(composer.memory(), before);
}
