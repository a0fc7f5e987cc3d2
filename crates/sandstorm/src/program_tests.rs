//! Tests of the program.

use std::os::unix::fs::symlink;

use crate::date::{SlotWriter, Stamp};
use crate::limits::Limits;
use crate::sending::SPARE_RESIDENTS;
use crate::session::{Session, Step};
use control::Secret;
use tcpip::Bbr;

use crate::testing::World;

use super::*;

fn sandstorm(mode: SendMode, size: usize) -> (tempfile::TempDir, Sandstorm) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), vec![b'x'; size]).unwrap();
    std::fs::write(folder.path().join(".hidden"), b"").unwrap();
    let tcp = Config {
        mode,
        ..Config::default()
    };
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    let site = Site::load(folder.path(), &Limits::default(), |_| {}).unwrap();
    let program = Sandstorm::new(site, folder.path(), tcp);
    (folder, program)
}

fn context(addresses: &[&str]) -> WorkerContext {
    WorkerContext {
        index: 0,
        workers: 1,
        mac: [2, 0, 0, 0, 0, 1],
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        vlans: Vec::new(),
        own: true,
        mtu: 1500,
        resident_len: Ok(2048),
        port: 80,
        secret: Secret::random().unwrap(),
        bell: nmio::Bell::new().unwrap(),
    }
}

#[test]
fn the_start_block_names_the_congestion_control() {
    let line = |program: &dyn Fn(Sandstorm) -> Vec<(&'static str, String)>| {
        let (_folder, sandstorm) = sandstorm(SendMode::MemCopy, 100);
        program(sandstorm).pop().unwrap()
    };
    let named = |name: &str| ("congestion", name.to_owned());
    assert_eq!(line(&|sandstorm| sandstorm.loaded()), named("cubic"));
    let bbr = line(&|sandstorm| sandstorm.with_congestion::<Bbr>().loaded());
    assert_eq!(bbr, named("bbr"));
}

#[test]
fn the_port_gets_memory_for_every_packet_in_both_families() {
    // The file's head and body together take nine segments, and every other reply takes one.
    let (_folder, program) = sandstorm(SendMode::PreCopy, 9 * 1_400);
    let v4 = program.packets(&context(&["10.0.0.1/24"]));
    let both = program.packets(&context(&["10.0.0.1/24", "fd00::1/64"]));
    let small = program.site().totals().replies - 1;
    assert_eq!(v4.count, small + 9);
    assert_eq!(both.count, 2 * v4.count);
    // Header lengths in bytes: Ethernet and TCP with timestamps, twice, then IPv4 and IPv6.
    let headers = 2 * (14 + 32) + 20 + 40;
    assert_eq!(
        both.bytes,
        2 * program.site().totals().reply_bytes + headers * v4.count
    );
    let plan = program.memory(&context(&["10.0.0.1/24", "fd00::1/64"]));
    assert_eq!(
        u64::from(plan.resident_frames),
        both.count + SPARE_RESIDENTS
    );
    let (_folder, program) = sandstorm(SendMode::MemCopy, 9 * 1_400);
    assert_eq!(
        program.memory(&context(&["10.0.0.1/24"])).resident_frames,
        0
    );
}

#[test]
fn a_worker_prepares_every_packet_as_a_resident() {
    let (_folder, program) = sandstorm(SendMode::PreCopy, 100_000);
    let context = context(&["10.0.0.1/24", "fd00::1/64"]);
    let plan = program.memory(&context);
    let mut port = nmio::sim::Sink::new(1500, 64, plan.resident_frames);
    let http = program.transports(&mut port, &context).unwrap();
    let totals = http.stack().contents().totals();
    let prepared = Program::prepared::<nmio::sim::Sink>(&program, &http);
    assert_eq!(totals.packets, prepared.packets);
    assert_eq!(totals.residents, prepared.packets);
    let mut tally = Tally::default();
    Program::tally::<nmio::sim::Sink>(&program, &http, &mut tally);
}

#[test]
fn the_bytes_of_an_old_response_are_freed_when_it_is_no_longer_sent() {
    let (folder, program) = sandstorm(SendMode::MemCopy, 1_500);
    let program = program.with_reloads(Limits::default(), false);
    let sent = Arc::clone(program.site().files().next().unwrap().1.bytes());
    std::fs::write(folder.path().join("index.html"), b"new").unwrap();
    program.reload(None).unwrap();
    assert!(program.free_unused() && program.free_unused());
    let freed = Arc::downgrade(&sent);
    drop(sent);
    assert!(freed.upgrade().is_some(), "the reload thread frees it");
    assert!(!program.free_unused());
    assert!(freed.upgrade().is_none());
}

#[test]
fn the_start_block_reports_the_loaded_files() {
    let (folder, program) = sandstorm(SendMode::MemCopy, 1_500);
    let lines = program.loaded();
    let path = folder.path().display();
    let expected = format!("1, 1.5 kB, from {path} (hidden entries left out: 1)");
    assert_eq!(lines[0], ("files", expected));
    let expected = "1; the log says why, and --strict would refuse to start".to_owned();
    assert_eq!(lines[1], ("left out", expected));
    assert_eq!(program.files().served, [folder.path().join("index.html")]);
}

#[test]
fn files_with_secrets_are_not_among_the_served_ones() {
    let folder = tempfile::tempdir().unwrap();
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(folder.path().join("index.html"), "text").unwrap();
    std::fs::write(key.path(), "x".repeat(16)).unwrap();
    let mut settings = crate::Settings::default();
    settings.set_etag_key(key.path());
    let limits = Limits::default();
    let site = Site::load_with(folder.path(), &limits, &settings, |_| {}).unwrap();
    let program = Sandstorm::new(site, folder.path(), Config::default());
    let files = program.files();
    assert_eq!(files.served, [folder.path().join("index.html")]);
    assert_eq!(files.to_reload, [key.path()]);
}

#[test]
fn a_redirected_host_keeps_path_and_query_also_after_a_reload() {
    let (folder, program) = sandstorm(SendMode::MemCopy, 100);
    let hosts = [
        "www.a.test=https://a.test",
        "*.b.test=http://b.test:8080/",
        "*.c.test=https://*",
    ];
    let hosts = hosts.map(|text| text.parse().unwrap());
    let program = program
        .with_reloads(Limits::default(), false)
        .with_redirect_hosts(&hosts);
    let respond = |host: &str, target: &str| {
        let site = program.site();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let Step::Answer(answer) = Session::default().next(&site, request.as_bytes()) else {
            panic!("the request is complete");
        };
        let (mut slots, mut out) = (SlotWriter::new(), Vec::new());
        let stamp = Stamp::new(0, false);
        answer.write(&site, request.as_bytes(), stamp, &mut slots, &mut out);
        String::from_utf8(out).unwrap()
    };
    for content in ["old", "new"] {
        std::fs::write(folder.path().join("index.html"), content).unwrap();
        program.reload(None).unwrap();
        for (host, target, location) in [
            ("www.a.test", "/", "https://a.test/"),
            ("WWW.A.TEST:80", "/x/y?q=1", "https://a.test/x/y?q=1"),
            ("x.b.test", "/%2e/", "http://b.test:8080/./"),
            ("x.c.test:80", "/x", "https://x.c.test/x"),
        ] {
            let response = respond(host, target);
            assert!(response.starts_with("HTTP/1.1 301 "), "{response}");
            let field = format!("\r\nLocation: {location}\r\n");
            assert!(response.contains(&field), "{response}");
        }
        for host in ["a.test", "b.test", "other.test"] {
            assert!(respond(host, "/").ends_with(content), "{host}");
        }
    }
    let lines = program.loaded();
    let redirects: Vec<_> = lines
        .iter()
        .filter(|(name, _)| *name == "redirects")
        .collect();
    assert_eq!(redirects[0].1, "www.a.test to https://a.test");
    assert_eq!(redirects.len(), 3);
}

#[test]
fn redirected_hosts_have_the_fields_that_a_reload_gives_to_all_responses() {
    let (folder, program) = sandstorm(SendMode::MemCopy, 100);
    let hosts = ["a.test=https://b.test"].map(|text| text.parse().unwrap());
    let program = program
        .with_reloads(Limits::default(), false)
        .with_redirect_hosts(&hosts);
    let has_field = |host: &str| {
        let site = program.site();
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let Step::Answer(answer) = Session::default().next(&site, request.as_bytes()) else {
            panic!("the request is complete");
        };
        answer.of(&site).has_field("x-frame-options")
    };
    assert!(!has_field("a.test") && !has_field("c.test"));
    let part = Arc::clone(&program.parts.now()[0].part);
    let mut next = part.loading().clone();
    next.settings.add_security_headers().unwrap();
    part.set_next(next);
    program.reload(None).unwrap();
    assert!(has_field("a.test") && has_field("c.test"));
    // Rules about all paths hold for redirects, too.
    let rules = folder.path().join("_headers");
    for (text, is_expected) in [("/*\n  ! X-Frame-Options\n", false), ("", true)] {
        std::fs::write(&rules, text).unwrap();
        program.reload(None).unwrap();
        assert_eq!(has_field("a.test"), is_expected, "{text}");
    }
    std::fs::write(&rules, "/*\n  X-A: b\n").unwrap();
    let site = Site::load(folder.path(), &Limits::default(), |_| {}).unwrap();
    let program =
        Sandstorm::new(site, folder.path(), Config::default()).with_redirect_hosts(&hosts);
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let Step::Answer(answer) = Session::default().next(&program.site(), request) else {
        panic!("the request is complete");
    };
    assert!(answer.of(&program.site()).has_field("x-a"));
}

#[test]
fn each_site_of_a_port_has_its_counts() {
    let program = |hosts: &[&str]| {
        let (folder, program) = sandstorm(SendMode::MemCopy, 100);
        let hosts: Vec<_> = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let name = format!("site {}", hosts.len());
        (folder, program.with_hosts(&hosts).with_name(&name))
    };
    let (_first, all) = program(&[]);
    let (_second, second) = program(&["b.test"]);
    let (_third, third) = program(&["c.test", "d.test"]);
    let redirect = "www.c.test=https://c.test".parse().unwrap();
    let program = all
        .with_site(second)
        .with_site(third.with_redirect_hosts(&[redirect]));
    assert_eq!(program.name(), "site 0 + site 1 + site 2");
    let site = program.site();
    let mut world = World::new(&site, SiteOnly, SendMode::MemCopy, |http, _| http, || {});
    let get =
        |(host, target): (&str, &str)| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let requests = [
        ("a.test", "/"),
        ("b.test", "/"),
        ("B.TEST:80", "/none"),
        ("c.test", "/"),
        ("d.test", "/"),
        ("www.c.test", "/"),
        ("d.test", "/"),
    ];
    let last = "GET / HTTP/1.0\r\nHost: a/b\r\n\r\n".to_owned();
    world.connect(&(requests.map(get).concat() + &last));
    assert!(world.run(|_| false));
    let web = world.server.transports.stack().app();
    let mut tally = Tally::default();
    let hosted = web.hosted_counters();
    tally_sites(&mut tally, web.counters(), (&site.known(), hosted));
    let counts: Vec<_> = tally.events().iter().map(ToString::to_string).collect();
    let expected = [
        "site 0: requests 1",
        "site 0: answers 200 1",
        "site 1: requests 2",
        "site 1: answers 200 1",
        "site 1: answers 404 1",
        "site 2: requests 4",
        "site 2: answers 200 3",
        "site 2: answers 301 1",
        "no site: requests 1",
        "no site: answers 400 1",
    ];
    assert_eq!(counts, expected);
}

/// Loads a folder with a budget, for a program that chooses its mode.
fn choosing(size: usize, budget: u64) -> (tempfile::TempDir, Sandstorm) {
    let (folder, _) = sandstorm(SendMode::MemCopy, size);
    let settings = crate::Settings {
        memory: Some(MemoryBudget::new(budget).with_pinned(budget)),
        ..crate::Settings::default()
    };
    let site = Site::load_with(folder.path(), &Limits::default(), &settings, |_| {}).unwrap();
    let program = Sandstorm::new(site, folder.path(), Config::default()).with_chosen_mode(true);
    (folder, program.with_reloads(Limits::default(), false))
}

#[test]
fn packets_are_resident_if_the_memory_suffices() {
    let context = context(&["10.0.0.1/24"]);
    for (budget, is_resident) in [(30_000_000, true), (10_000_000, false)] {
        let (_folder, program) = choosing(100_000, budget);
        let plan = program.memory(&context);
        let mut port = nmio::sim::Sink::new(1500, 64, plan.resident_frames);
        let http = program.transports(&mut port, &context).unwrap();
        let residents = http.stack().contents().totals().residents;
        let packets = if is_resident { http.packets().count } else { 0 };
        assert_eq!(residents, packets, "{budget}");
        let lines = program.loaded();
        let mode = lines.iter().find(|(label, _)| *label == "mode").unwrap();
        let name = if is_resident { "pre-copy" } else { "memcopy" };
        assert!(mode.1.starts_with(name), "{}", mode.1);
    }
}

#[test]
fn a_reload_keeps_the_mode_and_counts_the_resident_packets() {
    let (folder, program) = choosing(1_000_000, 30_000_000);
    let context = context(&["10.0.0.1/24"]);
    let taken = program.sending(&context).taken();
    assert!(taken > 10_000_000, "{taken}");
    // The second file fits only without the packets.
    for (len, is_in_memory) in [(8_000_000, true), (20_000_000, false)] {
        std::fs::write(folder.path().join("new"), vec![b'x'; len]).unwrap();
        program.reload(None).unwrap();
        let totals = *program.site().totals();
        assert_eq!(totals.disk_files, u64::from(!is_in_memory));
        assert!(totals.memory() + taken <= 30_000_000 / 4 * 3);
        assert_eq!(program.sending(&context).mode, SendMode::PreCopy);
    }
}

#[test]
fn each_site_reports_its_memory_and_its_files() {
    let (_folder, program) = choosing(100_000, 30_000_000);
    let context = context(&["10.0.0.1/24"]);
    let taken = program.sending(&context).taken();
    let counts = |program: &Sandstorm| -> Vec<String> {
        let mut tally = Tally::default();
        program.tally_memory(&mut tally, &program.site());
        tally.events().iter().map(ToString::to_string).collect()
    };
    let of = |program: &Sandstorm| program.parts.now()[0].part.site().totals().memory();
    let used = of(&program);
    let expected = |site: &str, used: u64, packets: u64| {
        [
            format!("{site}site memory budget bytes 30000000"),
            format!("{site}site memory bytes responses {used}"),
            format!("{site}site memory bytes packets {packets}"),
            format!("{site}site files memory 1"),
            format!("{site}site files disk 0"),
        ]
    };
    assert_eq!(counts(&program), expected("", used, taken));

    let (_folder, other) = choosing(50_000, 30_000_000);
    let other = other.with_hosts(&["b.test".parse().unwrap()]);
    let less = of(&other);
    let program = program.with_name("a").with_site(other.with_name("b"));
    let both = [expected("a: ", used, taken), expected("b: ", less, 0)].concat();
    assert_eq!(counts(&program), both);
}

#[test]
fn replies_that_nobody_sends_are_freed_also_if_sites_share_them() {
    let (folder, program) = sandstorm(SendMode::MemCopy, 1_500);
    let (_other, other) = sandstorm(SendMode::MemCopy, 1_500);
    let page = folder.path().join("404.html");
    std::fs::write(&page, "old").unwrap();
    let hosted = |program: Sandstorm, host: &str| {
        program
            .with_reloads(Limits::default(), false)
            .with_hosts(&[host.parse().unwrap()])
    };
    let program = hosted(program, "a.test").with_site(hosted(other, "b.test"));
    for text in ["new", "newer"] {
        std::fs::write(&page, text).unwrap();
        program.reload(None).unwrap();
        assert!(!program.free_unused(), "{text}");
    }
}
