//! Other DNS servers, and a resolver.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::peers::fill;
use crate::interrupt;
use crate::netns::Namespace;
use crate::server::Server;
use crate::shell;

/// Time limit for a server to load its zones.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The address of all other servers. Each has a port of its own.
pub(crate) const ADDRESS: &str = "127.0.0.1";

/// Another program. In its texts, `{run}` stands for its folder, `{origin}` for the name of a zone, and
/// `{file}` for the file of this zone.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    program: &'static str,
    /// The Debian package of the program.
    package: &'static str,
    arguments: &'static str,
    pub(crate) port: u16,
    config: &'static str,
    /// The part of the configuration that each zone has.
    zone: &'static str,
}

pub(crate) const PEERS: [Peer; 3] = [
    Peer {
        name: "NSD",
        program: "nsd",
        package: "nsd",
        arguments: "-d -c",
        port: 5301,
        config: "\
server:
    ip-address: 127.0.0.1
    port: 5301
    username: \"\"
    zonesdir: \"\"
    database: \"\"
    zonelistfile: {run}/zones
    xfrdfile: {run}/xfrd
    xfrdir: {run}
    pidfile: \"\"
    minimal-responses: yes
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
remote-control:
    control-enable: no
",
        zone: "zone:\n    name: {origin}\n    zonefile: {file}\n",
    },
    Peer {
        name: "Knot",
        program: "knotd",
        package: "knot",
        arguments: "-c",
        port: 5302,
        config: "\
server:
    rundir: {run}
    listen: 127.0.0.1@5302
log:
  - target: stderr
    any: warning
database:
    storage: {run}
template:
  - id: default
    semantic-checks: off
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
",
        zone: "  - domain: {origin}\n    file: {file}\n",
    },
    Peer {
        name: "BIND",
        program: "named",
        package: "bind9",
        arguments: "-f -n 1 -c",
        port: 5303,
        config: "\
options {
    directory \"{run}\";
    pid-file none;
    session-keyfile none;
    lock-file none;
    listen-on port 5303 { 127.0.0.1; };
    listen-on-v6 { none; };
    recursion no;
    minimal-responses yes;
    minimal-any no;
    empty-zones-enable no;
    dnssec-validation no;
    notify no;
};
logging { category default { default_stderr; }; };
controls { };
",
        zone: "zone \"{origin}\" { type primary; file \"{file}\"; check-names ignore; };\n",
    },
];

/// Asks Namestorm for all names below `test`, and validates its replies. The trust anchors are in a file.
pub(crate) const UNBOUND: Peer = Peer {
    name: "Unbound",
    program: "unbound",
    package: "unbound",
    arguments: "-d -c",
    port: 5310,
    config: "\
server:
    interface: 127.0.0.1
    port: 5310
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
",
    zone: "stub-zone:\n    name: {origin}\n    stub-addr: {file}\n",
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
        let words = |origin: &str, file: &str| {
            [
                ("run", run.display().to_string()),
                ("origin", origin.to_owned()),
                ("file", file.to_owned()),
            ]
        };
        let mut config = fill(self.config, &words("", ""));
        config.extend(
            zones
                .iter()
                .map(|(origin, file)| fill(self.zone, &words(origin, file))),
        );
        let path = run.join("config");
        shell::write(&path, config)?;
        let mut command = home.command(self.program);
        command.args(self.arguments.split(' ')).arg(path);
        let port = self.port;
        let (last, _) = zones.last().context("no zone")?;
        let question = format!("dig @{ADDRESS} -p {port} +tries=1 +time=1 {last}. SOA");
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
