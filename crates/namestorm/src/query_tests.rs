use proptest::prelude::*;

use super::*;
use crate::key::Form;
use crate::name;

const FORMS: [Form; 2] = [Form::Wire, Form::Fqdn];

/// Builds a query with the qname `question`, type A and class IN.
fn query(question: &[u8]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(question);
    message.extend([0, 1, 0, 1]);
    message
}

fn parse(message: &[u8], form: Form) -> Result<(RawQuestion, Vec<u8>), Malformed> {
    let (mut key, mut expanded) = (Key::new(), NameBuf::new());
    let hashing = Hashing::new(form, [1, 2, 3, 4]);
    let question = parse_question(message, &hashing, &mut key, &mut expanded)?;
    let name = if question.is_compressed {
        expanded.bytes().to_vec()
    } else {
        message[QUESTION_AT..][..question.name_len].to_vec()
    };
    let mut expected = Key::new();
    expected.set(&hashing, &name);
    assert_eq!(key.bytes(), expected.bytes());
    Ok((question, name))
}

#[test]
fn an_uncompressed_question_is_read_in_place() {
    let wire = name::parse("wWw.Example.org").unwrap();
    for form in FORMS {
        let (question, name) = parse(&query(&wire), form).unwrap();
        assert_eq!(name, wire, "case kept");
        let expected = RawQuestion {
            name_len: 17,
            qtype: 1,
            qclass: 1,
            end: 33,
            is_compressed: false,
        };
        assert_eq!(question, expected);
    }
}

#[test]
fn a_compressed_question_is_decompressed() {
    // The pointer can only lead to the header, where ID and flags hold the label "a" and the root.
    let mut message = query(b"\x03wWw\xc0\x00");
    message[..4].copy_from_slice(b"\x01a\x00\x00");
    for form in FORMS {
        let (question, name) = parse(&message, form).unwrap();
        assert_eq!(name, b"\x03wWw\x01a\x00");
        assert!(question.is_compressed);
        assert_eq!((question.qtype, question.end), (1, 22));
    }
}

/// Tests the longest label in front of a pointer, and labels that are too long at the pointer's
/// target.
#[test]
fn labels_of_a_compressed_question_have_at_most_63_bytes() {
    let label = [&[63][..], &[b'y'; 63]].concat();
    let mut message = query(&[&label[..], b"\xc0\x00"].concat());
    message[0] = 0;
    for form in FORMS {
        let (_, name) = parse(&message, form).unwrap();
        assert_eq!(name, [&label[..], &[0]].concat());
    }
    // The ID's first byte is the length of a label that is too long (64 to 191 bytes). The whole
    // label is within the message.
    for len in [64, 0x80, 0xbf] {
        message[0] = len;
        message.resize(300, 0);
        for form in FORMS {
            assert_eq!(parse(&message, form), Err(Malformed), "{len} bytes");
        }
    }
}

#[test]
fn the_longest_names_are_read_and_longer_ones_are_not() {
    let longest = [[1, b'x'].repeat(127), vec![0]].concat();
    let too_long = [[1, b'x'].repeat(128), vec![0]].concat();
    let big_labels = [[&[63][..], &[b'y'; 63]].concat().repeat(4), vec![0]].concat();
    for form in FORMS {
        assert_eq!(parse(&query(&longest), form).unwrap().1, longest);
        assert_eq!(parse(&query(&too_long), form), Err(Malformed));
        assert_eq!(parse(&query(&big_labels), form), Err(Malformed));
    }
}

#[test]
fn malformed_names_are_refused() {
    let cases: [(&str, &[u8]); 7] = [
        ("pointer to itself", b"\xc0\x0c"),
        ("pointer to its own labels", b"\x01a\xc0\x0c"),
        ("forward pointer", b"\xc0\x0e\x01a\x00"),
        ("pointer beyond the message", b"\xff\xff"),
        ("label type 01", b"\x41a\x00"),
        ("label type 10", b"\x80a\x00"),
        ("label longer than the message", b"\x3fabc"),
    ];
    for (what, question) in cases {
        for form in FORMS {
            assert_eq!(parse(&query(question), form), Err(Malformed), "{what}");
        }
    }
    // The header holds two pointers that point to each other.
    let mut message = query(b"\xc0\x02");
    message[..4].copy_from_slice(&[0xc0, 0x02, 0xc0, 0x00]);
    for form in FORMS {
        assert_eq!(parse(&message, form), Err(Malformed));
    }
}

#[test]
fn a_truncated_question_is_refused() {
    let whole = query(b"\x03www\x07example\x00");
    for len in HEADER_LEN..whole.len() {
        for form in FORMS {
            assert_eq!(parse(&whole[..len], form), Err(Malformed), "{len} bytes");
        }
    }
}

proptest! {
    #[test]
    fn both_forms_parse_the_same_question(
        mut message in prop::collection::vec(any::<u8>(), 12..80),
    ) {
        // All bytes after the header get small values, so that they can serve as the length bytes
        // of short labels. Names then have many labels.
        for byte in &mut message[12..] {
            *byte %= 24;
        }
        prop_assert_eq!(parse(&message, Form::Wire), parse(&message, Form::Fqdn));
    }

    #[test]
    fn arbitrary_pointers_give_valid_names_or_errors(
        head in prop::collection::vec(any::<u8>(), 12),
        tail in prop::collection::vec(prop_oneof![Just(0xc0u8), 0u8..20], 1..40),
    ) {
        let message = [head, tail].concat();
        let wire = parse(&message, Form::Wire);
        prop_assert_eq!(&wire, &parse(&message, Form::Fqdn));
        if let Ok((_, name)) = wire {
            prop_assert!(name::is_name(&name));
        }
    }
}
