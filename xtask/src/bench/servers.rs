//! Starts the servers to compare, and waits until they are ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::content::{Content, HOSTER, ORIGIN, files_on_disk, origin_of};
use super::peers::{fill, fill_zones};
use super::rig::{self, Interrupts, Rig, SERVER_ADDRESS, Tuning};
use super::{busy_poll, peers, usage};
use crate::netns::SERVER_LINK;
use crate::server::Server;
use crate::shell;
use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

/// Time limit for a server to start. It is long enough to load a million names.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Number of files that a process may open in addition to the clients' connections, such as
/// listening sockets.
const SPARE_FILES: u32 = 512;

/// Responses per second to one network, where servers limit them. No run reaches this rate.
const LIMIT: u32 = 1_000_000;

/// Minimum number of files that nginx keeps open.
const MIN_CACHED: u32 = 4_000;

/// A server program in one of its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Name in the report.
    pub(crate) name: &'static str,
    /// Command that installs another project's server. Empty for our own programs.
    pub(crate) install: &'static str,
    /// Program and arguments. [`Spec::words`] returns the values of the placeholders in braces.
    command: &'static str,
    config: &'static str,
    /// Number of files that one process opens per connection, or 0 if open files do not limit the
    /// number of connections.
    files_each: u32,
}

impl Program {
    pub(crate) fn is_ours(&self) -> bool {
        self.install.is_empty()
    }

    /// Returns the file name of the program.
    pub(crate) fn executable(&self) -> &'static str {
        self.command.split(' ').next().unwrap_or_default()
    }
}

macro_rules! programs {
    ($($const:ident = $name:literal, $install:literal, $command:expr, $config:expr, $files:literal;)+) => {
        $(pub(crate) const $const: Program = Program {
            name: $name, install: $install, command: $command, config: $config, files_each: $files,
        };)+
    };
}

macro_rules! namestorm {
    ($mode:literal) => {
        concat!(
            "namestorm serve --mode ",
            $mode,
            " {zones} --drain 0 --rate-limit {limit} --device {device}"
        )
    };
}

const STATIC_WEB_SERVER_COMMAND: &str = "static-web-server --host {address} --port 80 \
     --root {served} --compression false --compression-static true --cache-control-headers false";

// The generator ends before the server, so our servers do not wait for open connections.
//
// The server lighttpd reserves half of its files for content, so a connection counts as two files.
// The reflector shows the cost of the rig itself.
programs! {
    REFLECT = "reflector", "", "reflect --device {device}", "", 0;
    TURNAROUND = "namestorm turnaround", "", namestorm!("turnaround --hash wire"), "", 0;
    TURNAROUND_FQDN = "namestorm turnaround fqdn", "", namestorm!("turnaround --hash fqdn"), "", 0;
    MEMCOPY = "namestorm memcopy", "", namestorm!("memcopy --hash wire"), "", 0;
    MEMCOPY_FQDN = "namestorm memcopy fqdn", "", namestorm!("memcopy --hash fqdn"), "", 0;
    PRECOPY = "namestorm pre-copy", "", namestorm!("pre-copy --hash wire"), "", 0;
    PRECOPY_FQDN = "namestorm pre-copy fqdn", "", namestorm!("pre-copy --hash fqdn"), "", 0;
    SANDSTORM = "sandstorm memcopy", "", "sandstorm serve {served} --mode memcopy --drain 0 --device {device}", "", 0;
    SANDSTORM_PRECOPY = "sandstorm pre-copy", "", "sandstorm serve {served} --mode pre-copy --drain 0 --device {device}", "", 0;
    NGINX = "nginx", "apt-get install nginx", "nginx -e stderr -c {config}", peers::NGINX, 0;
    NGINX_AIO = "nginx aio threads", "apt-get install nginx", "nginx -e stderr -c {config}", peers::NGINX, 0;
    NGINX_UNCORKED = "nginx without tcp_nopush", "apt-get install nginx", "nginx -e stderr -c {config}", peers::NGINX, 0;
    NGINX_BUSY_POLL = "nginx busy-poll", "apt-get install nginx", "nginx -e stderr -c {config}", peers::NGINX, 0;
    LIGHTTPD = "lighttpd", "apt-get install lighttpd", "lighttpd -D -f {config}", peers::LIGHTTPD, 2;
    H2O = "h2o", "apt-get install h2o", "h2o -m worker -c {config}", peers::H2O, 1;
    CADDY = "Caddy", "apt-get install caddy", "caddy run --adapter caddyfile --config {config}", peers::CADDY, 1;
    STATIC_WEB_SERVER = "static-web-server", "cargo install static-web-server --locked", STATIC_WEB_SERVER_COMMAND, "", 1;
    NSD = "NSD", "apt-get install nsd", "nsd -d -c {config}", peers::NSD, 0;
    KNOT = "Knot DNS", "apt-get install knot", "knotd -c {config}", peers::KNOT, 0;
    KNOT_XDP = "Knot DNS XDP", "apt-get install knot", "knotd -c {config}", peers::KNOT_XDP, 0;
    BIND = "BIND", "apt-get install bind9", "named -f -n 1 -c {config}", peers::BIND, 0;
}

/// DNS servers and the reflector. The first six are compared at fixed rates. The first three are
/// also compared at a rate that needs `AF_XDP`.
#[rustfmt::skip]
pub(crate) const DNS_SERVERS: &[&Program] = &[
    &REFLECT, &TURNAROUND, &KNOT_XDP, &KNOT, &NSD, &BIND,
    &TURNAROUND_FQDN, &MEMCOPY, &MEMCOPY_FQDN, &PRECOPY, &PRECOPY_FQDN,
];

/// What a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Nothing: the reflector sends every datagram back.
    Echo,
    /// A zone with this number of names. `None` stands for the value of the figure's variable.
    Zone(Option<u32>),
    /// A zone of one of the load generator's forms, with this number of names. `None` stands for the
    /// value of the figure's variable. The form [`HOSTER`] has as many zones instead.
    ZoneOf(&'static str, Option<u32>),
    /// Files of fixed sizes. Each run requests only one of them.
    Files,
    /// Files of many sizes, which runs request in a mix.
    Mix,
    /// This number of small files. `None` stands for the value of the figure's variable.
    Numbered(Option<u32>),
    /// Files of this length in bytes on the disk. `None` stands for the value of the figure's variable.
    OnDisk(Option<u32>),
}

/// A server to start, with its content and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) program: &'static Program,
    pub(crate) serves: Serves,
    /// Further command-line options.
    pub(crate) options: String,
    /// Number of connections that the server must be able to hold.
    pub(crate) connections: u32,
    /// The settings of the rig.
    pub(crate) tuning: Tuning,
    /// Whether a DNS server limits the rate of its responses, to a rate that no run reaches.
    pub(crate) limited: bool,
}

impl Spec {
    /// Returns true if the server polls its queue in place of the kernel's threads.
    pub(crate) fn polls(&self) -> bool {
        self.tuning.interrupts == Interrupts::Polled
    }

    /// Returns why the server cannot serve the responses that a load asks for.
    pub(crate) fn cannot(&self, load: &str) -> Option<&'static str> {
        let needs_module = self.program.config == peers::NGINX && load.contains("--coding br");
        (needs_module && !peers::has_nginx_brotli())
            .then_some("it lacks a module: apt-get install libnginx-mod-http-brotli-static")
    }

    /// Starts the server on the rig and waits until it is ready. Returns the server and the ids of
    /// its processes.
    pub(crate) fn start(&self, rig: &Rig, content: &Content) -> Result<(Server, Vec<i32>)> {
        let program = self.program;
        let command = self.command(rig, content)?;
        let server = Server::start_when(command, START_LIMIT, |output| {
            if program.is_ours() && !output.contains("try:") {
                return Ok(false);
            }
            Ok(self.serves.answers(rig, program))
        })?;
        // An attached XDP program proves nothing, because it may pass all frames to the kernel.
        // Therefore check that AF_XDP sockets exist.
        if *program == KNOT_XDP && usage::xdp_sockets(server.id()) == 0 {
            bail!(
                "its XDP mode is not in force, so kernel sockets would answer\n{}",
                server.output()
            );
        }
        let processes = usage::family(server.id().cast_signed());
        if self.polls() {
            processes.iter().try_for_each(|&id| busy_poll::set(id))?;
        }
        Ok((server, processes))
    }

    /// Stops the server and its processes.
    pub(crate) fn stop(&self, server: Server, processes: &[i32]) -> Result<()> {
        let signal = if self.program.is_ours() {
            Signal::TERM
        } else {
            // Some of these servers wait for their clients after SIGTERM. If only the first process
            // is killed, its workers survive.
            processes.iter().copied().for_each(rig::kill);
            Signal::KILL
        };
        server.stop(signal).map(drop)
    }

    fn command(&self, rig: &Rig, content: &Content) -> Result<Command> {
        let program = self.program;
        let name = program.name.to_lowercase().replace(' ', "-");
        let served = match self.serves {
            Serves::Echo => PathBuf::new(),
            Serves::Zone(names) => content.zone(names.unwrap_or(1))?,
            Serves::ZoneOf(HOSTER, zones) => content.zones(zones.unwrap_or(1))?,
            Serves::ZoneOf(form, names) => content.zone_of(form, names.unwrap_or(1))?,
            Serves::Files => content.files()?,
            Serves::Mix => content.mix()?.0,
            Serves::Numbered(files) => content.numbered(files.unwrap_or(1))?,
            Serves::OnDisk(len) => content.on_disk(len.unwrap_or(1 << 20))?,
        };
        // A new folder has no lock file or journal from an earlier start.
        let run = content.folder().join("run").join(&name);
        if run.exists() {
            fs::remove_dir_all(&run).with_context(|| format!("removing {}", run.display()))?;
        }
        for folder in [&content.configs, &run] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let config = content.configs.join(format!("{name}.conf"));
        let words = self.words(&served, &run, &config, rig::open_files())?;
        if !program.config.is_empty() {
            let text = fill_zones(program.config, &words, self.serves.zones(&served));
            fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        }
        let own = content.programs.join(program.executable());
        let is_ours = program.is_ours();
        let mut command = rig.server_command(if is_ours {
            &own
        } else {
            Path::new(program.executable())
        });
        let line = format!("{} {}", fill(program.command, &words), self.options);
        command.args(line.split_whitespace().skip(1));
        Ok(command)
    }

    /// Returns the values for the placeholders in commands and configurations.
    fn words(
        &self,
        served: &Path,
        run: &Path,
        config: &Path,
        files: u32,
    ) -> Result<Vec<(&'static str, String)>> {
        let n = self.connections;
        if n.saturating_mul(self.program.files_each) > files {
            bail!(
                "a process may open {files} files here (ulimit -Hn), too few for {n} connections"
            );
        }
        // The number of connections determines the number of workers. The kernel spreads
        // connections at random, so several workers need spare room.
        let of_worker = files.saturating_sub(SPARE_FILES).max(1);
        let (workers, of_worker) = match n.div_ceil(of_worker) {
            0 | 1 => (1, n),
            workers => (workers + workers.div_ceil(8), of_worker),
        };
        // A kernel with offloads sends partial checksums over veth, so our servers must accept
        // them.
        let checksums = if self.tuning.offloads || self.tuning.plain {
            ",partial-checksums"
        } else {
            ""
        };
        let nopush = if *self.program == NGINX_UNCORKED {
            "off"
        } else {
            "on"
        };
        let limit = if self.limited { LIMIT } else { 0 };
        let [rrl, uses_rrl] = peers::KNOT_RRL.map(|lines| {
            let lines = if self.limited { lines } else { "" };
            lines.replace("{limit}", &limit.to_string())
        });
        let rate_limit = if self.limited {
            peers::BIND_RATE_LIMIT
        } else {
            ""
        };
        let zones = match self.serves {
            Serves::ZoneOf(HOSTER, _) => format!("--zones-from {}/*.zone", served.display()),
            _ => format!("--zone {ORIGIN}={}", served.display()),
        };
        // nginx may keep all other files open.
        let cached = files.saturating_sub(n + 2 * SPARE_FILES);
        Ok(vec![
            ("device", format!("xdp:{SERVER_LINK}{checksums}")),
            ("address", SERVER_ADDRESS.to_owned()),
            ("link", SERVER_LINK.to_owned()),
            ("zones", zones),
            ("limit", limit.to_string()),
            ("rrl", rrl),
            ("uses_rrl", uses_rrl),
            ("rate_limit", rate_limit.to_owned()),
            ("served", served.display().to_string()),
            ("run", run.display().to_string()),
            ("config", config.display().to_string()),
            ("files", files.to_string()),
            ("connections", (n + SPARE_FILES).to_string()),
            ("nopush", nopush.to_owned()),
            ("cached", cached.max(MIN_CACHED).to_string()),
            ("modules", peers::nginx_modules()),
            ("more", peers::nginx_directives(*self.program == NGINX_AIO)),
            ("workers", workers.to_string()),
            ("worker_connections", (of_worker + SPARE_FILES).to_string()),
        ])
    }
}

impl Serves {
    /// Returns the name and the file of each zone. `served` is the file or the folder of zones.
    fn zones(self, served: &Path) -> impl DoubleEndedIterator<Item = [String; 2]> {
        let many = match self {
            Self::ZoneOf(HOSTER, zones) => zones,
            _ => None,
        };
        (0..many.unwrap_or(1)).map(move |number| match many {
            Some(_) => {
                let origin = origin_of(number);
                let file = served.join(format!("{origin}.zone"));
                [origin, file.display().to_string()]
            }
            None => [ORIGIN.to_owned(), served.display().to_string()],
        })
    }

    /// Returns true if a client receives an answer. Always returns true for the reflector. From the disk,
    /// our own server reads all files once after its start. The tag of the last one shows that it is done.
    fn answers(self, rig: &Rig, program: &Program) -> bool {
        let probe = match self {
            Self::Echo => return true,
            Self::Zone(_) | Self::ZoneOf(..) => {
                let mut origins = self.zones(Path::new(""));
                let last = origins
                    .next_back()
                    .map_or_else(String::new, |[origin, _]| origin);
                format!("dig @{SERVER_ADDRESS} {last} SOA +short +tries=1 +time=1")
            }
            Self::Files => format!("curl -sf -m 1 -r 0-9 http://{SERVER_ADDRESS}/1024.bin"),
            Self::Mix => format!("curl -sf -m 1 -r 0-9 http://{SERVER_ADDRESS}/0.bin"),
            Self::Numbered(_) => {
                format!("curl -sf -m 1 -r 0-9 http://{SERVER_ADDRESS}/000/000.bin")
            }
            Self::OnDisk(len) => {
                let last = files_on_disk(len.unwrap_or(1 << 20)) - 1;
                let (folder, file) = (last / 1_000, last % 1_000);
                format!("curl -sfI -m 1 http://{SERVER_ADDRESS}/{folder:03}/{file:03}.bin")
            }
        };
        let mut words = probe.split(' ');
        let mut command = rig.client_command(words.next().unwrap_or_default());
        let output = shell::capture(command.args(words));
        let needs_tag = matches!(self, Self::OnDisk(_)) && program.is_ours();
        output.is_ok_and(|output| {
            let has_tag = String::from_utf8_lossy(&output).contains("ETag");
            // dig prints an error as a line that begins with a semicolon.
            !matches!(output.first(), None | Some(b';')) && (has_tag || !needs_tag)
        })
    }
}

/// Returns true if a program is installed, even if it is only on root's search path.
pub(crate) fn is_installed(program: &str) -> bool {
    let places = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
    shell::is_installed(program)
        || places
            .iter()
            .any(|folder| Path::new(folder).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(program: &'static Program, connections: u32, files: u32) -> Result<String> {
        let spec = Spec {
            program,
            serves: Serves::Files,
            options: String::new(),
            connections,
            tuning: Tuning::USUAL,
            limited: true,
        };
        let path = Path::new("/p");
        let words = spec.words(path, path, path, files)?;
        let config = fill_zones(program.config, &words, spec.serves.zones(path));
        Ok(config + &fill(program.command, &words))
    }

    #[test]
    fn every_placeholder_of_a_template_is_filled_in() {
        let peers = [
            &NGINX_AIO,
            &LIGHTTPD,
            &H2O,
            &CADDY,
            &STATIC_WEB_SERVER,
            &NSD,
            &KNOT_XDP,
            &BIND,
        ];
        for program in peers.into_iter().chain(DNS_SERVERS.iter().copied()) {
            let text = filled(program, 1_000, 20_000).unwrap();
            let word = |rest: &str| rest.split('}').next().unwrap_or_default().to_owned();
            let words = text.split('{').skip(1).map(word);
            let is_word = |word: &String| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert_eq!(
                words.filter(is_word).find(|word| !word.is_empty()),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn every_dns_server_with_a_limit_has_one() {
        for program in [&TURNAROUND, &KNOT, &KNOT_XDP, &NSD, &BIND] {
            let text = filled(program, 1_000, 20_000).unwrap();
            let has = |limit: &str| text.contains(limit);
            assert!(
                has("rate-limit: 1000000") // Knot DNS
                    || has("rrl-ratelimit: 1000000")
                    || has("--rate-limit 1000000")
                    || has("\n    rate-limit { responses-per-second 1000; "),
                "{text}"
            );
        }
    }

    #[test]
    fn connections_beyond_the_file_limit_take_more_workers() {
        for (connections, files, workers, each) in [
            (1_000, 20_000, 1, 1_512),
            (16_384, 1_048_576, 1, 16_896),
            (1_000_000, 20_000, 59, 20_000),
        ] {
            let text = filled(&NGINX, connections, files).unwrap();
            assert!(
                text.contains(&format!("\nworker_processes {workers};")),
                "{text}"
            );
            assert!(
                text.contains(&format!(" worker_connections {each};")),
                "{text}"
            );
        }
        assert!(filled(&LIGHTTPD, 11_000, 20_000).is_err());
    }
}
