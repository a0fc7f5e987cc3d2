//! Tests how long the replies to different clients may be, on whole frames.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::harness::{Client, FORMS, MODES, PORT, Query, name, prepare};
use eth::{Mac, Station};
use ip::Host;
use namestorm::{
    Dns, DnsOverTcp, IDLE_TIMEOUT, NoHook, ReplyMode, Server, TcpSettings, UdpAndTcp, UdpSize,
    UdpSizes,
};
use nmio::Port as _;
use testkit::{SERVER, SERVER_MAC};

/// Returns a client of a server with these sizes. The zone has a name for each length of a reply with
/// OPT that is asked for.
fn client(sizes: &[&str], lens: &[usize], mode: ReplyMode, v6: bool) -> Client {
    let mut zone = "@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns.x.\n".to_owned();
    for len in lens {
        let name = format!("t{len}");
        // Header, question, OPT record, and the fields of the answer's record.
        let around = 12 + (1 + name.len() + 3) + 4 + 11 + 12;
        let data = len - around;
        let (whole, rest) = (data / 256, data % 256);
        let text = format!(" {}", "x".repeat(255)).repeat(whole);
        writeln!(zone, "{name} 60 TXT{text} {}", "x".repeat(rest - 1)).unwrap();
    }
    let answers = prepare(&[("z.", &zone)], FORMS[0]);
    let mut client = Client::new(&answers, mode, v6);
    let capabilities = client.sink.capabilities();
    let sizes: Vec<UdpSize> = sizes.iter().map(|size| size.parse().unwrap()).collect();
    let sizes = UdpSizes::new(&sizes).unwrap().fitting(capabilities.mtu);
    let sizes = Arc::new(sizes);
    let mut dns = Dns::new(Arc::clone(&answers), mode);
    dns.set_udp_sizes(&sizes);
    let mut over_tcp = DnsOverTcp::with_hook(answers, IDLE_TIMEOUT, NoHook);
    over_tcp.set_udp_sizes(sizes);
    let config = TcpSettings::default().stack;
    let transports =
        UdpAndTcp::with_hook(PORT, dns, over_tcp, &config, &capabilities, [5, 6, 7, 8]);
    let station = Station::new(Mac(SERVER_MAC), &SERVER);
    client.server = Server::new(Host::own(station, [0; 4]), transports);
    client
}

/// Asks for the name with a reply of `len` bytes. Returns the length of the reply, whether it is
/// truncated, and the size in its OPT record.
fn ask(client: &mut Client, len: usize, udp_size: u16) -> (usize, bool, u16) {
    let query = Query {
        edns: Some((udp_size, 0, 0)),
        ..Query::new(&name(&format!("t{len}.z")), 16)
    };
    let reply = client.ask(&query.bytes()).unwrap();
    let opt = &reply[reply.len() - 11..];
    assert_eq!(opt[..3], [0, 0, 41]);
    let size = u16::from_be_bytes([opt[3], opt[4]]);
    (reply.len(), reply[2] & 2 != 0, size)
}

#[test]
fn each_client_gets_replies_up_to_its_size() {
    const LENS: [usize; 6] = [512, 513, 1232, 1233, 1400, 1401];
    let other = ["198.51.100.0/24=600", "2001:db9::/32=600"];
    for (sizes, limit) in [
        (&[][..], 1232),
        (&other, 1232),
        (&["512"], 512),
        (&["1400"], 1400),
        (
            &[
                "512",
                "0.0.0.0/0=600",
                "::/0=600",
                "192.0.2.0/24=1400",
                "2001:db8::/32=1400",
            ],
            1400,
        ),
        (&["1400", "192.0.2.0/24=512", "2001:db8::/32=512"], 512),
    ] {
        for mode in MODES {
            for v6 in [false, true] {
                let mut client = client(sizes, &LENS, mode, v6);
                // Only the second reply can reuse a resident packet.
                for len in LENS.into_iter().chain(LENS) {
                    let (reply, truncated, size) = ask(&mut client, len, 4096);
                    assert_eq!(usize::from(size), limit, "{sizes:?} {mode} {v6}");
                    assert_eq!(truncated, len > limit, "{len} {sizes:?} {mode} {v6}");
                    assert_eq!(reply == len, !truncated);
                    // A client may accept less.
                    let (_, truncated, _) = ask(&mut client, len, 700);
                    assert_eq!(truncated, len > limit.min(700), "{len} {sizes:?}");
                }
            }
        }
    }
}

#[test]
fn no_reply_is_longer_than_a_packet_of_the_interface() {
    const LENS: [usize; 2] = [1452, 1453];
    for mode in MODES {
        for v6 in [false, true] {
            let mut client = client(&["4096"], &LENS, mode, v6);
            for len in LENS {
                let (reply, truncated, size) = ask(&mut client, len, 4096);
                assert_eq!((truncated, size), (len > 1452, 1452));
                assert_eq!(reply == len, !truncated);
            }
        }
    }
}

#[test]
fn replies_that_the_size_of_a_network_cuts_are_counted() {
    for (sizes, of_network) in [
        (&["600", "192.0.2.0/24=800", "2001:db8::/32=800"][..], true),
        (&["800", "198.51.100.0/24=600", "2001:db9::/32=600"], false),
    ] {
        for v6 in [false, true] {
            let mut client = client(sizes, &[800, 801], MODES[0], v6);
            let mut cut = 0;
            // A client that accepts less has a limit of its own.
            for (len, udp_size, is_truncated, is_cut) in [
                (800, 4096, false, false),
                (801, 4096, true, true),
                (801, 801, true, true),
                (801, 799, true, false),
            ] {
                let (_, truncated, _) = ask(&mut client, len, udp_size);
                assert_eq!(truncated, is_truncated, "{len} {udp_size}");
                cut += u64::from(is_cut && of_network);
                let counters = client.server.transports.dns().counters();
                assert_eq!(counters.cut_for_network, cut, "{len} {udp_size} {sizes:?}");
            }
        }
    }
}
