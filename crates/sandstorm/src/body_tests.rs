//! Tests the parsing of valid and malformed bodies. The result must not depend on where a body is
//! split.

use proptest::prelude::*;

use super::*;

/// Result of parsing a body. `Whole` holds the body and the bytes that follow it. `Half` means that
/// more bytes are needed.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Whole(Vec<u8>, Vec<u8>),
    Malformed,
    Half,
}

fn read<'d>(length: BodyLength, pieces: impl IntoIterator<Item = &'d [u8]>) -> Outcome {
    let mut reader = BodyReader::new(length);
    let (mut body, mut rest) = (Vec::new(), None::<Vec<u8>>);
    for mut piece in pieces {
        if let Some(rest) = &mut rest {
            rest.extend_from_slice(piece);
            continue;
        }
        loop {
            match reader.next(&mut piece) {
                BodyPart::Piece(piece) => {
                    assert!(!piece.is_empty());
                    body.extend_from_slice(piece);
                }
                BodyPart::More => {
                    assert!(piece.is_empty());
                    break;
                }
                BodyPart::End => {
                    rest = Some(piece.to_vec());
                    break;
                }
                BodyPart::Malformed => return Outcome::Malformed,
            }
        }
    }
    match rest {
        Some(rest) => Outcome::Whole(body, rest),
        None => Outcome::Half,
    }
}

fn chunked(bytes: &str) -> Outcome {
    let whole = read(BodyLength::Chunked, [bytes.as_bytes()]);
    let single = read(BodyLength::Chunked, bytes.as_bytes().chunks(1));
    // The result must not depend on where the input is split.
    assert_eq!(single, whole, "{bytes:?}");
    whole
}

fn whole(body: &str, rest: &str) -> Outcome {
    Outcome::Whole(body.into(), rest.into())
}

#[test]
fn chunks_are_joined() {
    assert_eq!(chunked("0\r\n\r\n"), whole("", ""));
    assert_eq!(chunked("5\r\nhello\r\n0\r\n\r\nGET"), whole("hello", "GET"));
    let two = "1\r\na\r\n00A;x=y;z=\"q\"\r\n0123456789\r\n0;last\r\nA: b\r\nC:\r\n\r\n";
    assert_eq!(chunked(two), whole("a0123456789", ""));
    let lines = "4\r\n\r\n\r\n\r\n000\r\n\r\n";
    assert_eq!(chunked(lines), whole("\r\n\r\n", ""));
    assert_eq!(chunked("5\r\nhello\r\n0\r\n"), Outcome::Half);
    assert_eq!(chunked(""), Outcome::Half);
}

#[test]
fn hostile_chunks_are_malformed() {
    for bytes in [
        "\r\n",
        ";\r\n",
        "x\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x1\r\n",
        " 1\r\n",
        "1 \r\n",
        "1\n",
        "1\rx",
        "1;a\nb",
        "1;\0",
        "1\r\nab",
        "1\r\na\n",
        "1\r\na\rb",
        "1\r\na\r\n\r\n",
        "0\r\n\n",
        "0\r\n:\r\n",
        "0\r\n A: b\r\n",
        "0\r\nA b\r\n",
        "0\r\nA\r\n",
        "0\r\nA: b\n",
        "0\r\nA: b\rc",
        "0\r\n\rx",
        "0000000000000000\r\n",
        "10000000000000000\r\n",
    ] {
        assert_eq!(chunked(bytes), Outcome::Malformed, "{bytes:?}");
    }
    // A chunk size with the maximum number of digits is still accepted.
    assert_eq!(chunked("00000000000000a\r\n"), Outcome::Half);
    assert_eq!(chunked("fffffffffffffff\r\nx"), Outcome::Half);
}

#[test]
fn extensions_and_trailers_have_a_maximum_length() {
    let extension = |len: u32| chunked(&format!("1;{}\r\n", "x".repeat(len as usize)));
    assert_eq!(extension(MAX_EXTENSIONS), Outcome::Half);
    assert_eq!(extension(MAX_EXTENSIONS + 1), Outcome::Malformed);
    // The limit applies to the total length of all extensions of a body.
    let many = "1;xxxxxxx\r\na\r\n".repeat(MAX_EXTENSIONS as usize / 7 + 1);
    assert_eq!(chunked(&many), Outcome::Malformed);
    let trailer = |len: u32| chunked(&format!("0\r\nA:{}\r\n", "x".repeat(len as usize - 2)));
    // The CR after the trailer field also counts towards the limit.
    assert_eq!(trailer(MAX_TRAILERS - 1), Outcome::Half);
    assert_eq!(trailer(MAX_TRAILERS + 1), Outcome::Malformed);
}

#[test]
fn a_body_of_known_length_ends_there() {
    let known = |len: u64, bytes: &str| read(BodyLength::Known(len), [bytes.as_bytes()]);
    assert_eq!(known(5, "helloGET"), whole("hello", "GET"));
    assert_eq!(known(5, "hell"), Outcome::Half);
    assert_eq!(known(0, "GET"), whole("", "GET"));
    assert_eq!(known(u64::MAX, "x"), Outcome::Half);
}

proptest! {
    /// Checks that the result does not depend on how the input is split.
    #[test]
    fn the_split_into_pieces_does_not_change_the_result(
        bytes in prop_oneof![
            "([0-3]\r\n|[0-3];a\r\n|aa\r\n|a\r\n|\r\n|0\r\n\r\n|A: b\r\n){0,12}",
            "[0-3a;: \r\n]{0,20}",
        ],
        cuts in prop::collection::vec(0..40usize, 0..6),
        known in prop::option::of(0..30u64),
    ) {
        let bytes = bytes.as_bytes();
        let length = known.map_or(BodyLength::Chunked, BodyLength::Known);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(read(length, pieces), read(length, [bytes]));
    }

    /// Checks that the chunks are reassembled into the original body.
    #[test]
    fn a_chunked_body_is_decoded(chunks in prop::collection::vec("[ -~\r\n]{1,20}", 0..6)) {
        let each = chunks.iter().map(|c| format!("{:x}\r\n{c}\r\n", c.len()));
        let mut sent = each.collect::<Vec<_>>().concat();
        sent += "0\r\n\r\nnext";
        prop_assert_eq!(chunked(&sent), whole(&chunks.concat(), "next"));
    }
}
