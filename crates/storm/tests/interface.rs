//! Tests what `storm serve` does when its interface changes. Addresses come and go, the MAC address
//! changes, the link goes down and up, and the interface is removed and returns. Needs root.
//!
//! Server and client are in two network namespaces without names, so the kernel removes them with
//! their last process.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::rig;

/// Maximum time until an effect is seen, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(15);

const ZONE: &str = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\n";

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Starts a process in a new network namespace, which the process keeps alive.
    fn in_new_namespace() -> Self {
        let process = Self::start(Command::new("unshare").args(["--net", "sleep", "300"]));
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        eventually("a new namespace", || {
            fs::read_link(process.namespace()).is_ok_and(|other| other != own)
        });
        process
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    /// Runs `work` on a thread in the process's namespace.
    fn beside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        rig::beside(&self.0, work)
    }

    /// Runs a command in the process's namespace. Returns its output, or `None` if it fails.
    fn output(&self, command: &str) -> Option<String> {
        let mut words = command.split(' ');
        let output = self.beside(|| {
            let mut command = Command::new(words.next().unwrap());
            command.args(words).output().unwrap()
        });
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(text)
    }

    fn run(&self, commands: &[&str]) {
        for command in commands {
            assert!(self.output(command).is_some(), "{command}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors are ignored, because the process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "not seen: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server on interface `srv`, and a client on `cli`.
struct Rig {
    folder: TempDir,
    /// The namespace of the server.
    near: Process,
    /// The namespace of the client.
    far: Process,
    server: Process,
}

impl Rig {
    fn start(device: &str) -> Self {
        Self::with(device, None)
    }

    /// Starts a server. `own` is its own address, if it has one.
    fn with(device: &str, own: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let [www, zone, socket] = ["www", "storm.test.zone", "socket"].map(path);
        fs::create_dir(&www).unwrap();
        fs::write(format!("{www}/index.html"), "a page").unwrap();
        fs::write(&zone, ZONE).unwrap();
        let (near, far) = (Process::in_new_namespace(), Process::in_new_namespace());
        connect(&near, &far);
        let server = near.beside(|| {
            let mut storm = Command::new(env!("CARGO_BIN_EXE_storm"));
            storm.args(["serve", "--web", &www, "--zone", &zone, "--device", device]);
            if let Some(own) = own {
                storm.args(["--address", &format!("{own}/24")]);
            }
            Process::start(storm.args(["--control-socket", &socket]))
        });
        let rig = Self {
            folder,
            near,
            far,
            server,
        };
        eventually("a page", || rig.gets(own.unwrap_or("10.9.0.1")));
        rig
    }

    /// Returns true if the client gets the page at this address, and an answer over DNS.
    fn gets(&self, address: &str) -> bool {
        let page = format!("curl -s -g -m 1 http://{address}/");
        let address = address.trim_matches(['[', ']']);
        let query = format!("dig +short +tries=1 +time=1 @{address} storm.test NS");
        self.far.output(&page).as_deref() == Some("a page")
            && self.far.output(&query).as_deref() == Some("ns.example.\n")
    }

    /// Asks the server itself, through its control socket. Returns the answer with its status code.
    fn ask(&self, path: &str) -> String {
        let socket = self.folder.path().join("socket");
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", " %{http_code}", "--unix-socket"]);
        let url = format!("http://localhost/{path}");
        let output = curl.arg(socket).arg(url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn has_metric(&self, line: &str) -> bool {
        self.ask("metrics").lines().any(|found| found == line)
    }

    /// Opens a connection of the client.
    fn connect(&self, address: &str) -> TcpStream {
        let stream = self.far.beside(|| TcpStream::connect((address, 80)));
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Waits until the server has ended by itself.
    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the server's end", || {
            status = self.server.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.server.0), Signal::TERM).unwrap();
        assert!(self.end().success());
    }
}

/// Makes a veth pair between two namespaces.
fn connect(near: &Process, far: &Process) {
    let pid = far.0.id();
    let pair = format!("ip link add srv type veth peer name cli netns {pid}");
    near.run(&[
        &pair,
        "ip address add 10.9.0.1/24 dev srv",
        "ip link set srv up",
    ]);
    far.run(&[
        "ip address add 10.9.0.2/24 dev cli",
        "ip link set cli up",
        "ethtool -K cli tx off",
    ]);
}

/// Sends a request, and reads the response.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let (mut response, mut bytes) = (String::new(), [0; 4_096]);
    while !response.ends_with("a page") {
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => response += &String::from_utf8_lossy(&bytes[..len]),
        }
    }
    Ok(response)
}

#[test]
fn the_server_follows_addresses_and_the_link() {
    for device in ["xdp:srv", "xdp:srv,generic"] {
        let rig = Rig::start(device);
        let mut kept = rig.connect("10.9.0.1");
        request(&mut kept).unwrap();
        rig.near.run(&["ip address add 10.9.0.3/24 dev srv"]);
        eventually("the new address", || rig.gets("10.9.0.3"));
        rig.near.run(&["ip address add fd09::1/64 dev srv nodad"]);
        rig.far.run(&["ip address add fd09::2/64 dev cli nodad"]);
        eventually("the first IPv6 address", || rig.gets("[fd09::1]"));
        // The connections of a removed address are reset, and those of others stay.
        let mut lost = rig.connect("10.9.0.3");
        request(&mut lost).unwrap();
        rig.near.run(&["ip address del 10.9.0.3/24 dev srv"]);
        // Unlike one read, this goes on after a signal.
        let end = lost.read_exact(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(rig.has_metric(
            "storm_interface_changes_total{interface=\"srv\",change=\"address removed\"} 1"
        ));
        request(&mut kept).unwrap();
        assert!(!rig.gets("10.9.0.3") && rig.gets("10.9.0.1"));
        // A connection outlives a link that flaps.
        rig.near.run(&["ip link set srv down"]);
        eventually("the link is down", || {
            rig.has_metric("storm_link_up{interface=\"srv\"} 0.0")
        });
        rig.near.run(&["ip link set srv up"]);
        eventually("the link is up", || {
            rig.has_metric("storm_link_up{interface=\"srv\"} 1.0")
        });
        eventually("a page after the flap", || rig.gets("10.9.0.1"));
        request(&mut kept).unwrap();
        rig.stop();
    }
}

#[test]
fn the_server_follows_the_mac_address() {
    for (device, own) in [
        ("xdp:srv", None),
        ("xdp:srv,generic", None),
        ("xdp:srv", Some("10.9.0.9")),
    ] {
        let rig = Rig::with(device, own);
        let address = own.unwrap_or("10.9.0.1");
        // Announcements count at once, however young the client's entry is.
        rig.far.run(&["sysctl -qw net.ipv4.neigh.cli.locktime=0"]);
        let mut kept = rig.connect(address);
        request(&mut kept).unwrap();
        for (changes, mac) in [(1, "02:00:00:00:00:77"), (2, "02:00:00:00:00:78")] {
            rig.near.run(&[&format!("ip link set srv address {mac}")]);
            let change = format!(
                "storm_interface_changes_total{{interface=\"srv\",change=\"MAC address\"}} {changes}"
            );
            eventually("the new MAC address", || rig.has_metric(&change));
            if own.is_some() {
                eventually("an announcement", || {
                    let neighbour = rig.far.output(&format!("ip neigh show {address}"));
                    neighbour.is_some_and(|text| text.contains(mac))
                });
            } else {
                rig.far.run(&["ip neigh flush dev cli"]);
            }
            request(&mut kept).unwrap();
            assert!(rig.gets(address), "{device} {own:?}");
        }
        rig.stop();
    }
}

#[test]
fn an_address_whose_port_is_taken_is_served_when_the_port_is_free() {
    let rig = Rig::start("xdp:srv");
    rig.near.run(&["ip address add 10.8.0.1/24 dev lo"]);
    let holder = rig
        .near
        .beside(|| std::net::TcpListener::bind("10.8.0.1:80").unwrap());
    rig.near.run(&[
        "ip address add 10.8.0.1/24 dev srv",
        "ip address add 10.9.0.3/24 dev srv",
    ]);
    eventually("the other address", || rig.gets("10.9.0.3"));
    let refused = "\"refused\":[[\"10.8.0.1\",\"another program uses TCP port 80 on 10.8.0.1;";
    assert!(rig.ask("status").contains(refused));
    drop(holder);
    eventually("the address is served", || {
        rig.ask("status").contains("\"refused\":[]")
    });
    assert!(rig.has_metric("storm_addresses{interface=\"srv\"} 4.0"));
    rig.stop();
}

#[test]
fn a_server_goes_on_when_its_interface_returns() {
    for device in ["xdp:srv", "xdp:srv,generic", "xdp:srv,qdisc=pfifo"] {
        let rig = Rig::start(device);
        assert_eq!(rig.ask("ready"), "ok\n 200");
        let mut kept = rig.connect("10.9.0.1");
        request(&mut kept).unwrap();
        for removals in 1..=2 {
            rig.near.run(&["ip link delete srv"]);
            let waiting = "waiting for interface srv\n";
            eventually("not ready", || rig.ask("ready") == format!("{waiting} 503"));
            assert_eq!(rig.ask("health"), format!("{waiting} 200"));
            assert!(rig.has_metric("storm_link_up{interface=\"srv\"} 0.0"));
            // An interface without an address cannot be served yet.
            rig.near.run(&["ip link add srv type veth peer name other"]);
            thread::sleep(Duration::from_millis(500));
            assert_eq!(rig.ask("ready"), format!("{waiting} 503"));
            rig.near.run(&["ip link delete srv"]);
            connect(&rig.near, &rig.far);
            eventually("ready again", || rig.ask("ready") == "ok\n 200");
            eventually("a page on the new interface", || rig.gets("10.9.0.1"));
            // The client's packets for the connection follow the new neighbour.
            request(&mut kept).unwrap();
            let returned = format!(
                "storm_interface_changes_total{{interface=\"srv\",change=\"returned\"}} {}",
                2 * removals
            );
            assert!(rig.has_metric(&returned), "{returned}");
        }
        // Addresses of the new interface are followed, too.
        rig.near.run(&["ip address add 10.9.0.3/24 dev srv"]);
        eventually("the new address", || rig.gets("10.9.0.3"));
        rig.stop();
    }
}

#[test]
fn a_server_starts_again_if_its_new_interface_does_not_fit() {
    let mut rig = Rig::start("xdp:srv");
    rig.near.run(&["ip link delete srv"]);
    eventually("not ready", || rig.ask("ready").ends_with(" 503"));
    let pair = format!(
        "ip link add srv mtu 1400 type veth peer name cli netns {}",
        rig.far.0.id()
    );
    rig.near.run(&[
        &pair,
        "ip address add 10.9.0.1/24 dev srv",
        "ip link set srv up",
    ]);
    assert_eq!(rig.end().code(), Some(75));
}

#[test]
fn a_server_that_waits_for_its_interface_can_be_stopped() {
    let rig = Rig::start("xdp:srv");
    let _open = rig.connect("10.9.0.1");
    rig.near.run(&["ip link delete srv"]);
    eventually("not ready", || rig.ask("ready").ends_with(" 503"));
    let start = Instant::now();
    rig.stop();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "there is no drain"
    );
}
