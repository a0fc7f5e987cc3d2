//! Tests what happens if the memory for files is short.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::Sink;
use nmio::{Bell, Clock as _, Handler as _, Instant};
use tcpip::{Config, SendMode};
use testkit::noise;
use testkit::smol::Talk;
use testkit::{Direct, SERVER, SERVER_MAC};

use crate::disk::{CHUNK_LEN, Chunks, Reads};
use crate::limits::Limits;
use crate::load::Progress;
use crate::memory_budget::MemoryBudget;
use crate::settings::Settings;
use crate::testing::{World, request, take_response};
use crate::{Http, Server, Site, SiteOnly};

/// Loads a folder whose files do not fit into memory. Returns the warnings too.
fn load(folder: &Path) -> (Arc<Site>, Vec<String>) {
    let settings = Settings {
        memory: Some(MemoryBudget::new(0)),
        ..Settings::default()
    };
    let mut warnings = Vec::new();
    let site = Site::load_with(folder, &Limits::default(), &settings, |one| {
        if let Progress::Warning { warning, .. } = one {
            warnings.push(warning.to_string());
        }
    });
    (Arc::new(site.unwrap()), warnings)
}

#[test]
fn a_file_stays_in_memory_if_the_disk_would_take_more_and_too_small_a_budget_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    for len in [0, 256, 257] {
        fs::write(folder.path().join(format!("{len}")), noise(1, len)).unwrap();
    }
    let (site, warnings) = load(folder.path());
    assert_eq!((site.totals().files, site.totals().disk_files), (3, 1));
    let [warning] = &*warnings else {
        panic!("{warnings:?}");
    };
    assert!(
        warning.contains("more than the budget of 0 B; raise --memory"),
        "{warning}"
    );
    // The default has no budget.
    let site = Site::load(folder.path(), &Limits::default(), |one| {
        assert!(!matches!(one, Progress::Warning { .. }));
    });
    assert_eq!(site.unwrap().totals().disk_files, 0);
}

/// A server with one file on the disk, and with memory for 63 of its chunks.
struct Rig {
    world: World,
    content: Vec<u8>,
    /// Length of the part of each client.
    part: usize,
}

impl Rig {
    fn new(parts: usize, part: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let content = noise(1, parts * part);
        fs::write(folder.path().join("a.bin"), &content).unwrap();
        let (site, _) = load(folder.path());
        let reads = Arc::new(Reads::default());
        let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, 0, bell));
        let work = Arc::clone(&reads);
        // The folder lives as long as the server.
        let work = move || {
            let _ = &folder;
            work.work_all();
        };
        Self {
            world: World::new(&site, SiteOnly, SendMode::MemCopy, chunks, work),
            content,
            part,
        }
    }

    /// Adds a client that asks for the part with this number.
    fn connect(&mut self, number: usize, talk: Talk) {
        let (from, last) = (number * self.part, (number + 1) * self.part - 1);
        let fields = format!("Range: bytes={from}-{last}\r\nConnection: close\r\n");
        let bytes = request("GET", "/a.bin", &fields).into_bytes();
        self.world.client.connect(80, Talk { bytes, ..talk });
    }

    /// Checks that a client has got its part.
    fn check(&self, number: usize) {
        let mut rest = self.world.received(number);
        let (line, _, body) = take_response(&mut rest, true);
        assert_eq!(line, "HTTP/1.1 206 Partial Content");
        assert!(
            body == &self.content[number * self.part..][..self.part],
            "{number}"
        );
    }

    fn gave_way(&self) -> u64 {
        let web = self.world.server.transports.stack().app();
        web.disk_counts().unwrap().1
    }
}

#[test]
fn clients_that_read_slower_than_the_network_keep_their_connections() {
    const SLOW: usize = 100;
    // Each has 20 kB/s, and reads often or seldom. One has a short buffer, and the other a long one.
    let kinds = [
        (2_000, Duration::from_millis(100), 16_384),
        (30_000, Duration::from_millis(1_500), 65_535),
    ];
    for (len, pause, buffer) in kinds {
        let mut rig = Rig::new(SLOW + 1, 6 * CHUNK_LEN);
        for number in 0..SLOW {
            let talk = Talk {
                buffers: (buffer, 1_000),
                reads: (len, pause),
                ..Talk::default()
            };
            rig.connect(number, talk);
        }
        let start = Instant::ZERO + Duration::from_secs(2);
        let talk = Talk {
            server: SERVER[1],
            start,
            ..Talk::default()
        };
        rig.connect(SLOW, talk);
        assert!(rig.world.run(|client| client.connections[SLOW].done));
        let took = rig.world.link.clock.now().since(start);
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert!(rig.world.run(|_| false), "some clients get nothing more");
        (0..=SLOW).for_each(|number| rig.check(number));
        assert_eq!(rig.gave_way(), 0);
        // With memory for all of them, they would need 20 s.
        let took = rig.world.link.clock.now();
        assert!(took < Instant::ZERO + Duration::from_secs(40), "{took:?}");
    }
}

#[test]
fn clients_that_read_nothing_hold_no_memory() {
    const IDLE: usize = 300;
    let mut rig = Rig::new(IDLE + 1, 10 * CHUNK_LEN);
    for number in 0..IDLE {
        let talk = Talk {
            buffers: (2_000, 1_000),
            reads: (0, Duration::ZERO),
            ..Talk::default()
        };
        rig.connect(number, talk);
    }
    let start = Instant::ZERO + Duration::from_secs(3);
    rig.connect(
        IDLE,
        Talk {
            start,
            ..Talk::default()
        },
    );
    assert!(rig.world.run(|client| client.connections[IDLE].done));
    rig.check(IDLE);
    let took = rig.world.link.clock.now().since(start);
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(rig.gave_way(), 0);
    assert_eq!(
        rig.world
            .server
            .transports
            .stack()
            .app()
            .retry_downloads_at(),
        None
    );
}

#[test]
fn only_clients_below_the_rate_give_way() {
    const SLOW: usize = 30;
    const IDLE: usize = 50;
    // All of a response is written at once, so nothing of it is taken back.
    let mut rig = Rig::new(SLOW + IDLE + 1, CHUNK_LEN);
    for number in 0..SLOW + IDLE {
        let len = if number < SLOW { 2_000 } else { 0 };
        let talk = Talk {
            buffers: (4_000, 1_000),
            reads: (len, Duration::from_millis(100)),
            ..Talk::default()
        };
        rig.connect(number, talk);
    }
    rig.connect(SLOW + IDLE, Talk::default());
    let all = || (0..SLOW).chain([SLOW + IDLE]);
    assert!(
        rig.world
            .run(|client| all().all(|number| client.connections[number].done))
    );
    all().for_each(|number| rig.check(number));
    assert!(
        (1..=IDLE as u64).contains(&rig.gave_way()),
        "{}",
        rig.gave_way()
    );
    let (_, last) = rig.world.client.connections[SLOW + IDLE].arrived.unwrap();
    assert!(last < Instant::ZERO + Duration::from_secs(2), "{last:?}");
}

#[test]
fn a_response_with_chunks_that_are_in_memory_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.bin"), noise(1, 3 * CHUNK_LEN)).unwrap();
    let site = load(folder.path()).0;
    let (sink, bell) = (Sink::new(1500, 256, 256), Bell::new().unwrap());
    let (now, reads) = (Instant::from_millis(1_000), Arc::new(Reads::default()));
    let config = Config::on_ports(&[80]);
    let http = Http::<SiteOnly>::new(site, &SERVER, &config, &sink, [1, 2, 3, 4], now).unwrap();
    let http = http.with_chunks(Chunks::new(&reads, 0, &bell));
    let host = Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4]);
    let mut server = Server::new(host, http.with_wall_clock(|| UNIX_EPOCH)).with_bell(bell);
    let mut client = Direct::new(sink, now);
    client.connect(|sink, frame, now| server.handle_frame(sink, frame, now));
    for (method, fields) in [
        ("GET", ""),
        ("GET", "Range: bytes=70000-\r\n"),
        ("HEAD", ""),
    ] {
        let mut count = 0;
        for n in 0..60 {
            let fields = format!("X-Request: {n:04}\r\n{fields}");
            let request = request(method, "/a.bin", &fields);
            let each = client.request(request.as_bytes(), |sink, frame, now| {
                let handle = || server.handle_frame(sink, frame, now);
                let count = allocation_counter::measure(handle).count_total;
                if !reads.work_all().is_empty() {
                    server.handle_messages(sink, now);
                }
                count
            });
            count += if n < 40 { 0 } else { each };
        }
        assert_eq!(count, 0, "{method} {fields}");
    }
    let stack = server.transports.stack();
    assert_eq!(stack.app().counters().requests, 180);
    let (chunks, _) = stack.app().disk_counts().unwrap();
    assert_eq!(chunks.counts().read, 3);
}

#[test]
fn clients_that_wait_for_a_busy_disk_are_no_reason_to_reset_others() {
    // More than can be read at a time.
    const OTHERS: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("slow.bin"), noise(0, 60_000)).unwrap();
    for number in 0..OTHERS {
        fs::write(folder.path().join(format!("{number}")), noise(1, 300)).unwrap();
    }
    let (site, _) = load(folder.path());
    let (reads, is_stuck) = (Arc::new(Reads::default()), Rc::new(Cell::new(false)));
    let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, 1 << 30, bell));
    let (work, stuck) = (Arc::clone(&reads), Rc::clone(&is_stuck));
    let work = move || {
        if !stuck.get() {
            work.work_all();
        }
    };
    let mut world = World::new(&site, SiteOnly, SendMode::MemCopy, chunks, work);
    let slow = Talk {
        bytes: request("GET", "/slow.bin", "Connection: close\r\n").into_bytes(),
        buffers: (2_000, 1 << 16),
        reads: (2_000, Duration::from_secs(1)),
        ..Talk::default()
    };
    world.client.connect(80, slow);
    let run_for = |world: &mut World, time: Duration| {
        let end = world.link.clock.now() + time;
        world.run_until(|_, now| now >= end);
    };
    run_for(&mut world, Duration::from_secs(2));
    is_stuck.set(true);
    for number in 0..OTHERS {
        world.connect(&request(
            "GET",
            &format!("/{number}"),
            "Connection: close\r\n",
        ));
    }
    run_for(&mut world, Duration::from_secs(4));
    let web = world.server.transports.stack().app();
    assert_eq!(web.retry_downloads_at(), None, "there is memory");
    is_stuck.set(false);
    assert!(world.run(|_| false), "some clients get nothing");
    for number in 0..=OTHERS {
        let (line, _, body) = take_response(&mut world.received(number), true);
        let len = if number == 0 { 60_000 } else { 300 };
        assert_eq!((line, body.len()), ("HTTP/1.1 200 OK", len), "{number}");
    }
    let web = world.server.transports.stack().app();
    assert_eq!(web.disk_counts().unwrap().1, 0);
}

#[test]
fn a_client_with_many_downloads_does_not_keep_another_one_from_the_disk() {
    const MANY: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..=MANY {
        fs::write(folder.path().join(format!("{number}")), noise(1, 300)).unwrap();
    }
    let (site, _) = load(folder.path());
    let (reads, is_stuck) = (Arc::new(Reads::default()), Rc::new(Cell::new(true)));
    let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, 1 << 30, bell));
    let (work, stuck) = (Arc::clone(&reads), Rc::clone(&is_stuck));
    let work = move || {
        if !stuck.get() {
            work.work_some(4);
        }
    };
    let mut world = World::new(&site, SiteOnly, SendMode::MemCopy, chunks, work);
    let talk = |number: usize, server| Talk {
        bytes: request("GET", &format!("/{number}"), "Connection: close\r\n").into_bytes(),
        server,
        ..Talk::default()
    };
    for number in 0..MANY {
        world.client.connect(80, talk(number, SERVER[0]));
    }
    world.run_until(|_, now| now >= Instant::from_millis(3_000));
    // The other address of the client counts as another client.
    world.client.connect(80, talk(MANY, SERVER[1]));
    world.run_until(|_, now| now >= Instant::from_millis(4_000));
    is_stuck.set(false);
    assert!(world.run(|_| false), "some clients get nothing");
    let at = |number: usize| world.client.connections[number].arrived.unwrap().0;
    let earlier = (0..MANY).filter(|number| at(*number) < at(MANY)).count();
    assert!(earlier <= 150, "{earlier} of {MANY} came first");
}
