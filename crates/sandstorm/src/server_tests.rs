//! Tests the server's wall clock and its packet counts.

use std::sync::atomic::{AtomicU64, Ordering};

use control::{FileVersion, Handover};
use nmio::Bell;
use nmio::sim::{self, LinkConfig, PathConfig};

use super::*;
use crate::site::{Builder, NEW};
use crate::turnover::hand_over;

/// Makes a site with a single file `/a` of `len` bytes.
fn site(len: usize) -> Arc<Site> {
    let site = Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, &vec![b'x'; len]);
    Arc::new(site.build())
}

fn addresses() -> [IpAddr; 2] {
    ["10.0.0.1", "fd00::1"].map(|address| address.parse().unwrap())
}

/// Returns a time of day half a second after second 1,795,249,777 since 1970.
fn half_past() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_795_249_777_500)
}

#[test]
fn the_current_second_ends_with_that_of_the_wall_clock() {
    let config = LinkConfig::symmetric(PathConfig::default());
    let (port, _, _) = sim::link(&config, 1);
    let config = tcpip::Config::on_ports(&[80]);
    let now = Instant::ZERO;
    let server =
        Http::<SiteOnly, Cubic>::new(site(7), &addresses(), &config, &port, [1, 2, 3, 4], now);
    let mut server = server.unwrap().with_wall_clock(half_past);
    assert_eq!(server.packets(), packets(&site(7), &addresses(), 1500));

    let now = now + Duration::from_secs(3);
    server.read_wall_clock(now);
    assert_eq!(server.stack().app().second(), 1_795_249_777);
    assert_eq!(server.second_ends, now + Duration::from_millis(500));
}

/// The clock of the day is only a label of responses. What needs the passing of time uses the other
/// clock, `now`, which nobody can set.
#[test]
fn a_clock_that_is_set_back_by_an_hour_changes_only_the_date() {
    static WALL: AtomicU64 = AtomicU64::new(7_200_000);
    let wall = || UNIX_EPOCH + Duration::from_millis(WALL.load(Ordering::Relaxed));
    let (port, _, _) = sim::link(&LinkConfig::symmetric(PathConfig::default()), 1);
    let config = tcpip::Config::on_ports(&[80]);
    let now = Instant::ZERO;
    let server =
        Http::<SiteOnly, Cubic>::new(site(7), &addresses(), &config, &port, [1, 2, 3, 4], now);
    let mut server = server.unwrap().with_wall_clock(wall);
    // Milliseconds since the start, change of the clock, and the second that responses name.
    for (millis, change, second) in [
        (1_000, 0, 7_200),
        (1_500, -3_600_000, 7_200),
        (2_000, 0, 3_600),
        (2_999, 999, 3_600),
        (3_000, 1, 3_601),
        (4_000, 1_000, 3_602),
    ] {
        WALL.fetch_add(i64::cast_unsigned(change), Ordering::Relaxed);
        let now = now + Duration::from_millis(millis);
        server.keep_time(now);
        assert_eq!(server.stack().app().second(), second, "at {millis} ms");
        assert!(server.second_ends > now, "at {millis} ms");
    }
}

#[test]
fn packets_are_counted_for_each_family_with_their_headers() {
    // There are 14 shared replies for GET and HEAD, one file, and its 304 reply.
    let replies = 2 * 14 + 2;
    let [v4, v6] = addresses();
    for (len, segments_v4, segments_v6) in [(7, 1, 1), (2_800, 3, 3), (4_075, 3, 4)] {
        let site = site(len);
        let bytes: usize = site.replies().iter().map(|r| r.bytes().len()).sum();
        let expected = |segments: u64, headers: u64| {
            let count = replies - 1 + segments;
            let bytes = bytes as u64 + count * (14 + headers);
            PacketTotals { count, bytes }
        };
        let of_v4 = expected(segments_v4, 20 + 32);
        let of_v6 = expected(segments_v6, 40 + 32);
        assert_eq!(packets(&site, &[v4], 1500), of_v4, "{len}");
        assert_eq!(packets(&site, &[v6], 1500), of_v6, "{len}");
        let both = PacketTotals {
            count: of_v4.count + of_v6.count,
            bytes: of_v4.bytes + of_v6.bytes,
        };
        assert_eq!(packets(&site, &[v6, v4, v4], 1500), both, "{len}");
    }
    assert_eq!(packets(&site(7), &[], 1500), PacketTotals::default());
}

/// A version of a file that was changed at this second.
fn version(second: i64) -> FileVersion {
    FileVersion {
        file: (1, 2),
        len: 7,
        modified: (second, 0),
        changed: (second, 0),
    }
}

#[test]
fn the_next_site_keeps_the_files_whose_versions_are_known() {
    let now = UNIX_EPOCH + Duration::from_secs(1_000);
    let mut builder = Builder::new(now);
    for (path, second) in [(&b"/old"[..], 998), (b"/young", 999)] {
        builder = builder.file(path, UNIX_EPOCH, b"content");
        builder.note_version(path, version(second));
    }
    let site = builder.build();
    let mut next = Builder::new(now);
    assert!(next.keep_file(b"/old", &site, Some(version(998))));
    assert!(
        !next.keep_file(b"/old", &site, Some(version(997))),
        "another version"
    );
    assert!(
        !next.keep_file(b"/young", &site, Some(version(999))),
        "it may have changed since"
    );
    // After the clock was set back, files are from the future, so nothing is known of their age.
    let mut early = Builder::new(now).file(b"/a", UNIX_EPOCH, b"content");
    early.note_version(b"/a", version(1_000 + 3_600));
    let early = early.build();
    let mut later = Builder::new(now);
    assert!(!later.keep_file(b"/a", &early, Some(version(1_000 + 3_600))));
    assert!(next.keep_file(b"/young", &site, None));
    assert!(!next.keep_file(b"/none", &site, None));
    let next = next.build_next(&site);
    assert_eq!(next.site.totals().files, 2);
    assert_eq!(next.site.totals().content_bytes, 14);
    assert!(next.leaving.is_empty(), "the shared replies stay, too");
    for (index, origin) in next.origins.iter().enumerate() {
        let old = site.replies()[*origin as usize].bytes();
        assert!(Arc::ptr_eq(next.site.replies()[index].bytes(), old));
    }
}

/// Redirects, and files that are too young to be recognised, are compared byte by byte.
#[test]
fn replies_that_are_equal_are_kept() {
    let build = |text: &[u8]| {
        let site = Builder::new(UNIX_EPOCH).file(b"/docs/index.html", UNIX_EPOCH, text);
        site.file(b"/a", UNIX_EPOCH, b"content")
    };
    let old = build(b"one").build();
    let next = build(b"one").build_next(&old);
    assert!(next.leaving.is_empty(), "{:?}", next.leaving);
    for (index, origin) in next.origins.iter().enumerate() {
        let kept = old.replies()[*origin as usize].bytes();
        assert!(Arc::ptr_eq(next.site.replies()[index].bytes(), kept));
    }
    let next = build(b"two").build_next(&old);
    assert_eq!(next.leaving.len(), 2, "the replies of a file");
    let new = next.origins.iter().filter(|origin| **origin == NEW);
    assert_eq!(new.count(), 2);
}

#[test]
fn a_worker_changes_to_the_next_site_in_steps() {
    let paths: Vec<_> = (0..600).map(|n| format!("/{n}")).collect();
    let all = |text: &[u8]| {
        let file = |site: Builder, path: &String| site.file(path.as_bytes(), UNIX_EPOCH, text);
        paths.iter().fold(Builder::new(UNIX_EPOCH), file)
    };
    let old = all(b"old").build();
    let mut next = Builder::new(UNIX_EPOCH);
    for (n, path) in paths.iter().enumerate() {
        if n % 2 == 0 {
            next = next.file(path.as_bytes(), UNIX_EPOCH, b"new");
        } else {
            assert!(next.keep_file(path.as_bytes(), &old, None));
        }
    }
    let next = Arc::new(next.build_next(&old));
    let (mut port, _, _) = sim::link(&LinkConfig::symmetric(PathConfig::default()), 1);
    let config = tcpip::Config::on_ports(&[80]);
    let (now, keys) = (Instant::ZERO, [1, 2, 3, 4]);
    let server =
        Http::<SiteOnly, Cubic>::new(Arc::new(old), &addresses(), &config, &port, keys, now);
    let (handover, bell) = (Handover::default(), Bell::new().unwrap());
    let mut server = server.unwrap().with_handover(handover.open(&bell, || ()).1);
    let contents = server.stack().contents().totals().contents;
    let kept = server.stack().app().prepared()[next.origins[next.origins.len() - 1] as usize];
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| hand_over(&handover, &next, || ()));
        let mut steps = 0;
        while !sending.is_finished() {
            if bell.silence() {
                server.handle_messages(&mut port, now);
            }
            let is_under_way = server.turnover.is_under_way();
            assert_eq!(
                Transports::<sim::SimPort>::poll_timeout(&server).is_some(),
                is_under_way
            );
            steps += usize::from(is_under_way);
            server.handle_timers(&mut port, now);
        }
        assert!(steps > 8, "{steps}");
    });
    let web = server.stack().app();
    assert!(std::ptr::eq(web.site(), &raw const *next.site));
    assert_eq!(web.prepared().len(), next.site.replies().len());
    assert_eq!(server.stack().contents().totals().contents, contents);
    assert_eq!(web.prepared().last().unwrap().content, kept.content);
}
