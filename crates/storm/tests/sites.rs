//! Serves several web sites from one process, as a configuration file describes them. Needs root.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::cli::run_briefly as run;
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
const ZONE: &str = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
/// Maximum time until something has happened that the server does on its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a `[[web]]` with this folder and `more` keys.
fn web(root: &str, more: &str) -> String {
    format!("[[web]]\nroot = \"{root}\"\n{more}")
}

/// Writes folders with a page each, a zone, and a configuration with `sites`.
fn prepare(folder: &Path, sites: &str) -> [String; 2] {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["one", "two", "three"] {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("index.html"), name).unwrap();
    }
    fs::write(folder.join("a.test.zone"), ZONE).unwrap();
    let at = folder.display();
    let sites = sites.replace("root = \"", &format!("root = \"{at}/"));
    let zones = format!("[[dns]]\nzones = [\"{at}/a.test.zone\"]\n");
    let config = folder.join("storm.toml");
    fs::write(&config, sites + &zones).unwrap();
    [config, folder.join("socket")].map(|path| path.to_str().unwrap().to_owned())
}

/// Checks that the status says which address and port belong to the site `two`, and to the zones.
fn check_status(socket: &str, two: &str, address: IpAddr) {
    let url = "http://localhost/status";
    let (_, status) = run("curl", &["-s", "--unix-socket", socket, url]);
    for part in [
        format!("{{\"program\":\"sandstorm\",\"site\":\"{two}\",\"at\":[\"{address}:8080\"]}}"),
        format!("{{\"program\":\"namestorm\",\"site\":null,\"at\":[\"{address}:53\","),
        format!("[\"site at\",\"{two}: {address}:8080\"]"),
    ] {
        assert!(status.contains(&part), "{part} is not in {status}");
    }
    let (_, text) = run(STORM, &["status", "--control-socket", socket]);
    assert!(text.contains(&format!("{two}: {address}:8080\n")), "{text}");
}

#[test]
fn each_site_has_its_port_or_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    // The first address of a device that the server makes itself.
    let v4: IpAddr = "198.18.0.2".parse().unwrap();
    let sites = format!(
        "[[web]]\nroot = \"one\"\n[[web]]\nroot = \"two\"\nport = 8080\naddresses = [\"{v4}\"]\n\
         [[web]]\nroot = \"three\"\nport = 8081\n"
    );
    let [config, socket] = prepare(folder.path(), &sites);
    let arguments = ["serve", "--config", &config, "--control-socket", &socket];
    let storm = Server::start(STORM, &arguments);
    assert_eq!(storm.addresses[0], v4);
    let page = |address: &IpAddr, port: u16| {
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        run("curl", &["-sSg", &format!("http://{host}:{port}/")])
    };
    let text = |text: &str| (true, text.to_owned());
    storm.beside(|| {
        for address in &storm.addresses {
            assert_eq!(page(address, 80), text("one"));
            assert_eq!(page(address, 8081), text("three"));
            if *address == v4 {
                assert_eq!(page(address, 8080), text("two"));
            } else {
                let refused = TcpStream::connect_timeout(&(*address, 8080).into(), TIMEOUT);
                assert!(refused.is_err(), "{address}");
            }
        }
    });

    let two = folder.path().join("two").display().to_string();
    check_status(&socket, &two, v4);

    // A site is reloaded by its name, and the others keep what they have.
    for name in ["one", "two", "three"] {
        fs::write(folder.path().join(name).join("index.html"), "new").unwrap();
    }
    let (succeeded, said) = run(STORM, &["reload", &two, "--control-socket", &socket]);
    assert!(succeeded && said.contains(&two), "{said}");
    storm.beside(|| {
        let start = Instant::now();
        while page(&v4, 8080) != text("new") {
            assert!(start.elapsed() < TIMEOUT);
        }
        assert_eq!(page(&v4, 80), text("one"));
    });

    let requests = |metrics: &str, site: &str| {
        let site = format!("site=\"{}/{site}\"", folder.path().display());
        let mut lines = metrics.lines();
        let line = lines.find(|line| {
            line.starts_with("sandstorm_answers_total{")
                && line.contains(&site)
                && line.contains("status=\"200\"")
        });
        let count = line.and_then(|line| line.rsplit(' ').next());
        count.and_then(|count| count.parse::<usize>().ok())
    };
    let start = Instant::now();
    loop {
        let at = ["-s", "--unix-socket", &socket, "http://localhost/metrics"];
        let (_, metrics) = run("curl", &at);
        let counted = ["one", "three"].map(|site| requests(&metrics, site));
        if counted == [Some(storm.addresses.len() + 1), Some(storm.addresses.len())] {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{counted:?} {metrics}");
    }
    storm.stop();
}

#[test]
fn sites_of_one_port_have_their_own_logs_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let sites = format!(
        "[logs]\naccess-log = \"{at}/all.log\"\naccess-log-format = \"site,host,target,status\"\n\
         [[web]]\nroot = \"one\"\n\
         [[web]]\nroot = \"two\"\nhosts = [\"two.test\"]\naccess-log = \"{at}/two.log\"\n\
         redirect-hosts = [\"www.two.test=https://two.test\"]\n\
         [[web]]\nroot = \"three\"\nhosts = [\"three.test\"]\n\
         [[web]]\nroot = \"three\"\nhosts = [\"silent.test\"]\naccess-log = \"off\"\n"
    );
    let [config, socket] = prepare(folder.path(), &sites);
    let arguments = ["serve", "--config", &config, "--control-socket", &socket];
    let storm = Server::start(STORM, &arguments);
    let url = format!("http://{}/", storm.addresses[0]);
    storm.beside(|| {
        for (host, page) in [
            ("other.test", "one"),
            ("two.test", "two"),
            ("three.test", "three"),
            ("silent.test", "three"),
            ("www.two.test", ""),
        ] {
            let field = format!("Host: {host}");
            let (succeeded, text) = run("curl", &["-sS", "-H", &field, &url]);
            assert!(succeeded && text.ends_with(page), "{host}: {text}");
        }
        assert!(run("curl", &["-sS", "-H", "Host: a b", &url]).0);
    });
    let one = |name: &str| format!("site=\"{at}/{name}\"");
    let expected = [
        (one("one"), "1"),
        (one("two"), "2"),
        (one("three"), "1"),
        (one("three:80"), "1"),
        ("site=\"no site\"".to_owned(), "1"),
    ];
    let start = Instant::now();
    loop {
        let at = ["-s", "--unix-socket", &socket, "http://localhost/metrics"];
        let (_, metrics) = run("curl", &at);
        let has = |(site, count): &(String, &str)| {
            let of_site = |line: &str| {
                line.starts_with("sandstorm_requests_total{")
                    && line.contains(site)
                    && line.ends_with(&format!(" {count}"))
            };
            metrics.lines().any(of_site)
        };
        if expected.iter().all(has) {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{metrics}");
    }
    storm.stop();
    let log = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        log("all.log"),
        format!("{at}/one\tother.test\t/\t200\n{at}/three\tthree.test\t/\t200\n-\ta b\t/\t400\n")
    );
    assert_eq!(
        log("two.log"),
        format!("{at}/two\ttwo.test\t/\t200\n{at}/two\twww.two.test\t/\t301\n")
    );
    assert!(!folder.path().join("off").exists());
}

#[test]
fn sites_of_one_port_keep_their_pages_through_reloads() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "clean-urls = true\nredirects = [\"/old /new 301\"]\n";
    let sites = web("one", rules) + &web("two", "hosts = [\"two.test\"]\n");
    let [config, socket] = prepare(folder.path(), &sites);
    let arguments = ["serve", "--config", &config, "--control-socket", &socket];
    let storm = Server::start(STORM, &arguments);
    let url = format!("http://{}", storm.addresses[0]);
    let page = |host: &str, path: &str| {
        let field = format!("Host: {host}");
        run("curl", &["-sS", "-H", &field, &(url.clone() + path)]).1
    };
    for number in 0..3 {
        // The second reload has one file less than the first one.
        let file = folder.path().join("one/more.html");
        if number == 1 {
            fs::write(&file, "more").unwrap();
        } else {
            let _ = fs::remove_file(&file);
        }
        let (succeeded, said) = run(STORM, &["reload", "--control-socket", &socket]);
        assert!(succeeded, "{said}");
        storm.beside(|| {
            assert_eq!(page("one.test", "/"), "one");
            assert_eq!(page("two.test", "/"), "two");
            assert_eq!(page("one.test", "/more") == "more", number == 1);
        });
    }
    storm.stop();
}

#[test]
fn wrong_sites_are_refused_with_their_names() {
    for (command, sites, message) in [
        (
            "serve",
            web("one", "") + &web("two", ""),
            "/two (FILE:4:8) both have TCP port 80; give one of them another port, or different addresses or hosts to both",
        ),
        (
            "serve",
            web("one", "addresses = [\"192.0.2.1\"]\n") + &web("two", "port = 80\n"),
            "both have TCP port 80",
        ),
        (
            "serve",
            web("one", "") + &web("two", "port = 81\naddresses = [\"192.0.2.9\"]\n"),
            "/two is to be served on 192.0.2.9, which is not an address of the server",
        ),
        (
            "serve",
            web("one", "") + &web("two", "port = 81\ncongestion = \"bbr\"\n"),
            "congestion (FILE:6:1) must be the same in each [[web]]",
        ),
        (
            "check",
            web("one", "") + &web("two", ""),
            "/one (FILE:2:8) and ",
        ),
        (
            "check",
            web("one", "") + &web("two", "hosts = [\"a.test\"]\nmin-rate = 1\n"),
            "/two (FILE:4:8) share a port, so their connections have the same limits",
        ),
        (
            "check",
            web("one", "hosts = [\"a.test\"]\n") + &web("two", "hosts = [\"A.test.\"]\n"),
            "/two (FILE:6:10); give it to one of them",
        ),
        (
            "check",
            web("one", "hosts = [\"[::1]\"]\n") + &web("two", "hosts = [\"[0:0::1]\"]\n"),
            "the host [::1] leads to ",
        ),
        (
            "check",
            web("one", "hosts = [\"a.test\"]\n") + &web("one", "hosts = [\"a.test\"]\n"),
            "/one (FILE:6:10); give it to one of them",
        ),
        ("check", web("one", "port = 53\n"), "both have TCP port 53"),
        (
            "check",
            web("one", "addresses = [\"192.0.2.9\"]\n")
                + "[network]\naddresses = [\"192.0.2.1/24\"]\n",
            "/one is to be served on 192.0.2.9, which is not an address of the server",
        ),
        (
            "check",
            web("one", "") + "[[web]]\nport = 81\n",
            "FILE:3:1: [[web]] has no key root, which it needs",
        ),
        (
            "check",
            web("one", "") + &web("none", "port = 81\n"),
            "/none",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [config, _] = prepare(folder.path(), &sites);
        let (succeeded, said) = run(STORM, &[command, "--config", &config]);
        let said = said.replace(&config, "FILE");
        assert!(!succeeded && said.contains(message), "{sites}\n{said}");
    }
}

/// Checks that `check` fails with all of these messages. They call the configuration file `FILE`.
fn check_fails(config: &str, messages: &[&str]) {
    let (succeeded, said) = run(STORM, &["check", "--config", config]);
    let said = said.replace(config, "FILE");
    assert!(!succeeded, "{said}");
    for message in messages {
        assert!(said.contains(message), "{message}: {said}");
    }
}

#[test]
fn all_wrong_files_of_options_are_told_at_once_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let one = "etag-key = \"/none/key\"\nbasic-auth = [\"/a=/none/a\", \"/b=/none/b\"]\n\
               compress-cache = \"/none/cache\"\naddresses = [\"192.0.2.9\"]\n";
    let sites = web("one", one)
        + &web("none", "port = 81\n")
        + &web("two", "port = 81\n")
        + "[network]\naddresses = [\"192.0.2.1/24\", \"192.0.2.1/25\"]\nbatch = 0\n\
           [logs]\naccess-log = \"/none/log\"\nquery-log = \"new.log\"\n\
           [diagnosis]\npcap = \"/none/pcap\"\n";
    let [config, _] = prepare(folder.path(), &sites);
    let messages = [
        "FILE:15:9: batch is wrong",
        "FILE:3:12: /none/key cannot be read",
        "FILE:4:15: /none/a cannot be read",
        "FILE:4:29: /none/b cannot be read",
        "FILE:5:18: cannot keep compressed files in /none/cache",
        "FILE:6:14: the site ",
        "FILE:8:8: there is no folder ",
        "/two (FILE:11:8) both have TCP port 81",
        "FILE:14:30: addresses (FILE:14:1) 192.0.2.1 is given twice",
        "FILE:17:14: access log: /none/log: ",
        "FILE:20:8: cannot write the capture file /none/pcap",
    ];
    check_fails(&config, &messages);
    assert!(
        !folder.path().join("new.log").exists(),
        "a check makes no file"
    );
}

#[test]
fn all_contradictions_between_sites_are_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let for_a = "hosts = [\"a.test\"]\n";
    let sites = web("one", "") + &web("two", "") + &web("one", for_a) + &web("none", for_a);
    let [config, _] = prepare(folder.path(), &sites);
    let messages = [
        "/none; name the folder",
        "the host a.test leads to ",
        "/one (FILE:7:10) and to ",
        "/none (FILE:10:10); give it to one of them",
        "both have TCP port 80",
    ];
    check_fails(&config, &messages);
}

#[test]
fn all_contradictions_of_a_site_are_told_at_once_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "basic-auth = [\"/a=/none/a\", \"/a=/none/b\"]\n\
                error-pages = [\"404=/a\", \"404=/b\"]\n\
                hosts = [\"a.test\"]\nredirect-hosts = [\"a.test=https://b\"]\n";
    let [config, _] = prepare(folder.path(), &web("one", keys));
    let messages = [
        "FILE:3:29: basic-auth (FILE:3:1) /a=/none/a and basic-auth (FILE:3:1) /a=/none/b contradict",
        "FILE:4:26: error-pages (FILE:4:1) 404=/a and error-pages (FILE:4:1) 404=/b contradict",
        "FILE:6:19: hosts (FILE:5:1) a.test and redirect-hosts (FILE:6:1) a.test=https://b contradict",
        "FILE:3:15: /none/a cannot be read",
    ];
    check_fails(&config, &messages);
}

#[test]
fn a_folder_on_the_command_line_does_not_replace_that_of_every_site() {
    let folder = tempfile::tempdir().unwrap();
    let sites = "[[web]]\nroot = \"one\"\n[[web]]\nroot = \"two\"\nport = 81\n";
    let [config, _] = prepare(folder.path(), sites);
    let (succeeded, said) = run(STORM, &["check", "--config", &config, "--web", "one"]);
    let message = "FILE:3:1: there are several [[web]], so root cannot be on the command line";
    let said = said.replace(&config, "FILE");
    assert!(!succeeded && said.contains(message), "{said}");
}

#[test]
fn limits_of_a_site_hold_only_for_this_site() {
    let folder = tempfile::tempdir().unwrap();
    let sites = "[[web]]\nroot = \"one\"\nmax-connections = 1\nwhen-full = \"refuse\"\n\
                 [[web]]\nroot = \"two\"\nport = 81\n";
    let [config, socket] = prepare(folder.path(), sites);
    let (_, shown) = run(STORM, &["config", "show", "--config", &config]);
    let lines = shown
        .lines()
        .filter(|line| line.contains("max-connections"));
    let lines: Vec<_> = lines.collect();
    assert!(
        lines[0].starts_with("#max-connections =") && lines.len() == 2,
        "{shown}"
    );
    assert!(lines[1].contains("storm.toml:3:1"), "{shown}");
    let arguments = ["serve", "--config", &config, "--control-socket", &socket];
    let storm = Server::start(STORM, &arguments);
    let address = storm.addresses[0];
    let connect = |port: u16| {
        let time = Duration::from_millis(300);
        TcpStream::connect_timeout(&(address, port).into(), time)
    };
    storm.beside(|| {
        let first = connect(80).unwrap();
        assert!(connect(80).is_err(), "the site has one connection");
        let others: Vec<_> = (0..5).map(|_| connect(81).unwrap()).collect();
        // The DNS server has its own limits.
        let server = format!("@{address}");
        let query = ["+tcp", "+short", &server, "a.a.test", "A"];
        assert_eq!(run("dig", &query), (true, "192.0.2.1\n".to_owned()));
        drop((first, others));
    });
    storm.stop();
}

#[test]
fn a_log_of_a_site_is_shown_with_the_site() {
    let folder = tempfile::tempdir().unwrap();
    let sites = "[logs]\naccess-log = \"all\"\n[[web]]\nroot = \"one\"\naccess-log = \"own\"\n\
                 [[web]]\nroot = \"two\"\nport = 81\n";
    let [config, _] = prepare(folder.path(), sites);
    let (succeeded, shown) = run(STORM, &["config", "show", "--config", &config]);
    assert!(succeeded, "{shown}");
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("access-log ="));
        lines
            .map(|line| {
                line.split(" # ")
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            })
            .collect()
    };
    let both = ["access-log = \"all\"", "access-log = \"own\""];
    assert_eq!(lines(&shown), both, "{shown}");
    let again = folder.path().join("again.toml");
    fs::write(&again, &shown).unwrap();
    let again = ["config", "show", "--config", again.to_str().unwrap()];
    assert_eq!(lines(&run(STORM, &again).1), both);
    // An option of the command line is that of all sites.
    let given = [
        "config",
        "show",
        "--config",
        &config,
        "--access-log",
        "given",
    ];
    let (_, shown) = run(STORM, &given);
    assert_eq!(lines(&shown), ["access-log = \"given\""], "{shown}");
}

#[test]
fn each_site_is_shown_with_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let sites = "[[web]]\nroot = \"one\"\n[[web]]\nroot = \"two\"\nport = 81\n";
    let [config, _] = prepare(folder.path(), sites);
    let (succeeded, shown) = run(STORM, &["config", "show", "--config", &config]);
    assert!(succeeded, "{shown}");
    assert_eq!(shown.matches("[[web]]\n").count(), 2, "{shown}");
    assert!(shown.contains("storm.toml:5:1\n"), "{shown}");
    // What is shown is a file with the same meaning.
    let again = folder.path().join("again.toml");
    fs::write(&again, &shown).unwrap();
    let (_, again) = run(
        STORM,
        &["config", "show", "--config", again.to_str().unwrap()],
    );
    let values = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.split(" # ").next().unwrap_or_default());
        lines.map(|line| line.trim().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&shown));
}
