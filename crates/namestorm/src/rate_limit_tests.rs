use std::time::Duration;

use super::*;

const SECRET: [u64; 4] = [1, 2, 3, 4];
/// The time at which the tests begin.
const START: Instant = Instant::from_millis(5_000);

fn limiter(rate: u32, slip: u8) -> RateLimiter {
    let limit = RateLimit {
        rate,
        slip,
        ..RateLimit::default()
    };
    RateLimiter::new(&limit, SECRET)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Sends a query every `interval` during `time`, from `start`. Returns the number of admitted ones.
fn admitted(
    limiter: &mut RateLimiter,
    client: IpAddr,
    (start, time): (Instant, Duration),
    interval: Duration,
) -> usize {
    let queries = (time.as_nanos() / interval.as_nanos()) as u32;
    let times = (0..queries).map(|number| start + interval * number);
    times.filter(|now| limiter.admits(client, *now)).count()
}

#[test]
fn a_network_gets_as_many_replies_as_the_rate_and_those_of_one_second_at_once() {
    let client = ip("192.0.2.7");
    for rate in [1, 5, 1_000, 30_000] {
        let mut limiter = limiter(rate, 2);
        let at_once = (0..rate + 10).filter(|_| limiter.admits(client, START));
        assert_eq!(at_once.count(), rate as usize, "{rate}");
        // Ten times the rate for three seconds.
        let period = (START, Duration::from_secs(3));
        let interval = Duration::from_nanos(100_000_000 / u64::from(rate));
        let count = admitted(&mut limiter, client, period, interval);
        let expected = 3 * rate as usize;
        assert!(
            count.abs_diff(expected) <= 1 + expected / 100,
            "{rate}: {count}"
        );
        // After a second without queries, there is a second's worth again.
        let later = START + Duration::from_secs(4);
        let at_once = (0..rate + 10).filter(|_| limiter.admits(client, later));
        assert!(at_once.count().abs_diff(rate as usize) <= 1);
    }
}

#[test]
fn a_client_at_its_rate_never_exceeds_it() {
    let mut limiter = limiter(200, 2);
    let period = (START, Duration::from_secs(20));
    let count = admitted(
        &mut limiter,
        ip("2001:db8::1"),
        period,
        Duration::from_millis(5),
    );
    assert_eq!(count, 4_000);
}

#[test]
fn the_clients_of_a_network_share_its_limit_and_no_other() {
    let mut limiter = limiter(1, 2);
    let mut is_admitted = |client| limiter.admits(ip(client), START);
    assert!(is_admitted("192.0.2.0"));
    assert!(!is_admitted("192.0.2.0"));
    assert!(!is_admitted("192.0.2.255"));
    assert!(is_admitted("192.0.3.0"));
    assert!(is_admitted("192.0.1.255"));
    assert!(is_admitted("2001:db8:0:ff::"));
    assert!(!is_admitted("2001:db8::ffff:ffff:ffff:ffff"));
    assert!(is_admitted("2001:db8:0:100::"));
    assert!(is_admitted("2001:db9::"));
    // An IPv4 network is not the IPv6 network with the same bits.
    assert!(is_admitted("::") && is_admitted("0.0.0.0"));
}

#[test]
fn the_lengths_of_networks_can_be_set() {
    let limit = RateLimit {
        rate: 1,
        bits: [32, 64],
        ..RateLimit::default()
    };
    let mut limiter = RateLimiter::new(&limit, SECRET);
    let mut is_admitted = |client| limiter.admits(ip(client), START);
    assert!(is_admitted("192.0.2.0") && is_admitted("192.0.2.1"));
    assert!(is_admitted("2001:db8::1") && is_admitted("2001:db8:0:1::1"));
    assert!(!is_admitted("192.0.2.1") && !is_admitted("2001:db8:0:1::2"));
}

#[test]
fn every_nth_query_over_the_limit_slips_for_each_network() {
    for (slip, pattern) in [(0, "------"), (1, "ssssss"), (2, "-s-s-s"), (3, "--s--s")] {
        let mut limiter = limiter(1, slip);
        // The networks take turns, and each of them has the whole pattern.
        let mut found = [String::new(), String::new()];
        for client in ["192.0.2.7", "198.51.100.7"] {
            assert!(limiter.admits(ip(client), START));
        }
        for _ in 0..6 {
            for (client, found) in ["192.0.2.7", "198.51.100.7"].into_iter().zip(&mut found) {
                assert!(!limiter.admits(ip(client), START));
                found.push(match limiter.excess(ip(client), START, || None) {
                    Excess::Slipped => 's',
                    Excess::Dropped => '-',
                    Excess::Answered(_) => 'a',
                });
            }
        }
        assert_eq!(found, [pattern, pattern]);
    }
}

#[test]
fn allowed_networks_loopback_addresses_cookies_and_signatures_have_no_limit() {
    let limit = RateLimit {
        allowed: vec![
            "192.0.2.0/25".parse().unwrap(),
            "2001:db8::1".parse().unwrap(),
        ],
        ..RateLimit::default()
    };
    let mut limiter = RateLimiter::new(&limit, SECRET);
    limiter.expect_signatures();
    for (client, proof, is_answered) in [
        ("192.0.2.7", None, true),
        ("192.0.2.128", None, false),
        ("192.0.2.128", Some(Proof::Cookie), true),
        ("192.0.2.128", Some(Proof::Signature(7)), true),
        ("2001:db8::1", None, true),
        ("2001:db8::2", None, false),
        ("127.0.0.1", None, true),
        ("::1", None, true),
    ] {
        let excess = limiter.excess(ip(client), START, || proof);
        assert_eq!(
            matches!(excess, Excess::Answered(_)),
            is_answered,
            "{client}"
        );
    }
}

#[test]
fn replies_to_clients_with_cookies_are_not_charged_to_their_network() {
    let mut limiter = limiter(10, 2);
    let (with_cookie, without) = (ip("192.0.2.7"), ip("192.0.2.8"));
    for _ in 0..1_000 {
        assert!(limiter.admits(with_cookie, START));
        limiter.give_back(with_cookie, Proof::Cookie, START);
    }
    assert_eq!(
        (0..20).filter(|_| limiter.admits(without, START)).count(),
        10
    );
}

/// Anybody may send a signed query again from the address of a victim.
#[test]
fn a_signature_exempts_a_few_queries_while_it_may_be_valid() {
    let mut limiter = limiter(1, 2);
    limiter.expect_signatures();
    let victim = ip("198.51.100.7");
    let mut exempt = |number, now| {
        let proof = || Some(Proof::Signature(number));
        let queries = (0..10).map(|_| limiter.excess(victim, now, proof));
        let answered = |it: &Excess| *it == Excess::Answered(Exemption::Signature);
        queries.filter(answered).count()
    };
    let after = |seconds| START + Duration::from_secs(seconds);
    assert_eq!((exempt(7, START), exempt(8, START)), (3, 3));
    assert_eq!((exempt(7, after(199)), exempt(7, after(201))), (0, 1));
    assert_eq!((exempt(9, after(201)), exempt(8, after(601))), (3, 3));
    // Replies within the limit are charged in the same way.
    let mut limiter = self::limiter(5, 2);
    limiter.expect_signatures();
    let answered = (0..20).filter(|_| {
        let is_admitted = limiter.admits(victim, START);
        if is_admitted {
            limiter.give_back(victim, Proof::Signature(7), START);
        }
        is_admitted
    });
    assert_eq!(answered.count(), 3 + 5);
}

#[test]
fn new_signatures_do_not_make_an_old_one_new() {
    let mut limiter = limiter(1, 2);
    limiter.expect_signatures();
    let signatures = limiter.signatures.as_mut().unwrap();
    let beside: Vec<_> = signatures.beside(7).take(40).collect();
    let mut used = |key| (0..9).filter(|_| limiter.exempts(key, START)).count();
    assert_eq!(used(7), 3);
    let by_others: usize = beside.iter().map(|key| used(*key)).sum();
    assert_eq!(by_others, 3 * 3, "the set has four places");
    assert_eq!(used(7), 0);
    let later = START + Duration::from_secs(601);
    assert!(limiter.exempts(beside[39], later));
}

#[test]
fn a_full_set_suppresses_no_other_network() {
    let mut limiter = limiter(10, 2);
    let victim = ip("192.0.2.7");
    let key = limiter.key(victim);
    let beside: Vec<_> = limiter.accounts.beside(key).take(40).collect();
    let now = START.as_nanos();
    // More networks than the set has places are at their limits, and get nothing more.
    for key in &beside[..4] {
        assert_eq!(
            (0..20)
                .filter(|_| limiter.accounts.charge(*key, now))
                .count(),
            10
        );
    }
    // Another network of the set has its whole limit, and keeps it while they go on.
    let mut count = 0;
    for _ in 0..20 {
        count += usize::from(limiter.admits(victim, START));
        for key in &beside[1..4] {
            limiter.accounts.charge(*key, now);
        }
    }
    assert_eq!(count, 10);
}

#[test]
fn queries_of_many_networks_free_no_network_from_its_limit() {
    let mut limiter = limiter(10, 2);
    let victim = ip("192.0.2.7");
    let key = limiter.key(victim);
    let beside: Vec<_> = limiter.accounts.beside(key).take(40).collect();
    assert_eq!(
        (0..20).filter(|_| limiter.admits(victim, START)).count(),
        10
    );
    for key in beside {
        assert!(limiter.accounts.charge(key, START.as_nanos()));
        assert!(!limiter.admits(victim, START));
    }
}

#[test]
fn an_attack_on_one_network_leaves_all_others_their_limits() {
    let mut limiter = limiter(50, 2);
    let victim = ip("198.51.100.7");
    let clients: Vec<IpAddr> = (0..200).map(|n| ip(&format!("10.0.{n}.1"))).collect();
    let mut lost = 0;
    // 20 s with 100,000 queries per second, while each client asks ten times a second.
    for step in 0..200_u64 {
        let now = START + Duration::from_millis(100 * step);
        for _ in 0..10_000 {
            limiter.admits(victim, now);
        }
        lost += clients
            .iter()
            .filter(|client| !limiter.admits(**client, now))
            .count();
    }
    assert_eq!(lost, 0);
}
