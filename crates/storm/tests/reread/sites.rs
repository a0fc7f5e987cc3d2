//! A reload adds and removes sites.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::{Rig, add_content, folder, run};

const ZONES: &str = "[[dns]]\nzones = [\"@/one.test.zone\"]\n";
const ONE: &str = "[[web]]\nroot = \"@/one\"\n";
/// Maximum time until something has happened that the server does on its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a site for the host of its name.
fn site(name: &str, more: &str) -> String {
    format!("[[web]]\nroot = \"@/{name}\"\nhosts = [\"{name}.test\"]\n{more}")
}

/// Returns a site for these hosts.
fn hosted(name: &str, hosts: &[&str], more: &str) -> String {
    format!("[[web]]\nroot = \"@/{name}\"\nhosts = {hosts:?}\n{more}")
}

/// Returns a file with these sites.
fn file(sites: &[&str]) -> String {
    sites.concat() + ZONES
}

/// Starts a server with these sites. There is content for a third one.
fn start(sites: &[&str]) -> Rig {
    let rig = Rig::start(&file(sites));
    add_content(rig.content.path(), "three");
    rig
}

impl Rig {
    /// Reloads a file with these sites. The reload must succeed without a word about a restart.
    fn take(&self, sites: &[&str]) -> String {
        self.write(&file(sites));
        let (succeeded, said) = self.reload(&[]);
        assert!(succeeded && !said.contains("restart"), "{said}");
        said
    }

    /// Checks that the page of each host ends with this text.
    fn expect(&self, pages: &[(&str, &str)]) {
        for (host, text) in pages {
            let page = self.page_of(host);
            assert!(page.ends_with(text), "{host}: {page}");
        }
    }

    /// Returns the number of requests of each site, by the value of the label. There is one worker.
    fn requests(&self) -> HashMap<String, u64> {
        // A worker publishes its counts at least four times a second.
        thread::sleep(Duration::from_millis(400));
        let metrics = self
            .metrics()
            .replace(self.content.path().to_str().unwrap(), "@");
        let lines = metrics.lines();
        let lines = lines.filter(|line| line.starts_with("sandstorm_requests_total"));
        let of = |line: &str| {
            let (labels, count) = line.rsplit_once(' ').unwrap();
            let site = labels.split_once("site=\"").map_or("", |(_, rest)| rest);
            let site = site.split('"').next().unwrap().to_owned();
            (site, count.parse().unwrap())
        };
        lines.map(of).collect()
    }
}

fn counts(counts: &[(&str, u64)]) -> HashMap<String, u64> {
    let counts = counts.iter();
    counts
        .map(|(site, count)| ((*site).to_owned(), *count))
        .collect()
}

#[test]
fn a_new_site_is_served_and_one_that_is_gone_is_not() {
    let (two, three) = (
        site("two", ""),
        site("three", "headers = [\"/* X-New: yes\"]\n"),
    );
    let rig = start(&[ONE, &two]);
    rig.expect(&[("two.test", "two"), ("three.test", "one")]);
    let said = rig.take(&[ONE, &two, &three]);
    assert!(said.contains("1 site is new: @/three; "), "{said}");
    assert!(rig.page_of("three.test").contains("X-New: yes"));
    rig.expect(&[("two.test", "two"), ("three.test", "three"), ("x", "one")]);
    // The new site has its name.
    fs::write(rig.content.path().join("three/index.html"), "new").unwrap();
    let name = rig.content.path().join("three");
    let (succeeded, said) = rig.reload(&[name.to_str().unwrap()]);
    assert!(succeeded && said.contains("@/three: 1 file"), "{said}");
    rig.expect(&[("three.test", "new")]);
    let said = rig.take(&[&three, ONE]);
    assert!(said.contains("1 site is gone: @/two; "), "{said}");
    rig.expect(&[("two.test", "one"), ("three.test", "new"), ("x", "one")]);
    let (succeeded, said) = rig.reload(&[rig.content.path().join("two").to_str().unwrap()]);
    assert!(
        !succeeded && said.contains("no content is called"),
        "{said}"
    );
    // Without a site for all other hosts, they get status 421.
    let said = rig.take(&[&two]);
    assert!(
        said.contains("1 site is new: @/two; 2 sites are gone: "),
        "{said}"
    );
    rig.expect(&[("two.test", "two")]);
    assert!(rig.page_of("three.test").starts_with("HTTP/1.1 421 "));
    rig.server.stop();
}

#[test]
fn counts_of_a_site_stay_when_it_is_gone_and_go_on_when_it_is_back() {
    let (two, three) = (site("two", ""), site("three", ""));
    let rig = start(&[ONE, &two]);
    rig.expect(&[("two.test", "two"), ("two.test", "two"), ("x", "one")]);
    rig.take(&[ONE, &three]);
    rig.expect(&[("three.test", "three"), ("two.test", "one")]);
    let gone = [("@/one", 2), ("@/two", 2), ("@/three", 1), ("no site", 0)];
    assert_eq!(rig.requests(), counts(&gone));
    rig.take(&[&two, &three]);
    rig.expect(&[("three.test", "three"), ("two.test", "two")]);
    assert!(rig.page().starts_with("HTTP/1.1 421 "));
    let back = [("@/one", 2), ("@/two", 3), ("@/three", 2), ("no site", 1)];
    assert_eq!(rig.requests(), counts(&back));
    rig.server.stop();
}

#[test]
fn a_site_that_was_alone_may_get_others() {
    let (two, three) = (site("two", ""), site("three", ""));
    let rig = start(&[&two]);
    rig.expect(&[("two.test", "two")]);
    assert_eq!(rig.requests(), counts(&[("", 1)]));
    rig.take(&[&two, &three, ONE]);
    rig.expect(&[("two.test", "two"), ("three.test", "three"), ("x", "one")]);
    let several = [("@/two", 2), ("@/three", 1), ("@/one", 1), ("no site", 0)];
    assert_eq!(rig.requests(), counts(&several));
    rig.server.stop();
}

#[test]
fn a_single_site_for_all_hosts_gets_hosts_and_others() {
    let logs = "[logs]\naccess-log = \"@/all.log\"\naccess-log-format = \"site,host\"\n";
    let one = "redirect-hosts = [\"a.test=http://b.test\"]\nheaders = [\"/* X-New: yes\"]\n";
    let (one, two) = (site("one", one), site("two", ""));
    let rig = start(&[logs, ONE]);
    rig.expect(&[("x", "one")]);
    assert_eq!(rig.requests(), counts(&[("", 1)]));
    let said = rig.take(&[logs, &one]);
    assert!(said.contains("hosts have changed"), "{said}");
    assert!(rig.page_of("one.test").contains("X-New"));
    assert!(rig.page_of("a.test").contains("Location: http://b.test/"));
    assert!(rig.page_of("x").starts_with("HTTP/1.1 421 "));
    assert_eq!(rig.requests(), counts(&[("", 4)]));
    rig.take(&[logs, &one, &two]);
    rig.expect(&[("one.test", "one"), ("two.test", "two")]);
    // What the site counted while it was alone remains its own.
    let both = [("@/one", 4), ("@/two", 1), ("no site", 1)];
    assert_eq!(rig.requests(), counts(&both));
    rig.take(&[logs, ONE]);
    rig.expect(&[("two.test", "one")]);
    rig.server.stop();
    let log = fs::read_to_string(rig.content.path().join("all.log")).unwrap();
    let log = log.replace(rig.content.path().to_str().unwrap(), "@");
    let lines: Vec<_> = log.lines().take(3).collect();
    assert_eq!(lines, ["@/one\tx", "@/one\tone.test", "@/one\ta.test"]);
}

#[test]
fn a_single_site_without_hosts_gets_another_one_in_one_reload() {
    let (two, three) = (site("two", ""), site("three", ""));
    let rig = start(&[ONE]);
    rig.take(&[ONE, &two]);
    rig.expect(&[("two.test", "two"), ("x", "one")]);
    rig.take(&[&three]);
    rig.expect(&[("three.test", "three")]);
    assert!(rig.page_of("two.test").starts_with("HTTP/1.1 421 "));
    rig.server.stop();
}

#[test]
fn old_and_new_sites_exchange_their_hosts_in_one_reload() {
    let hosts = |name: &str, hosts: &str| format!("[[web]]\nroot = \"@/{name}\"\n{hosts}");
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let (one, two) = (
        hosts("one", "hosts = [\"three.test\"]\n"),
        hosts("two", "hosts = [\"x.test\"]\n"),
    );
    let three = hosts("three", "hosts = [\"two.test\"]\n");
    let said = rig.take(&[&three, &one, &two]);
    // A site is known by its hosts rather than by its folder.
    let expected = "1 site is new: @/two:80; hosts have changed; ";
    assert!(said.contains(expected), "{said}");
    rig.expect(&[
        ("two.test", "three"),
        ("three.test", "one"),
        ("x.test", "two"),
    ]);
    // A site takes the hosts of one that is gone, and is for all others.
    let said = rig.take(&[&hosts("one", ""), &hosts("two", "hosts = [\"two.test\"]\n")]);
    assert!(said.contains("1 site is gone: @/two:80"), "{said}");
    rig.expect(&[
        ("two.test", "two"),
        ("three.test", "one"),
        ("x.test", "one"),
    ]);
    rig.server.stop();
}

#[test]
fn a_response_of_a_site_that_is_gone_ends_byte_for_byte() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let words = (0..8_000_000_u32).flat_map(u32::to_le_bytes);
    let content: Vec<u8> = words.collect();
    fs::write(rig.content.path().join("two/large"), &content).unwrap();
    rig.take(&[ONE, &two, "# More.\n"]);
    let mut client = rig.server.beside(|| {
        let mut client = TcpStream::connect((rig.server.addresses[0], 80)).unwrap();
        let request = "GET /large HTTP/1.1\r\nHost: two.test\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 1_000];
        client.read_exact(&mut first).unwrap();
        (client, first.to_vec())
    });
    rig.take(&[ONE]);
    fs::remove_dir_all(rig.content.path().join("two")).unwrap();
    rig.take(&[ONE]);
    rig.expect(&[("two.test", "one")]);
    client.0.read_to_end(&mut client.1).unwrap();
    assert!(client.1.ends_with(&content));
    rig.server.stop();
}

#[test]
fn a_new_site_may_be_the_first_one_with_a_password() {
    let rig = start(&[ONE, &site("two", "")]);
    rig.take(&[ONE, &site("three", "basic-auth = [\"/=@/users\"]\n")]);
    assert!(rig.page_of("three.test").starts_with("HTTP/1.1 401 "));
    let url = format!("http://{}/", rig.server.addresses[0]);
    let words = ["-sSi", "-u", "ali:sesame", "-H", "Host: three.test", &url];
    let page = rig.server.beside(|| run("curl", &words)).1;
    assert!(page.ends_with("three"), "{page}");
    rig.expect(&[("two.test", "one"), ("x", "one")]);
    rig.server.stop();
}

#[test]
fn a_new_site_with_a_mistake_changes_nothing() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let outside = folder();
    add_content(outside.path(), "four");
    let at = outside.path().display();
    let four = site("four", "").replace('@', &at.to_string());
    for (new, message) in [
        (site("three", "redirects = [\"/a\"]\n"), "redirects"),
        (site("none", ""), "there is no folder @/none"),
        (
            site(
                "three",
                "etag-key = \"@/three\"\nerror-pages = [\"404=/a\", \"404=/b\"]\n",
            ),
            "contradict",
        ),
        (
            site("three", "hosts = []\n").replace("hosts = [\"three.test\"]\n", ""),
            "both have TCP port 80",
        ),
        (four, "FILE:5:8: the server may not read "),
    ] {
        // The other changes of the file are not made either.
        rig.write(&file(&[
            &ONE.replace("one\"", "one\"\nheaders = [\"/* X-New: yes\"]"),
            &new,
        ]));
        for _ in 0..2 {
            let (succeeded, said) = rig.reload(&[]);
            assert!(!succeeded && said.contains("not reloaded"), "{said}");
            assert!(said.contains(message), "{message}: {said}");
        }
        rig.expect(&[("two.test", "two"), ("three.test", "one")]);
        assert!(!rig.page().contains("X-New"));
    }
    rig.server.stop();
}

#[test]
fn sites_come_and_go_only_if_all_can_be_loaded() {
    let (two, three) = (site("two", ""), site("three", "strict = true\n"));
    let rig = start(&[ONE, &two]);
    let rules = rig.content.path().join("three/_redirects");
    fs::write(&rules, "/a /nowhere 200\n").unwrap();
    rig.write(&file(&[ONE, &three]));
    for _ in 0..2 {
        let (succeeded, said) = rig.reload(&[]);
        assert!(!succeeded && said.contains("/nowhere"), "{said}");
        rig.expect(&[("two.test", "two"), ("three.test", "one")]);
        assert_eq!(rig.requests().len(), 3);
    }
    // What was to go has its name and its counts if it is back.
    rig.take(&[ONE, &two]);
    rig.expect(&[("two.test", "two")]);
    let expected = [("@/one", 2), ("@/two", 3), ("no site", 0)];
    assert_eq!(rig.requests(), counts(&expected));
    rig.write(&file(&[ONE, &three]));
    assert!(!rig.reload(&[]).0);
    fs::remove_file(rules).unwrap();
    assert_eq!(rig.reload_well(), None);
    rig.expect(&[("two.test", "one"), ("three.test", "three")]);
    rig.server.stop();
}

#[test]
fn a_host_never_has_rules_that_no_file_gives_to_it() {
    const LOCKED: &str = "basic-auth = [\"/=@/users\"]\n";
    let broken = site("three", "strict = true\n");
    let rig = start(&[
        &hosted("one", &["pub.test"], LOCKED),
        &hosted("one", &["int.test"], ""),
        &hosted("two", &["app.test"], LOCKED),
    ]);
    let rules = rig.content.path().join("three/_redirects");
    fs::write(&rules, "/a /nowhere 200\n").unwrap();
    let expect_status = |status: u16, hosts: &[&str]| {
        for host in hosts {
            let page = rig.page_of(host);
            let start = format!("HTTP/1.1 {status} ");
            assert!(page.starts_with(&start), "{host}: {page}");
        }
    };
    expect_status(401, &["pub.test", "app.test"]);
    // The first site has the folder of one with a password.
    rig.write(&file(&[
        &hosted("one", &["int.test", "int2.test"], ""),
        &hosted("one", &["pub.test", "www.pub.test"], LOCKED),
        &hosted("two", &["app.internal"], ""),
        &broken,
    ]));
    for _ in 0..2 {
        let (succeeded, said) = rig.reload(&[]);
        assert!(!succeeded && said.contains("/nowhere"), "{said}");
        expect_status(401, &["pub.test", "app.test"]);
        expect_status(421, &["www.pub.test", "int2.test", "app.internal"]);
        rig.expect(&[("int.test", "one")]);
    }
    fs::remove_file(rules).unwrap();
    assert_eq!(rig.reload_well(), None);
    expect_status(401, &["pub.test", "www.pub.test"]);
    expect_status(421, &["app.test"]);
    rig.expect(&[
        ("int.test", "one"),
        ("int2.test", "one"),
        ("app.internal", "two"),
        ("three.test", "three"),
    ]);
    rig.server.stop();
}

#[test]
fn sites_that_need_a_restart_are_named_and_others_come_and_go() {
    let (two, three) = (site("two", ""), site("three", ""));
    let rig = start(&[ONE, &two]);
    for more in [
        "port = 8080\n",
        "port = 8080\naddresses = [\"198.18.0.2\"]\n",
        "access-log = \"@/log\"\n",
        "compress-cache = \"@\"\n",
    ] {
        let new = site("three", more);
        rig.write(&file(&[ONE, &new]));
        let note = rig.reload_well().unwrap();
        let expected = ": a new [[web]] for @/three, root (FILE:4:1)";
        assert!(note.ends_with(expected), "{more}: {note}");
        rig.expect(&[("two.test", "one"), ("three.test", "one")]);
        rig.take(&[ONE, &two]);
        rig.expect(&[("two.test", "two")]);
    }
    // The server decides about connections as at its start, also for new sites.
    let limits = "[connections]\nmax-connections = 500\n";
    rig.write(&file(&[limits, ONE, &three]));
    let note = rig.reload_well().unwrap();
    let expected = ": max-connections (FILE:2:1), a new [[web]] for @/three, root (FILE:6:1)";
    assert!(note.ends_with(expected), "{note}");
    rig.take(&[ONE, &two]);
    // A site that moves to another port stays until the restart.
    rig.write(&file(&[ONE, &site("two", "port = 8080\n"), &three]));
    let note = rig.reload_well().unwrap();
    assert!(note.ends_with(": port (FILE:6:1)"), "{note}");
    rig.expect(&[("two.test", "two"), ("three.test", "three")]);
    // The last site of a port stays too.
    rig.write(&file(&[&site("two", "port = 8080\n")]));
    assert!(rig.reload_well().is_some());
    rig.expect(&[("two.test", "two")]);
    rig.take(&[ONE, &two, &three]);
    rig.expect(&[("two.test", "two"), ("three.test", "three"), ("x", "one")]);
    rig.server.stop();
}

#[test]
fn the_status_names_the_sites_that_are_served_now() {
    let other = "[[web]]\nroot = \"@/one\"\nport = 8080\n";
    let rig = start(&[ONE, &site("two", ""), other]);
    let socket = rig.etc.path().join("socket");
    let status = || {
        let socket = [
            "status",
            "--json",
            "--control-socket",
            socket.to_str().unwrap(),
        ];
        let (_, status) = run(super::STORM, &socket);
        status.replace(rig.content.path().to_str().unwrap(), "@")
    };
    assert!(status().contains("\"site\":\"@/one + @/two\",\"at\":"));
    let said = rig.take(&[other, &site("three", ""), ONE]);
    let named = "sandstorm: @/one + @/three: 1 site is new: @/three; 1 site is gone: @/two; ";
    assert!(said.contains(named), "{said}");
    let status = status();
    assert!(
        status.contains("\"site\":\"@/one + @/three\",\"at\":"),
        "{status}"
    );
    rig.server.stop();
}

#[test]
fn the_default_port_may_be_written_out() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let said = rig.take(&[ONE, &site("two", "port = 80\n")]);
    assert!(!said.contains("site is"), "{said}");
    rig.take(&[&format!("{ONE}port = 80\n"), &two]);
    rig.expect(&[("two.test", "two"), ("x", "one")]);
    rig.server.stop();
}

#[test]
fn a_site_is_known_by_the_file_that_was_read_last() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    // Its folder changes, and then its hosts.
    rig.take(&[ONE, &two.replace("@/two", "@/three")]);
    rig.expect(&[("two.test", "three")]);
    let said = rig.take(&[
        ONE,
        &two.replace("@/two", "@/three")
            .replace("two.test", "x.test"),
    ]);
    assert!(
        said.contains("hosts have changed; ") && !said.contains("site is"),
        "{said}"
    );
    rig.expect(&[("two.test", "one"), ("x.test", "three")]);
    // Its name is still that of its first folder.
    let said = rig.take(&[ONE, &two, &site("three", "")]);
    assert!(said.contains("1 site is new: @/two:80"), "{said}");
    rig.expect(&[("two.test", "two"), ("three.test", "three")]);
    rig.server.stop();
}

#[test]
fn the_log_names_new_sites_and_the_folder_of_one_is_watched() {
    let logs = "[logs]\naccess-log = \"@/all.log\"\naccess-log-format = \"site,host\"\n\
                [control]\nwatch = true\n";
    let two = site("two", "");
    let rig = start(&[logs, ONE, &two]);
    rig.expect(&[("two.test", "two")]);
    rig.take(&[logs, ONE, &site("three", "")]);
    rig.expect(&[("three.test", "three"), ("two.test", "one")]);
    fs::write(rig.content.path().join("three/index.html"), "watched").unwrap();
    let start = Instant::now();
    while !rig.page_of("three.test").ends_with("watched") {
        assert!(start.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(100));
    }
    rig.server.stop();
    let log = fs::read_to_string(rig.content.path().join("all.log")).unwrap();
    let log = log.replace(rig.content.path().to_str().unwrap(), "@");
    let lines: Vec<_> = log.lines().take(3).collect();
    let expected = ["@/two\ttwo.test", "@/three\tthree.test", "@/one\ttwo.test"];
    assert_eq!(lines, expected);
}

#[test]
fn no_two_sites_have_the_same_name() {
    let host = |host: &str| hosted("one", &[host], "");
    let rig = start(&[&host("a.test"), &host("b.test"), &host("c.test")]);
    rig.take(&[&host("a.test"), &host("b.test"), &host("d.test")]);
    // The third site has kept its name, which is made of its first host.
    let said = rig.take(&[
        &host("a.test"),
        &host("b.test"),
        &host("d.test"),
        &host("c.test"),
    ]);
    let expected = "1 site is new: @/one:80 (c.test) 2; ";
    assert!(said.contains(expected), "{said}");
    rig.expect(&[("c.test", "one"), ("d.test", "one"), ("c.test", "one")]);
    let expected = [
        ("@/one", 0),
        ("@/one:80", 0),
        ("@/one:80 (c.test)", 1),
        ("@/one:80 (c.test) 2", 2),
        ("no site", 0),
    ];
    assert_eq!(rig.requests(), counts(&expected));
    rig.server.stop();
}

#[test]
fn hosts_that_are_sent_elsewhere_change_with_the_sites() {
    let to = |host: &str, target: &str| format!("redirect-hosts = [\"{host}=http://{target}\"]\n");
    let (two, three) = (site("two", ""), site("three", ""));
    let with = |site: &str, more: &str| format!("{site}{more}");
    let rig = start(&[ONE, &with(&two, &to("www.two.test", "old.test"))]);
    let expect = |host: &str, target: &str| {
        let page = rig.page_of(host);
        assert!(page.contains(&format!("Location: {target}")), "{page}");
    };
    expect("www.two.test", "http://old.test/");
    let fields = "security-headers = true\n";
    let said = rig.take(&[ONE, &with(&two, &(to("www.two.test", "new.test") + fields))]);
    assert!(said.contains("hosts have changed; "), "{said}");
    expect("www.two.test", "http://new.test/");
    assert!(rig.page_of("www.two.test").contains("nosniff"));
    // The host moves to a site that is new, and its former site sends another one elsewhere.
    rig.take(&[
        ONE,
        &with(&two, &to("x.test", "two.test")),
        &with(&three, &to("www.two.test", "*").replace("http:", "https:")),
    ]);
    expect("www.two.test", "https://www.two.test/");
    expect("x.test", "http://two.test/");
    // A site gets the first one, and another site serves what was sent elsewhere.
    let said = rig.take(&[
        &with(ONE, &to("y.test", "one.test")),
        &hosted("two", &["two.test", "x.test"], ""),
        &three,
    ]);
    assert!(said.contains("hosts have changed; "), "{said}");
    expect("y.test", "http://one.test/");
    rig.expect(&[("x.test", "two"), ("www.two.test", "one"), ("z", "one")]);
    // What is the same is neither made nor sent anew.
    let said = rig.take(&[
        &with(ONE, &to("y.test", "one.test")),
        &hosted("two", &["x.test", "two.test"], ""),
        &three,
    ]);
    assert!(said.contains("nothing has changed"), "{said}");
    assert!(!said.contains("hosts have changed"), "{said}");
    rig.server.stop();
}

#[test]
fn a_host_that_two_sites_name_changes_nothing() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let redirect = "redirect-hosts = [\"two.test=http://x.test\"]\n";
    rig.write(&file(&[&format!("{ONE}{redirect}"), &two]));
    let (succeeded, said) = rig.reload(&[]);
    assert!(!succeeded && said.contains("two.test"), "{said}");
    rig.expect(&[("two.test", "two"), ("x", "one")]);
    rig.server.stop();
}

#[test]
fn a_site_that_was_never_served_has_the_options_of_the_newest_file() {
    let two = site("two", "");
    let rig = start(&[ONE, &two]);
    let rules = rig.content.path().join("three/_redirects");
    fs::write(&rules, "/a /nowhere 200\n").unwrap();
    let three = |target: &str| {
        let redirect = format!("redirect-hosts = [\"www.three.test=http://{target}\"]\n");
        site("three", &format!("strict = true\n{redirect}"))
    };
    rig.write(&file(&[ONE, &two, &three("old.test")]));
    let (succeeded, said) = rig.reload(&[]);
    assert!(!succeeded && said.contains("/nowhere"), "{said}");
    fs::remove_file(rules).unwrap();
    let said = rig.take(&[ONE, &two, &three("new.test")]);
    assert!(said.contains("1 site is new: @/three; "), "{said}");
    let page = rig.page_of("www.three.test");
    assert!(page.contains("Location: http://new.test/"), "{page}");
    rig.server.stop();
}

#[test]
fn a_site_that_is_gone_takes_no_place_of_one_that_is_served() {
    let (one, two) = (
        hosted("one", &["b.test"], ""),
        hosted("two", &["a.test"], ""),
    );
    let rig = start(&[&one, &two]);
    for other in [
        hosted("two", &["b.test"], ""),
        hosted("one", &["a.test"], ""),
    ] {
        rig.take(&[&one]);
        let said = rig.take(&[&other]);
        assert!(!said.contains("site is"), "{said}");
        rig.take(&[&one, &two]);
        rig.expect(&[("b.test", "one"), ("a.test", "two")]);
    }
    rig.server.stop();
}
