use std::time::Duration;

use super::*;

/// Returns what a cookie proves, and the cookie of the reply.
fn check(cookies: &Cookies, option: &[u8], client: IpAddr) -> (Presented, [u8; COOKIE_LEN]) {
    let checked = cookies.check(option, client).unwrap();
    (checked.presented(), checked.reply())
}

/// The secret of RFC 9018, appendices A.1 to A.3.
const SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    assert_eq!(hex.len(), 2 * N);
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap())
}

fn cookies(secrets: &[&str], clock: WallClock) -> Cookies {
    let secrets: Vec<_> = secrets.iter().map(|hex| bytes(hex)).collect();
    Cookies::new(&secrets, clock)
}

/// Returns a clock that always shows the same time.
macro_rules! at {
    ($seconds:expr) => {
        || UNIX_EPOCH + Duration::from_secs($seconds)
    };
}

#[test]
fn cookies_are_those_of_rfc_9018_appendix_a() {
    let [a, b] = ["198.51.100.100", "203.0.113.203"].map(|ip| ip.parse().unwrap());
    let first = bytes::<24>("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
    // A.1: a client learns a new cookie.
    let found = check(&cookies(&[SECRET], at!(1_559_731_985)), &first[..8], a);
    assert_eq!(found, (Presented::ClientOnly, first));
    // A.2: it learns a renewed cookie after 40 minutes.
    let second = bytes("2464c4abcf10c957010000005cf7a871d4a564a1442aca77");
    let found = check(&cookies(&[SECRET], at!(1_559_734_385)), &first, a);
    assert_eq!(found, (Presented::Valid, second));
    // A.3: another client has a cookie with reserved bytes, which the hash covers. In the RFC's
    // example, it is renewed after 112 minutes, although it is too old then.
    let reserved = bytes::<24>("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
    let found = check(&cookies(&[SECRET], at!(1_559_728_000)), &reserved, b);
    assert_eq!(found, (Presented::Valid, reserved));
    let renewed = bytes("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e");
    let found = check(&cookies(&[SECRET], at!(1_559_734_700)), &reserved, b);
    assert_eq!(found, (Presented::Invalid, renewed));
}

#[test]
fn an_exchange_of_secrets_keeps_cookies_valid() {
    // RFC 9018, appendix A.4.
    let client = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
    let [old, new] = [
        "dd3bdf9344b678b185a6f5cb60fca715",
        "445536bcd2513298075a5d379663c962",
    ];
    let by_old = bytes::<24>("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
    let by_new = bytes::<24>("22681ab97d52c298010000005cf7c609a6bb79d16625507a");
    let found = check(&cookies(&[new, old], at!(1_559_741_961)), &by_old, client);
    assert_eq!(found, (Presented::Valid, by_new));
    // Before the new secret makes cookies, all servers already verify with it.
    let (presented, reply) = check(&cookies(&[old, new], at!(1_559_741_961)), &by_new, client);
    assert_eq!(presented, Presented::Valid);
    assert_ne!(reply, by_new);
    let found = check(&cookies(&[new], at!(1_559_741_961)), &by_old, client);
    assert_eq!(found, (Presented::Invalid, by_new));
}

#[test]
fn the_age_of_a_cookie_decides() {
    let client = "192.0.2.7".parse().unwrap();
    let made = |clock| check(&cookies(&[SECRET], clock), b"myCookie", client).1;
    // The second time is beyond 2106, where the 32 bits have wrapped around.
    for made in [made(at!(1_000_000)), made(at!(1_000_000 + (1 << 32)))] {
        let check = |clock: WallClock| {
            let (presented, reply) = check(&cookies(&[SECRET], clock), &made, client);
            (presented == Presented::Valid, reply == made)
        };
        assert_eq!(check(at!(1_000_000 - 301)), (false, false));
        assert_eq!(check(at!(1_000_000 - 300)), (true, true));
        assert_eq!(check(at!(1_000_000 + 1_799)), (true, true));
        assert_eq!(check(at!(1_000_000 + 1_800)), (true, false));
        assert_eq!(check(at!(1_000_000 + 3_600)), (true, false));
        assert_eq!(check(at!(1_000_000 + 3_601)), (false, false));
    }
}

#[test]
fn every_byte_of_a_cookie_and_the_address_count() {
    let client: IpAddr = "192.0.2.7".parse().unwrap();
    let cookies = cookies(&[SECRET], at!(1_000_000));
    let (_, good) = check(&cookies, b"myCookie", client);
    let is_valid = |option: &[u8], client| check(&cookies, option, client).0 == Presented::Valid;
    assert!(is_valid(&good, client));
    for at in 0..COOKIE_LEN {
        let mut bad = good;
        bad[at] ^= 1;
        assert!(!is_valid(&bad, client), "byte {at}");
    }
    for other in ["192.0.2.8", "::ffff:192.0.2.7"] {
        assert!(!is_valid(&good, other.parse().unwrap()));
    }
    // Server cookies of other lengths are possible, but not ours.
    for len in [16, 23, 25, 40] {
        let option = [&good[..], &[0; 16]].concat();
        assert!(!is_valid(&option[..len], client));
    }
}

#[test]
fn lengths_are_those_of_rfc_7873() {
    let valid: Vec<_> = (0..100).filter(|len| Cookies::is_valid_len(*len)).collect();
    let expected: Vec<_> = [8].into_iter().chain(16..=40).collect();
    assert_eq!(valid, expected);
}

#[test]
fn without_secrets_there_are_no_cookies() {
    let client = "192.0.2.7".parse().unwrap();
    assert_eq!(
        cookies(&[], SystemTime::now).check(b"myCookie", client),
        None
    );
    let shown = format!("{:?}", cookies(&[SECRET], SystemTime::now));
    assert_eq!(shown, "Cookies(1)");
}
