//! Tests of parts that clients ask for again.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nmio::Instant;
use tcpip::SendMode;
use testkit::smol::Talk;

use super::super::kept_parts::MAX_KEPT_PARTS;
use super::*;
use crate::app::SiteOnly;
use crate::date::{SlotWriter, Stamp};
use crate::recent_cache::CachePlace;
use crate::session::{Session, Step};
use crate::site::{Builder, HostedSite, Site};
use crate::status::Status;
use crate::testing::World;

const LEN: usize = 20_000;

/// Sites for two hosts with the file `/a`. Its content depends on `first`.
fn site(first: u8) -> Arc<Site> {
    let hosted = |host: &str, first: u8| {
        let text: Vec<_> = (0..LEN).map(|n| first + (n % 61) as u8).collect();
        HostedSite {
            hosts: vec![host.parse().unwrap()],
            site: Builder::new(UNIX_EPOCH)
                .file(b"/a", UNIX_EPOCH, &text)
                .build()
                .into(),
        }
    };
    Arc::new(Site::by_hosts(&[
        hosted("a", first),
        hosted("b", first + 1),
    ]))
}

fn world(mode: SendMode) -> World {
    World::new(&site(b'!'), SiteOnly, mode, |http, _| http, || ())
}

fn get(host: &str, range: &str, fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: {host}\r\nRange: bytes={range}\r\n{fields}\r\n")
}

/// The responses to requests without any cache.
fn expected(site: &Site, requests: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for request in requests {
        let Step::Answer(answer) = Session::default().next(site, request.as_bytes()) else {
            panic!("the request is whole")
        };
        let stamp = Stamp::new(0, answer.close);
        answer.write(
            site,
            request.as_bytes(),
            stamp,
            &mut SlotWriter::new(),
            &mut out,
        );
    }
    out
}

/// A client that sends one request at a time, and closes after the last response.
fn talk(requests: &[String], responses: &[u8]) -> Talk {
    let ends = requests.iter().scan(0, |end, request| {
        *end += request.len();
        Some(*end)
    });
    Talk {
        bytes: requests.concat().into_bytes(),
        cuts: ends.collect(),
        expected: responses.len(),
        ..Talk::default()
    }
}

/// Sends requests over one connection, one at a time, and checks the responses.
fn check(world: &mut World, requests: &[String]) {
    let expected = expected(world.server.transports.stack().app().site(), requests);
    world.client.connect(80, talk(requests, &expected));
    assert!(world.run(|_| false));
    let received = world.received(world.client.connections.len() - 1);
    assert!(
        received == expected,
        "{}",
        String::from_utf8_lossy(received)
    );
}

/// Number of content items of the server.
fn contents(world: &World) -> usize {
    world.server.transports.stack().contents().totals().contents as usize
}

#[test]
fn a_part_is_sent_with_the_same_bytes_again_and_again() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        let mut world = world(mode);
        let before = contents(&world);
        for range in ["0-", "5-5", "100-2000", "-16384", "0-16384"] {
            let long = format!("Cookie: {}\r\n", "c".repeat(800));
            for (fields, count) in [("", 4), ("Connection: close\r\n", 1), (&*long, 4)] {
                let requests = vec![get("a", range, fields); count];
                for _ in 0..4 {
                    check(&mut world, &requests);
                }
            }
        }
        // There are three requests for each of the three short parts.
        assert_eq!(contents(&world) - before, 9, "{mode:?}");
    }
}

#[test]
fn a_part_is_kept_when_it_comes_the_second_time() {
    let mut world = world(SendMode::MemCopy);
    let before = contents(&world);
    for kept in [0, 1, 1] {
        check(&mut world, &[get("b", "7-8", "")]);
        assert_eq!(contents(&world) - before, kept);
    }
    let web = world.server.transports.stack().app();
    assert_eq!(web.counters().of(Status::PartialContent), 3);
    let hosted = web.hosted_counters().iter();
    let hosted: Vec<_> = hosted.map(|one| one.of(Status::PartialContent)).collect();
    assert_eq!(hosted, [0, 3]);
}

#[test]
fn the_next_site_has_its_own_parts() {
    let mut world = world(SendMode::PreCopy);
    let before = contents(&world);
    let requests = vec![get("a", "7-8", ""); 3];
    for first in [b'A', b'a'] {
        check(&mut world, &requests);
        assert_eq!(contents(&world) - before, 1);
        let next = site(first);
        let (web, contents) = world.server.transports.stack_mut().parts_mut();
        let added = next.replies().iter().enumerate().map(|(index, reply)| {
            let hosted = next.hosted(ReplyId(index as u32));
            PreparedReply::add(reply, hosted, contents).unwrap()
        });
        let added = added.collect();
        for old in web.change_site(next, added, contents) {
            contents.remove(old.content);
        }
    }
    check(&mut world, &requests);
    assert_eq!(contents(&world) - before, 1);
}

#[test]
fn a_new_part_replaces_an_old_one_unless_that_is_being_sent() {
    let mut world = world(SendMode::MemCopy);
    let before = contents(&world);
    let (site, mut responses) = (site(b'!'), Vec::new());
    for part in 0..=3 * MAX_KEPT_PARTS {
        let range = format!("{part}-{}", if part == 0 { 16_000 } else { part + 100 });
        let requests = vec![get("a", &range, ""); 3];
        responses.push(expected(&site, &requests));
        let mut talk = Talk {
            start: Instant::from_millis(20 * part as u64),
            ..talk(&requests, &responses[part])
        };
        if part == 0 {
            talk.buffers.0 = 2_000;
            talk.reads = (500, Duration::from_secs(1));
        }
        world.client.connect(80, talk);
    }
    assert!(world.run_until(|_, now| now > Instant::from_millis(10_000)));
    let is_done = |at: usize| world.received(at) == responses[at];
    assert!(!is_done(0) && (1..responses.len()).all(is_done));
    // A part that is replaced while it is being sent would be one more.
    assert_eq!(contents(&world) - before, MAX_KEPT_PARTS);
    assert!(world.run(|_| false));
    assert!(world.received(0) == responses[0]);
}

#[test]
fn a_part_whose_answer_was_displaced_takes_its_own_place() {
    let mut world = world(SendMode::MemCopy);
    let before = contents(&world);
    let part = |n: usize| get("a", &format!("{n}-{}", n + 9), "");
    for n in 0..MAX_KEPT_PARTS {
        check(&mut world, &[part(n), part(n)]);
    }
    assert_eq!(contents(&world) - before, MAX_KEPT_PARTS);
    let entry = |n: usize| CachePlace::of(part(n).as_bytes()).index();
    let other = (MAX_KEPT_PARTS..LEN).find(|n| entry(*n) == entry(0));
    check(&mut world, &[part(other.unwrap())]);
    // It is read anew, and then tries to take the next place.
    check(&mut world, &vec![part(0); 10]);
    assert_eq!(contents(&world) - before, MAX_KEPT_PARTS);
    let web = world.server.transports.stack().app();
    let known = web.core.recent.answer(part(0).as_bytes()).unwrap();
    assert!(known.is_whole(), "the part is not kept");
}

#[test]
fn many_new_parts_replace_few_old_ones() {
    let mut world = world(SendMode::MemCopy);
    let part = |n: usize| get("a", &format!("{n}-{}", n + 9), "");
    for n in 0..2 * MAX_KEPT_PARTS {
        check(&mut world, &[part(n), part(n)]);
    }
    let web = world.server.transports.stack().app();
    let is_kept = |n: &usize| {
        let answer = web.core.recent.answer(part(*n).as_bytes());
        answer.is_some_and(|answer| answer.is_whole())
    };
    let new = (MAX_KEPT_PARTS..2 * MAX_KEPT_PARTS).filter(is_kept).count();
    assert!((1..=MAX_KEPT_PARTS / 8).contains(&new), "{new}");
}
