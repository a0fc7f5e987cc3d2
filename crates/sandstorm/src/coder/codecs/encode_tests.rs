use proptest::prelude::*;

use super::*;

/// Text that compresses as web pages do.
fn text(len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for line in 0_u64.. {
        if text.len() >= len {
            break;
        }
        let number = line * 7_919 % 1_009;
        text.extend_from_slice(format!("<li class=item>{number}: {line:x}</li>\n").as_bytes());
    }
    text.truncate(len);
    text
}

fn decode(coding: Coding, coded: &[u8], len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    match coding {
        Coding::Gzip => {
            let mut decompressor = libdeflater::Decompressor::new();
            let decoded = decompressor.gzip_decompress(coded, &mut content).unwrap();
            content.truncate(decoded);
        }
        Coding::Brotli => {
            content.clear();
            brotli::BrotliDecompress(&mut &coded[..], &mut content).unwrap();
        }
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(coded).unwrap();
            // A client may refuse a window of more than 8 MB (RFC 9659).
            decoder.window_log_max(23).unwrap();
            content.clear();
            std::io::Read::read_to_end(&mut decoder, &mut content).unwrap();
        }
    }
    content
}

/// The start of this crate's documentation.
fn prose() -> &'static [u8] {
    &include_bytes!("../../lib.rs")[..4_000]
}

#[test]
fn decoders_restore_the_content() {
    let content = prose();
    for coding in Coding::ALL {
        let [fast, best] = Effort::ALL.map(|effort| {
            let coded = encode(coding, effort, content).unwrap();
            assert_eq!(encode(coding, effort, content), Some(coded.clone()));
            let decoded = decode(coding, &coded, content.len());
            assert!(decoded == content, "{coding:?} {effort:?}");
            if coding == Coding::Gzip {
                let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
                assert_eq!(coded[..8], header, "neither name nor time");
            }
            coded.len()
        });
        assert!(best < fast, "{coding:?}: {best} and {fast} bytes");
        assert!(fast < content.len() / 2, "{coding:?}: {fast} bytes");
    }
}

#[test]
fn a_form_that_saves_less_than_a_twentieth_is_not_made() {
    let random: Vec<u8> = std::iter::successors(Some(1_u64), |x| {
        Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
    })
    .skip(1)
    .take(2_000)
    .map(|x| (x >> 56) as u8)
    .collect();
    // Zeros cost nearly nothing, so they are the share that is saved.
    let with_zeros = |count: usize| {
        let mut content = random.clone();
        content.resize(random.len() + count, 0);
        content
    };
    for coding in Coding::ALL {
        for effort in Effort::ALL {
            let made = |content: &[u8]| encode(coding, effort, content).is_some();
            assert!(!made(&[]) && !made(b"a") && !made(&random));
            assert!(!made(&with_zeros(80)), "{coding:?} {effort:?}");
            assert!(made(&with_zeros(300)), "{coding:?} {effort:?}");
        }
    }
}

#[test]
fn the_window_of_a_long_content_is_at_most_8_mb() {
    let content = text(9 << 20);
    let coded = encode(Coding::Zstd, Effort::Fast, &content).unwrap();
    assert!(decode(Coding::Zstd, &coded, content.len()) == content);
    // Zeros, because text would take long at this level in a test.
    let zeros = vec![0; 9 << 20];
    let coded = encode(Coding::Zstd, Effort::Best, &zeros).unwrap();
    assert!(decode(Coding::Zstd, &coded, zeros.len()) == zeros);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_content_is_restored(
        part in prop::collection::vec(any::<u8>(), 1..200),
        repeats in 2_usize..10,
    ) {
        let content = part.repeat(repeats);
        for coding in Coding::ALL {
            for effort in Effort::ALL {
                if let Some(coded) = encode(coding, effort, &content) {
                    prop_assert_eq!(decode(coding, &coded, content.len()), content.clone());
                }
            }
        }
    }
}
