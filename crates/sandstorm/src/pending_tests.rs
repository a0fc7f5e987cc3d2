//! Tests the places and memory of pending requests, and the order of eviction when memory runs
//! short.

use super::*;
use crate::body::{BodyLength, BodyReader};

const NOW: Instant = Instant::from_millis(100_000);

fn peer(number: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(number).into()
}

fn answer() -> Phase {
    Phase::Answer {
        serial: 1,
        close: false,
        fields: Fields::new(),
    }
}

const BODY: Body = Body {
    reader: BodyReader::new(BodyLength::Chunked),
    remaining: 0,
    in_pieces: false,
    owes_continue: false,
};

/// Returns true if the request at `place` was evicted.
fn was_evicted(pending: &mut Pending, place: PendingPlace) -> bool {
    matches!(pending.phase(place), Some(Phase::Evicted(_)))
}

/// Adds requests of 128 KiB each, from `clients` clients in rotation, until at most 256 KiB of
/// memory are left.
fn fill(pending: &mut Pending, phase: &dyn Fn() -> Phase, clients: u32) -> Vec<PendingPlace> {
    let bytes = vec![b'x'; 128 << 10];
    let mut places = Vec::new();
    while pending.memory + 2 * bytes.len() < MAX_PENDING_BYTES {
        let client = peer(places.len() as u32 % clients);
        places.push(pending.take(phase(), &bytes, client, NOW).unwrap());
    }
    places
}

#[test]
fn released_places_are_reused() {
    let mut pending = Pending::default();
    let take = |pending: &mut Pending| pending.take(answer(), b"", peer(1), NOW).unwrap();
    let places: Vec<PendingPlace> = (0..9).map(|_| take(&mut pending)).collect();
    assert_eq!(pending.len(), 9);
    assert!(places.iter().all(|place| *place != PendingPlace::NONE));
    pending.release(places[3]);
    assert!(pending.phase(places[3]).is_none());
    assert_eq!(take(&mut pending), places[3]);
    // Releasing a free place or [`PendingPlace::NONE`] has no effect.
    pending.release(places[5]);
    pending.release(places[5]);
    pending.release(PendingPlace::NONE);
    assert_eq!(take(&mut pending), places[5]);
    assert_eq!(pending.len(), 9);
}

#[test]
fn memory_is_limited_and_is_freed() {
    let mut pending = Pending::default();
    let large = vec![b'x'; MAX_PENDING_BYTES / 4 - 1_000];
    let mut places = Vec::new();
    while let Ok(place) = pending.take(answer(), &large, peer(1), NOW) {
        places.push(place);
    }
    assert_eq!(places.len(), 4);
    assert!(pending.append(places[0], &[b'x'; 5_000], NOW).is_err());
    let small = pending.take(answer(), b"", peer(1), NOW);
    assert!(small.is_ok(), "it takes no memory");
    let entries_memory = pending.entries.len() * size_of::<PendingRequest>();
    pending.release(places[0]);
    assert_eq!(pending.memory, entries_memory + 3 * large.len());
    let bytes = pending.take_bytes(places[1]);
    assert_eq!(pending.memory, entries_memory + 2 * large.len());
    pending.keep(places[1], bytes);
    for place in places {
        pending.release(place);
    }
    assert_eq!(pending.memory, entries_memory);
    let place = pending
        .take(answer(), &[b'x'; KEPT_BYTES], peer(1), NOW)
        .unwrap();
    pending.release(place);
    assert_eq!(pending.memory, entries_memory + KEPT_BYTES);
}

#[test]
fn buffers_of_free_places_are_freed_first() {
    let mut pending = Pending::default();
    let kept: Vec<_> = (0..60)
        .map(|n| pending.take(answer(), &[b'x'; KEPT_BYTES], peer(n), NOW))
        .collect();
    for place in kept {
        pending.release(place.unwrap());
    }
    let rest = MAX_PENDING_BYTES - pending.memory + 30 * KEPT_BYTES;
    let large = pending.take(answer(), &vec![b'x'; rest], peer(1), NOW);
    assert!(large.is_ok());
    assert!(pending.memory <= MAX_PENDING_BYTES);
}

#[test]
fn requests_of_an_address_beyond_its_share_are_evicted() {
    let mut pending = Pending::default();
    let places = fill(&mut pending, &answer, 1);
    let bytes = vec![b'x'; 1 << 20];
    // These requests wait for the application, so only other addresses can evict them.
    assert!(pending.take(answer(), &bytes, peer(0), NOW).is_err());
    let other_client = pending.take(answer(), &bytes, peer(9), NOW).unwrap();
    let evicted = places
        .iter()
        .filter(|place| was_evicted(&mut pending, **place));
    assert!([7, 8].contains(&evicted.count()), "no more than needed");
    assert!(!was_evicted(&mut pending, other_client));
    assert!(pending.memory <= MAX_PENDING_BYTES);
    // Addresses in the same IPv6 network count as one client.
    let mut pending = Pending::default();
    let [one, other] = ["2001:db8::1", "2001:db8::2:0:0:1"].map(|ip| ip.parse().unwrap());
    let large = vec![b'x'; MAX_PENDING_BYTES - 10_000];
    pending.take(answer(), &large, one, NOW).unwrap();
    assert!(pending.take(answer(), &bytes, other, NOW).is_err());
    let next = "2001:db8:0:1::1".parse().unwrap();
    assert!(pending.take(answer(), &bytes, next, NOW).is_ok());
}

#[test]
fn a_request_that_waits_for_the_application_within_its_share_is_never_evicted() {
    let mut pending = Pending::default();
    fill(&mut pending, &answer, 100);
    let later = NOW + Duration::from_secs(20);
    let bytes = vec![b'x'; 1 << 20];
    assert!(pending.take(answer(), &bytes, peer(200), later).is_err());
}

#[test]
fn a_request_with_a_slow_body_is_evicted() {
    let mut pending = Pending::default();
    let places = fill(&mut pending, &|| Phase::Body(BODY), 100);
    let bytes = vec![b'x'; 256 << 10];
    let at = |millis| NOW + Duration::from_millis(millis);
    // After 900 ms, no request lags by more than `MIN_LAG`, so none can be evicted.
    assert!(pending.take(answer(), &bytes, peer(200), at(900)).is_err());
    // One body arrives just fast enough, and all other bodies arrive too slowly.
    for second in 1..=4 {
        pending.update_body(places[7], BODY, 16_000, at(second * 1_000));
        pending.update_body(places[8], BODY, 8_000, at(second * 1_000));
    }
    // The result is ignored, because some requests are refused: their sample contains no slow
    // request.
    for round in 200..2_000 {
        let _ = pending.take(answer(), &bytes, peer(round), at(4_100));
        assert!(pending.memory <= MAX_PENDING_BYTES);
    }
    for (number, place) in places.iter().enumerate() {
        assert_eq!(was_evicted(&mut pending, *place), number != 7, "{number}");
    }
    let expected = Busy {
        head_only: false,
        close: true,
    };
    let phase = pending.phase(places[8]);
    assert!(matches!(phase, Some(Phase::Evicted(Some(busy))) if *busy == expected));
    // The virtual clock is never more than two seconds ahead of real time.
    pending.update_body(places[7], BODY, 10_000_000, at(5_000));
    let entry = &pending.entries[places[7].0 as usize];
    assert_eq!(entry.lag(at(7_000)), Duration::ZERO);
    assert_eq!(entry.lag(at(9_000)), Duration::from_secs(2));
}

#[test]
fn a_client_that_does_not_read_loses_its_response() {
    let mut pending = Pending::default();
    let stamp = Stamp::new(1, false);
    let room = || {
        Phase::Room(Outgoing {
            content: OutgoingContent::None,
            stamp,
            stream: None,
        })
    };
    let places = fill(&mut pending, &room, 100);
    let later = NOW + Duration::from_secs(2);
    let bytes = vec![b'x'; 256 << 10];
    assert!(pending.take(answer(), &bytes, peer(200), later).is_ok());
    let evicted = places
        .iter()
        .filter(|place| matches!(pending.phase(**place), Some(Phase::Evicted(None))));
    assert!(evicted.count() > 0);
}
