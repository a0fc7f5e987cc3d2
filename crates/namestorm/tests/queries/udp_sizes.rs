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
    client_of(&zone, sizes, mode, v6)
}

/// Returns a client of a server with these sizes and this zone.
fn client_of(zone: &str, sizes: &[&str], mode: ReplyMode, v6: bool) -> Client {
    let answers = prepare(&[("z.", zone)], FORMS[0]);
    let mut client = Client::new(&answers, mode, v6);
    let capabilities = client.sink.capabilities();
    let sizes: Vec<UdpSize> = sizes.iter().map(|size| size.parse().unwrap()).collect();
    let sizes = UdpSizes::new(&sizes).unwrap().fitting(capabilities.mtu);
    let sizes = Arc::new(sizes);
    let dns = Dns::new(Arc::clone(&answers), mode);
    let over_tcp = DnsOverTcp::with_hook(answers, IDLE_TIMEOUT, NoHook);
    let config = TcpSettings::default().stack;
    let mut transports =
        UdpAndTcp::with_hook(PORT, dns, over_tcp, &config, &capabilities, [5, 6, 7, 8]);
    transports.set_udp_sizes(&sizes);
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

/// Returns the sizes in which those of the client's networks are `of_network`.
fn sizes_of(others: u16, of_network: u16) -> [String; 3] {
    let of = |network: &str| format!("{network}={of_network}");
    [others.to_string(), of("192.0.2.0/24"), of("2001:db8::/32")]
}

fn cut_for_network(client: &Client) -> u64 {
    client.server.transports.dns().counters().cut_for_network
}

/// A reply is not among them if the client itself takes less, or the interface takes no more.
#[test]
fn replies_that_the_size_of_a_network_cuts_are_counted() {
    for (others, of_network, expected) in [
        (1400, 800, [0, 1, 1, 1, 1, 1]),
        (1400, 1400, [0; 6]),
        (600, 800, [0; 6]),
        (4096, 2000, [0; 6]),
        (4096, 1400, [0, 0, 0, 0, 1, 1]),
    ] {
        let sizes = sizes_of(others, of_network);
        let sizes = sizes.each_ref().map(String::as_str);
        for v6 in [false, true] {
            let mut client = client(&sizes, &[800, 801, 1400, 1401, 1452, 1453], MODES[0], v6);
            for ((len, udp_size), cut) in [
                (800, 4096),
                (801, 4096),
                (801, 801),
                (1400, 1400),
                (1401, 4096),
                (1452, 1452),
            ]
            .into_iter()
            .zip(expected)
            {
                let before = cut_for_network(&client);
                ask(&mut client, len, udp_size);
                let counted = cut_for_network(&client) - before;
                assert_eq!(counted, cut, "{len} {udp_size} {sizes:?}");
            }
            let before = cut_for_network(&client);
            let (_, truncated, _) = ask(&mut client, 801, 599);
            assert!(truncated);
            let plain = Query::new(&name("t801.z"), 16);
            assert_eq!(client.ask(&plain.bytes()).unwrap()[2] & 2, 2);
            assert_eq!(cut_for_network(&client), before, "{sizes:?}");
        }
    }
}

#[test]
fn replies_that_lack_only_additional_records_for_a_network_are_counted() {
    let mut zone = "@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns.x.\nm 60 MX 1 a\n".to_owned();
    for host in 1..60 {
        writeln!(zone, "a 60 A 192.0.2.{host}").unwrap();
    }
    let sizes = sizes_of(1232, 800);
    let sizes = sizes.each_ref().map(String::as_str);
    let mut client = client_of(&zone, &sizes, MODES[0], false);
    let query = Query {
        edns: Some((1232, 0, 0)),
        ..Query::new(&name("m.z"), 15)
    };
    let reply = client.ask(&query.bytes()).unwrap();
    assert!(reply[2] & 2 == 0 && reply.len() < 100);
    assert_eq!(cut_for_network(&client), 1);
}
