//! The cells of the matrix: a sample for every run, and the cross product of paths and clients.

use std::time::Duration;

use nmio::Instant;

use crate::cell::{Cell, Control, End, FRAME, Route};
use crate::peer::{Acks, Behaviour, Reader};
use crate::router::Narrow;

const K: u64 = 1_000;
const M: u64 = 1_000_000;
const KB: usize = 1_000;
const MB: usize = 1_000_000;

/// Typical routes from the server: to a home, to a mobile phone, over a long fast line, and inside
/// a data centre.
const NEAR: Route = Route(100 * M, ms(20));
const MOBILE: Route = Route(10 * M, ms(60));
const FAR: Route = Route(100 * M, ms(200));
const INSIDE: Route = Route(10_000 * M, ms(1));
/// The route between two hosts of one rack.
const RACK: Route = Route(10_000 * M, Duration::from_micros(100));

/// Probabilities of loss, with their names in the results table.
const LOSSES: [(f64, &str); 4] = [(0.001, "0.1%"), (0.01, "1%"), (0.03, "3%"), (0.1, "10%")];

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn name(Route(rate, round_trip): Route) -> String {
    format!("{}M-{}ms", rate / M, round_trip.as_millis())
}

/// Returns the sample: the cells whose results are compared with the committed table.
pub(crate) fn sample() -> Vec<Cell> {
    let groups = [
        delays(),
        buffers(),
        random_loss(),
        regular_loss(),
        bursts(),
        ack_loss(),
        disorder(),
        marks(),
        mtus(),
        options(),
        acks(),
        windows(),
        readers(),
        short(),
        tails(),
        many(),
        controls(),
        paced(),
        smoltcp(),
    ];
    groups.into_iter().flatten().map(Cell::sized).collect()
}

/// Combinations of rate and delay, with a queue of one bandwidth-delay product.
fn delays() -> Vec<Cell> {
    let routes = [
        Route(M, ms(2)),
        Route(M, ms(600)),
        Route(10 * M, ms(2)),
        Route(10 * M, ms(20)),
        Route(10 * M, ms(100)),
        Route(10 * M, ms(600)),
        Route(100 * M, ms(2)),
        Route(100 * M, ms(20)),
        Route(100 * M, ms(100)),
        Route(100 * M, ms(600)),
        Route(1_000 * M, ms(2)),
        Route(1_000 * M, ms(20)),
        Route(1_000 * M, ms(100)),
        Route(10_000 * M, ms(2)),
        Route(10_000 * M, ms(10)),
    ];
    let cells = routes.map(|route| Cell::new(&format!("delay/{}", name(route)), route));
    let v6 = Cell::new("delay/100M-20ms-v6", NEAR).v6();
    cells.into_iter().chain([v6]).collect()
}

/// Queues from very shallow to very deep.
fn buffers() -> Vec<Cell> {
    let mut cells = Vec::new();
    let routes = [
        Route(M, ms(100)),
        MOBILE,
        NEAR,
        FAR,
        Route(1_000 * M, ms(10)),
        INSIDE,
    ];
    for route in routes {
        for percent in [5, 25, 400] {
            let name = format!("buffer/{percent}%bdp/{}", name(route));
            cells.push(Cell::new(&name, route).queue(percent));
        }
    }
    cells.push(
        Cell::new("buffer/1000frames/1M-40ms", Route(M, ms(40))).change(|cell| {
            cell.down.queue_bytes = 1000 * FRAME;
        }),
    );
    cells
}

fn random_loss() -> Vec<Cell> {
    let mut cells = Vec::new();
    let routes = [
        Route(M, ms(20)),
        Route(10 * M, ms(20)),
        MOBILE,
        NEAR,
        Route(100 * M, ms(100)),
        FAR,
        Route(100 * M, ms(600)),
        Route(1_000 * M, ms(20)),
        INSIDE,
    ];
    for (share, percent) in LOSSES {
        for route in routes {
            let name = format!("loss/{percent}/{}", name(route));
            cells.push(Cell::new(&name, route).loss(share));
        }
    }
    cells
}

/// Loss of every n-th data frame, so that losses never come in bursts.
fn regular_loss() -> Vec<Cell> {
    let mut cells = Vec::new();
    for every in [10, 33, 100, 1000] {
        for route in [MOBILE, NEAR, FAR] {
            let name = format!("every/{every}th/{}", name(route));
            cells.push(Cell::new(&name, route).lose_every(every));
        }
    }
    cells
}

fn bursts() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (share, percent) in LOSSES {
        for length in [3, 30] {
            for route in [MOBILE, NEAR] {
                let name = format!("bursts/{percent}-of-{length}ms/{}", name(route));
                cells.push(Cell::new(&name, route).bursts(share, ms(length)));
            }
        }
    }
    let far = Cell::new("bursts/1%-of-30ms/100M-200ms", FAR);
    cells.push(far.bursts(0.01, ms(30)));
    cells
}

/// Loss of ACKs only, and loss of ACKs and data.
fn ack_loss() -> Vec<Cell> {
    let mut cells = Vec::new();
    for percent in [1, 10, 30, 50] {
        let share = f64::from(percent) / 100.0;
        for route in [MOBILE, NEAR] {
            let name = format!("acks-lost/{percent}%/{}", name(route));
            cells.push(Cell::new(&name, route).ack_loss(share));
        }
    }
    for (share, percent) in LOSSES {
        let name = format!("both-lost/{percent}/{}", name(NEAR));
        cells.push(Cell::new(&name, NEAR).loss(share).ack_loss(share));
    }
    cells
}

/// Reordering by less and by more than a round trip, duplicated packets, and both with losses.
fn disorder() -> Vec<Cell> {
    let mut cells = Vec::new();
    for percent in [1, 10, 50] {
        let share = f64::from(percent) / 100.0;
        for by in [1, 5, 30] {
            let name = format!("reorder/{percent}%-by-{by}ms/{}", name(NEAR));
            cells.push(Cell::new(&name, NEAR).reorder(share, ms(by)));
        }
        let name = format!("double/{percent}%/{}", name(NEAR));
        cells.push(Cell::new(&name, NEAR).duplicate(share));
    }
    for (share, percent) in LOSSES {
        let name = format!("rough/{percent}/{}", name(NEAR));
        let cell = Cell::new(&name, NEAR).loss(share).duplicate(0.01);
        cells.push(cell.reorder(0.02, ms(4)));
    }
    cells.push(Cell::new("reorder/5%-by-30ms/100M-200ms", FAR).reorder(0.05, ms(30)));
    cells
}

/// Queues that mark packets with CE before they are so full that they drop packets.
fn marks() -> Vec<Cell> {
    let mut cells = Vec::new();
    for route in [MOBILE, NEAR, FAR] {
        for (queue, word) in [(30, "shallow"), (400, "deep")] {
            let name = format!("ecn/{word}/{}", name(route));
            let above = route.1.mul_f64(0.2);
            let cell = Cell::new(&name, route).queue(queue).mark_above(above);
            cells.push(cell.with(|peer| peer.ecn = true));
        }
    }
    let lossy = Cell::new("ecn/lossy/100M-20ms", NEAR)
        .mark_above(ms(4))
        .loss(0.01);
    cells.push(lossy.with(|peer| peer.ecn = true));
    let deaf = Cell::new("ecn/not-wanted/100M-20ms", NEAR).mark_above(ms(4));
    cells.push(deaf);
    cells
}

/// Links that carry only short packets.
fn mtus() -> Vec<Cell> {
    let narrow = |mtu: usize, from: u64, sends_icmp_errors: bool| {
        move |cell: &mut Cell| {
            cell.len = 2 * MB;
            cell.narrow = Some(Narrow {
                mtu,
                from: Instant::from_millis(from),
                sends_icmp_errors,
            });
        }
    };
    let mut cells = Vec::new();
    for (word, sends_icmp_errors) in [("told", true), ("black-hole", false)] {
        for mtu in [576, 1280, 1400] {
            let cell = Cell::new(&format!("mtu/{word}-{mtu}/100M-20ms"), NEAR);
            cells.push(cell.change(narrow(mtu, 0, sends_icmp_errors)));
        }
        let cell = Cell::new(&format!("mtu/{word}-1400-later/100M-20ms"), NEAR);
        cells.push(cell.change(narrow(1400, 300, sends_icmp_errors)));
        let cell = Cell::new(&format!("mtu/{word}-1280-v6/100M-20ms"), NEAR).v6();
        cells.push(cell.change(narrow(1280, 0, sends_icmp_errors)));
        let cell = Cell::new(&format!("mtu/{word}-1400-lossy/100M-20ms"), NEAR).loss(0.01);
        cells.push(cell.change(narrow(1400, 0, sends_icmp_errors)));
    }
    cells
}

/// Combinations of TCP options that a client may use, with their names in the results table.
fn dialects() -> Vec<(&'static str, Behaviour)> {
    let all = Behaviour::default;
    let none = || Behaviour {
        window_scale: None,
        sack: false,
        dsack: false,
        timestamps: false,
        ..all()
    };
    vec![
        ("all", all()),
        ("none", none()),
        (
            "no-mss-either",
            Behaviour {
                mss: None,
                ..none()
            },
        ),
        (
            "only-scale",
            Behaviour {
                window_scale: Some(10),
                ..none()
            },
        ),
        (
            "only-sack",
            Behaviour {
                sack: true,
                dsack: true,
                ..none()
            },
        ),
        (
            "only-stamps",
            Behaviour {
                timestamps: true,
                ..none()
            },
        ),
        (
            "no-scale",
            Behaviour {
                window_scale: None,
                ..all()
            },
        ),
        (
            "no-sack",
            Behaviour {
                sack: false,
                dsack: false,
                ..all()
            },
        ),
        (
            "no-stamps",
            Behaviour {
                timestamps: false,
                ..all()
            },
        ),
        (
            "no-dsack",
            Behaviour {
                dsack: false,
                ..all()
            },
        ),
    ]
}

/// Cells with clients that lack some TCP options, or that discard data beyond a gap.
fn options() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (word, behaviour) in dialects() {
        let with = |name: &str| {
            let name = format!("options/{word}/{name}");
            Cell::new(&name, NEAR).with(|peer| *peer = behaviour.clone())
        };
        cells.push(with("clean").queue(30));
        cells.push(with("loss-1%").loss(0.01));
        cells.push(with("bursts-3%").bursts(0.03, ms(3)));
        cells.push(with("reorder-10%").reorder(0.1, ms(5)));
        cells.push(with("loss-10%").loss(0.1));
    }
    for every in [50, 1000] {
        for (share, percent) in [(0.01, "1%"), (0.03, "3%")] {
            let name = format!("options/renege-{every}/loss-{percent}");
            let cell = Cell::new(&name, NEAR).loss(share);
            cells.push(cell.with(|peer| peer.renege_every = every));
        }
    }
    cells
}

/// Cells with clients that acknowledge at different times and in different ways.
fn acks() -> Vec<Cell> {
    let all = Acks::default;
    let habits = [
        ("each", Acks { every: 1, ..all() }),
        (
            "after-200ms",
            Acks {
                after: ms(200),
                ..all()
            },
        ),
        ("stretch-8", Acks { every: 8, ..all() }),
        (
            "stretch-32",
            Acks {
                every: 32,
                after: ms(5),
                ..all()
            },
        ),
        (
            "divided-4",
            Acks {
                divided: 4,
                ..all()
            },
        ),
        (
            "ahead",
            Acks {
                ahead: 4 * 1448,
                ..all()
            },
        ),
    ];
    let mut cells = Vec::new();
    for (word, acks) in habits {
        let with = |name: &str| {
            let name = format!("acks/{word}/{name}");
            Cell::new(&name, NEAR).with(|peer| peer.acks = acks)
        };
        if acks.ahead > 0 {
            // Data that is acknowledged before it arrives is never retransmitted, so the path must
            // not lose data.
            let cell = with("clean")
                .queue(400)
                .with(|peer| peer.buffer = 256 << 10);
            cells.push(cell);
            continue;
        }
        cells.push(with("clean"));
        cells.push(with("loss-1%").loss(0.01));
        cells.push(with("bursts-3%").bursts(0.03, ms(3)));
    }
    cells
}

/// Receive buffers, window scales and segment sizes of the client.
fn windows() -> Vec<Cell> {
    let mut cells = Vec::new();
    for kilobytes in [2, 8, 64, 512] {
        for (share, word) in [(0.0, "clean"), (0.01, "loss-1%")] {
            let name = format!("window/{kilobytes}K/{word}");
            let cell = Cell::new(&name, NEAR).loss(share);
            cells.push(cell.with(|peer| peer.buffer = kilobytes << 10));
        }
    }
    for shift in [0, 1, 14] {
        let cell = Cell::new(&format!("window/shift-{shift}"), FAR).loss(0.001);
        cells.push(cell.with(|peer| peer.window_scale = Some(shift)));
    }
    for mss in [88, 256, 536, 1200, 8960] {
        for (share, word) in [(0.0, "clean"), (0.03, "loss-3%")] {
            let cell = Cell::new(&format!("mss/{mss}/{word}"), NEAR).loss(share);
            let cell = cell.bytes(MB.min(20 * KB * usize::from(mss)));
            cells.push(cell.with(|peer| peer.mss = Some(mss)));
        }
    }
    cells
}

/// Client applications that read slowly, pause, or stop reading.
fn readers() -> Vec<Cell> {
    let mut cells = Vec::new();
    let reads = |name: &str, reader: Reader| {
        let cell = Cell::new(&format!("reader/{name}"), NEAR).bytes(MB);
        cell.with(|peer| (peer.reader, peer.buffer) = (reader, 128 << 10))
    };
    cells.push(reads("slow-100K", Reader::Slow(100 * K)));
    cells.push(reads("slow-1M", Reader::Slow(M)));
    cells.push(reads("slow-1M/loss-1%", Reader::Slow(M)).loss(0.01));
    cells.push(reads("slow-1M/acks-lost-30%", Reader::Slow(M)).ack_loss(0.3));
    for seconds in [1, 10, 30] {
        let pause = Reader::Pause {
            at: 400 * K,
            lasting: ms(1000 * seconds),
        };
        cells.push(reads(&format!("pause-{seconds}s"), pause));
        cells.push(
            reads(&format!("pause-{seconds}s/loss-10%"), pause)
                .loss(0.1)
                .ack_loss(0.1),
        );
    }
    let for_good = Reader::Pause {
        at: 400 * K,
        lasting: ms(10_000_000),
    };
    cells.push(reads("never", for_good).change(|cell| cell.end = End::Waits));
    cells
}

/// Short responses, either all on the same connection or each on a new connection. They test the
/// detection of losses near the end of a response, because these losses take longest to detect.
fn short() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (share, percent) in [(0.0, "0%")].into_iter().chain(LOSSES) {
        for kilobytes in [5, 30, 150] {
            let cell = Cell::new(&format!("requests/{percent}/{kilobytes}KB"), NEAR).loss(share);
            cells.push(cell.bytes(kilobytes * KB).change(|cell| {
                (cell.times, cell.think) = (40, ms(50));
            }));
            let cell = Cell::new(&format!("visits/{percent}/{kilobytes}KB"), NEAR).loss(share);
            cells.push(cell.bytes(kilobytes * KB).change(|cell| {
                cell.up.loss = share;
                (cell.connections, cell.apart) = (40, ms(250));
            }));
        }
    }
    let idle = Cell::new("requests/idle-2s/300KB", FAR).bytes(300 * KB);
    cells.push(idle.change(|cell| (cell.times, cell.think) = (5, ms(2000))));
    cells
}

/// Short responses over a very short path, where a lost tail must not wait for a timer that suits
/// the Internet. Some clients delay the ACK of a response with one segment by 40 ms, and the others
/// do not.
fn tails() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (share, percent) in [(0.0, "0%"), (0.01, "1%"), (0.1, "10%")] {
        for kilobytes in [1, 30] {
            for (every, word) in [(2, "delayed"), (1, "prompt")] {
                let name = format!("tails/{percent}/{kilobytes}KB-{word}");
                let cell = Cell::new(&name, RACK).loss(share).bytes(kilobytes * KB);
                let cell = cell.with(|peer| peer.acks.every = every);
                cells.push(cell.change(|cell| (cell.times, cell.think) = (200, ms(50))));
            }
        }
    }
    cells
}

/// Many simultaneous connections over one bottleneck.
fn many() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (connections, route, len) in [
        (2, NEAR, 10 * MB),
        (10, NEAR, 2 * MB),
        (50, NEAR, 500 * KB),
        (10, MOBILE, 500 * KB),
        (100, MOBILE, 50 * KB),
        (4, FAR, 5 * MB),
    ] {
        for (percent, word) in [(20, "shallow"), (200, "deep")] {
            let name = format!("flows/{connections}-{word}/{}", name(route));
            let cell = Cell::new(&name, route).bytes(len).queue(percent);
            cells.push(cell.change(|cell| cell.connections = connections));
        }
    }
    cells
}

/// Congestion control algorithms other than CUBIC.
fn controls() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (control, word) in [
        (Control::NewReno, "newreno"),
        (Control::Reno, "reno"),
        (Control::Bbr, "bbr"),
    ] {
        let with = |name: &str, route: Route| {
            let name = format!("control/{word}/{name}");
            Cell::new(&name, route).change(|cell| cell.control = control)
        };
        cells.push(with("clean", NEAR));
        cells.push(with("shallow", NEAR).queue(10));
        cells.push(with("deep", MOBILE).queue(400));
        cells.push(with("loss-0.1%", FAR).loss(0.001));
        cells.push(with("loss-3%", NEAR).loss(0.03));
        cells.push(with("bursts-3%", NEAR).bursts(0.03, ms(3)));
        cells.push(with("reorder-10%", NEAR).reorder(0.1, ms(5)));
        let shared = with("10-flows", NEAR).bytes(2 * MB);
        cells.push(shared.change(|cell| cell.connections = 10));
    }
    cells
}

/// Servers that pace their segments.
fn paced() -> Vec<Cell> {
    let with = |name: &str, route: Route| {
        let cell = Cell::new(&format!("paced/{name}"), route);
        cell.change(|cell| cell.is_paced = true)
    };
    vec![
        with("fast", Route(1_000 * M, ms(50))),
        with("clean", NEAR),
        with("shallow", NEAR).queue(10),
        with("deep", MOBILE).queue(400),
        with("loss-0.1%", FAR).loss(0.001),
    ]
}

fn smoltcp() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (share, percent) in [(0.0, "0%")].into_iter().chain(LOSSES) {
        for route in [MOBILE, NEAR] {
            let cell = Cell::new(&format!("smoltcp/{percent}/{}", name(route)), route);
            cells.push(cell.loss(share).smoltcp(65_535));
        }
    }
    let cell = |name: &str| Cell::new(&format!("smoltcp/{name}"), NEAR).smoltcp(1 << 20);
    cells.push(cell("wide/clean"));
    cells.push(cell("wide/loss-1%").loss(0.01));
    cells.push(cell("wide/reorder-10%").reorder(0.1, ms(5)));
    cells.push(cell("wide/bursts-1%").bursts(0.01, ms(3)));
    cells.push(cell("wide/v6").v6());
    cells.push(cell("visits/3%").loss(0.03).bytes(30 * KB).change(|cell| {
        (cell.connections, cell.apart) = (20, ms(250));
    }));
    cells
}

/// Returns the cross product of all paths and all clients.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut clients: Vec<(&str, Option<Behaviour>)> = vec![("smoltcp", None)];
    clients.extend(dialects().into_iter().map(|(word, all)| (word, Some(all))));
    for rate in [1, 10, 100, 1_000, 10_000] {
        for round_trip in [2, 20, 100, 600] {
            let route = Route(rate * M, ms(round_trip));
            for percent in [20, 200] {
                for (word, client) in &clients {
                    let name = format!("{}/{percent}%bdp/{word}", name(route));
                    cells.extend(troubles().into_iter().map(|(trouble, change)| {
                        let cell = Cell::new(&format!("{name}/{trouble}"), route);
                        let cell = change(cell.queue(percent));
                        match client {
                            Some(behaviour) => cell.with(|peer| *peer = behaviour.clone()),
                            None => cell.smoltcp(1 << 18),
                        }
                    }));
                }
            }
        }
    }
    cells.into_iter().map(Cell::sized).collect()
}

type Change = Box<dyn Fn(Cell) -> Cell>;

/// Faults of a path, with their names in the results table.
fn troubles() -> Vec<(String, Change)> {
    let mut all: Vec<(String, Change)> = vec![("nothing".to_owned(), Box::new(|cell| cell))];
    for ((share, percent), every) in LOSSES.into_iter().zip([1000, 100, 33, 10]) {
        all.push((
            format!("loss-{percent}"),
            Box::new(move |cell| cell.loss(share)),
        ));
        let change = Box::new(move |cell: Cell| cell.lose_every(every));
        all.push((format!("every-{every}th"), change));
        let change = Box::new(move |cell: Cell| cell.bursts(share, ms(5)));
        all.push((format!("bursts-{percent}"), change));
    }
    let by = |cell: &Cell| cell.round_trip() / 3;
    let reorder = move |cell: Cell| {
        let by = by(&cell);
        cell.reorder(0.05, by)
    };
    all.push(("reorder".to_owned(), Box::new(reorder)));
    let change = Box::new(move |cell: Cell| reorder(cell).loss(0.01).duplicate(0.01));
    all.push(("rough".to_owned(), change));
    all
}
