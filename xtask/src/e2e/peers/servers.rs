//! Other DNS servers, and a resolver.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::peers::{self, fill_zones};
use crate::interrupt;
use crate::netns::Namespace;
use crate::server::Server;
use crate::shell;

/// Time limit for a server to load its zones.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The address of all other servers, of which one runs at a time.
pub(crate) const ADDRESS: &str = "127.0.0.1";

/// The name and the secret of the key with which secondary servers sign their queries, and Namestorm its
/// messages to them. Its algorithm is hmac-sha256.
pub(crate) const KEY: [&str; 2] = [
    "secondary-key",
    "8jd/IeaIJal6hojcts3eIUyDgwp3ESOVwyIR58W9IyU=",
];

/// Another program.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    program: &'static str,
    /// The Debian package of the program.
    package: &'static str,
    arguments: &'static str,
    /// Template for [`fill_zones`].
    config: &'static str,
    /// The end of the template, from the zones on, for a secondary server of Namestorm.
    secondary: &'static str,
}

pub(crate) const PEERS: [Peer; 3] = [
    Peer {
        name: "NSD",
        program: "nsd",
        package: "nsd",
        arguments: "-d -c",
        config: peers::NSD,
        secondary: "\
key:
    name: {key}
    algorithm: hmac-sha256
    secret: {secret}
{each zone}
zone:
    name: {origin}
    zonefile: \"\"
    request-xfr: {file} secondary-key
    allow-notify: 127.0.0.1 secondary-key
    provide-xfr: 127.0.0.1 NOKEY
",
    },
    Peer {
        name: "Knot",
        program: "knotd",
        package: "knot",
        arguments: "-c",
        config: peers::KNOT,
        secondary: "\
key:
  - id: {key}
    algorithm: hmac-sha256
    secret: {secret}
remote:
  - id: primary
    address: {primary}
    key: {key}
acl:
  - id: kernel
    address: 127.0.0.1
    key: {key}
    action: notify
zone:
{each zone}
  - domain: {origin}
    zonefile-load: none
    master: primary
    acl: [local, kernel]
",
    },
    Peer {
        name: "BIND",
        program: "named",
        package: "bind9",
        arguments: "-f -n 1 -c",
        config: peers::BIND,
        secondary: "\
key {key} { algorithm hmac-sha256; secret \"{secret}\"; };
{each zone}
zone \"{origin}\" {
    type secondary;
    masterfile-format text;
    primaries { {file} key secondary-key; };
    allow-notify { key secondary-key; };
};
",
    },
];

/// Asks Namestorm for all names below `test`, and validates its replies. The trust anchors are in a file.
pub(crate) const UNBOUND: Peer = Peer {
    name: "Unbound",
    program: "unbound",
    package: "unbound",
    arguments: "-d -c",
    config: "\
server:
    interface: {address}
    do-daemonize: no
    username: \"\"
    chroot: \"\"
    pidfile: \"\"
    directory: \"{run}\"
    use-syslog: no
    val-log-level: 2
    module-config: \"validator iterator\"
    trust-anchor-file: \"{run}/anchors\"
    access-control: 127.0.0.0/8 allow
    do-ip6: no
    do-not-query-localhost: no
    aggressive-nsec: no
    root-hints: \"\"
    local-zone: test. nodefault
{each zone}
stub-zone:
    name: {origin}
    stub-addr: {file}
",
    secondary: "",
};

impl Peer {
    /// Returns true if the program is installed. Otherwise says that it is skipped.
    pub(crate) fn is_installed(&self) -> bool {
        is_installed(self.name, self.program, self.package)
    }

    /// Starts the program, and waits until it answers. `zones` has the name and the file of each zone.
    pub(crate) fn start(
        &self,
        home: &Namespace,
        run: &Path,
        zones: &[(String, String)],
    ) -> Result<Server> {
        self.run(home, run, self.config, zones)
    }

    /// Starts the program as a secondary server, and waits until it has the last zone. `zones` has the
    /// name of each zone, and the address of its primary server.
    pub(crate) fn start_secondary(
        &self,
        home: &Namespace,
        run: &Path,
        zones: &[(String, String)],
    ) -> Result<Server> {
        let head = self.config.split("{each zone}").next().unwrap_or_default();
        self.run(home, run, &format!("{head}{}", self.secondary), zones)
    }

    fn run(
        &self,
        home: &Namespace,
        run: &Path,
        config: &str,
        zones: &[(String, String)],
    ) -> Result<Server> {
        let (last, source) = zones.last().context("no zone")?;
        let words = [
            ("run", run.display().to_string()),
            ("address", ADDRESS.to_owned()),
            // All questions come from one address.
            ("limit", "0".to_owned()),
            ("rrl", String::new()),
            ("uses_rrl", String::new()),
            ("rate_limit", String::new()),
            ("primary", source.clone()),
            ("key", KEY[0].to_owned()),
            ("secret", KEY[1].to_owned()),
        ];
        let path = run.join("config");
        let list = zones.iter().cloned().map(<[String; 2]>::from);
        shell::write(&path, fill_zones(config, &words, list))?;
        let mut command = home.command(self.program);
        command.args(self.arguments.split(' ')).arg(path);
        let question = format!("dig @{ADDRESS} +tries=1 +time=1 {last}. SOA");
        Server::start_when(command, START_LIMIT, |_| {
            interrupt::check()?;
            let words = question.split(' ').collect::<Vec<_>>();
            let output = shell::output(home.command(words[0]).args(&words[1..]))?;
            Ok(String::from_utf8_lossy(&output.stdout).contains("NOERROR"))
        })
        .with_context(|| self.name.to_owned())
    }
}

/// Returns true if a program is installed. Otherwise says that it is skipped.
pub(crate) fn is_installed(name: &str, program: &str, package: &str) -> bool {
    let is_there = shell::is_installed(program);
    if !is_there {
        println!("skip {name}: {program} is not installed (apt-get install {package})");
    }
    is_there
}
