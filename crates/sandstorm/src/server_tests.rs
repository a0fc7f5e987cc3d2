//! Tests the server's wall clock and its packet counts.

use nmio::sim::{self, LinkConfig, PathConfig};

use super::*;
use crate::site::Builder;

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

#[test]
fn packets_are_counted_for_each_family_with_their_headers() {
    // There are nine shared replies and one file, each for GET and HEAD, and one 304 reply.
    let replies = 2 * 10 + 1;
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
