//! `xtask demo`: both servers on a sample site and zone, each fetched from
//! once, then served on until Ctrl-C.
//!
//! Without `--host` everything happens in a network namespace of its own, and
//! nothing of the host's network is touched.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::netns::Namespace;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};
use crate::{interrupt, setup};

const SITE: &str = "xtask/sample/site";
const ZONE: &str = "xtask/sample/zones/storm.test.zone";

/// The name that is resolved, and its address in the sample zone.
const NAME: &str = "www.storm.test";
const ADDRESS: &str = "192.0.2.80";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// End after the check; the status is 0 only if both answers are right.
    #[arg(long)]
    once: bool,
    /// Put the client's end on this host, where a browser can reach it.
    #[arg(long)]
    host: bool,
    /// Skip packages and build.
    #[arg(long, hide = true)]
    built: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.built {
        setup::run()?;
        shell::build_release("demo", &["sandstorm", "namestorm"])?;
    }
    if !shell::is_root() {
        return shell::again_as_root("demo");
    }
    serve(options)
}

/// Where the client's end is: in a namespace, or on the host.
struct Place(Option<Namespace>);

impl Place {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.0 {
            Some(namespace) => namespace.command(program),
            None => Command::new(program),
        }
    }

    /// What a person types before a command to be run here.
    fn prefix(&self) -> String {
        match &self.0 {
            Some(namespace) => format!("sudo ip netns exec {} ", namespace.name()),
            None => String::new(),
        }
    }
}

fn serve(options: &Options) -> Result<()> {
    let repository = shell::repository();
    let binaries = shell::target_folder()?.join("release");
    // Declared first, so dropped last: the servers end before their place.
    let place = Place(if options.host {
        None
    } else {
        Some(Namespace::create("demo")?)
    });

    let mut sandstorm = place.command(binaries.join("sandstorm"));
    sandstorm
        .arg("serve")
        .arg(repository.join(SITE))
        .args(["--device", "auto"]);
    let mut web = start(sandstorm)?;
    let mut namestorm = place.command(binaries.join("namestorm"));
    namestorm
        .arg("serve")
        .arg("--zone")
        .arg(repository.join(ZONE))
        .args(["--device", "auto"]);
    let mut dns = start(namestorm)?;

    let fetch = Fetch::from_try_lines(web.try_line(), dns.try_line())?;
    let checked = check(&place, &fetch, &repository.join(SITE).join("index.html"));
    if options.once {
        checked?;
    } else {
        if let Err(failure) = checked {
            // Worth serving on: someone wants to look.
            eprintln!("demo: {failure}");
        }
        println!("\nServing until Ctrl-C. Reach them with");
        println!("    {}curl http://{}/", place.prefix(), fetch.web);
        println!("    {}dig @{} {NAME}", place.prefix(), fetch.dns);
        if options.host {
            println!("or, in a browser on this host: http://{}/", fetch.web);
        }
        wait_for_end(&mut web, &mut dns)?;
    }
    for (name, server) in [("namestorm", dns), ("sandstorm", web)] {
        let (status, output) = server.stop(Signal::TERM)?;
        if !status.success() {
            return Err(Failure::new(format!(
                "{name} ended with {status}:\n{output}"
            )));
        }
    }
    println!("demo: both servers have ended, nothing is left behind");
    Ok(())
}

fn start(command: Command) -> Result<Server> {
    println!("\n$ {}", shell::shown(&command));
    let server = Server::start(command)?;
    print!("{}", server.output());
    Ok(server)
}

/// Where the two servers say that they are.
struct Fetch {
    /// Host, and port where it is not 80, as in a URL.
    web: String,
    dns: String,
}

impl Fetch {
    fn from_try_lines(web: &str, dns: &str) -> Result<Self> {
        let url = web
            .split_whitespace()
            .find_map(|word| word.strip_prefix("http://"));
        let server = dns
            .split_whitespace()
            .find_map(|word| word.strip_prefix('@'));
        match (url, server) {
            (Some(url), Some(server)) => Ok(Self {
                web: url.split('/').next().unwrap_or(url).to_owned(),
                dns: server.to_owned(),
            }),
            _ => Err(Failure::new(format!(
                "no URL in \"{web}\", or no server address in \"{dns}\""
            ))),
        }
    }
}

/// Fetches a page and a name, prints both, and compares them with the sample.
fn check(place: &Place, fetch: &Fetch, page: &Path) -> Result<()> {
    let mut curl = place.command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "10"]);
    curl.arg(format!("http://{}/", fetch.web));
    println!("\n$ {}", shell::shown(&curl));
    let fetched = shell::capture(&mut curl)?;
    println!("{}", String::from_utf8_lossy(&fetched).trim_end());

    let mut dig = place.command("dig");
    dig.args([
        &format!("@{}", fetch.dns),
        NAME,
        "A",
        "+noall",
        "+comments",
        "+answer",
    ]);
    println!("\n$ {}", shell::shown(&dig));
    let resolved = shell::capture_text(&mut dig)?;
    println!("{}", resolved.trim());

    let expected = std::fs::read(page).context(format_args!("reading {}", page.display()))?;
    if fetched != expected {
        return Err(Failure::new(format!(
            "the page is not what {} holds",
            page.display()
        )));
    }
    let right = resolved.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [owner, _, "IN", "A", ADDRESS] if owner.trim_end_matches('.') == NAME)
    });
    if !right {
        return Err(Failure::new(format!(
            "{NAME} does not have the address {ADDRESS}"
        )));
    }
    println!("\ndemo: the page and the name are right");
    Ok(())
}

/// Returns on Ctrl-C; an error when a server ends before.
fn wait_for_end(web: &mut Server, dns: &mut Server) -> Result<()> {
    while !interrupt::seen() {
        for (name, server) in [("sandstorm", &mut *web), ("namestorm", &mut *dns)] {
            // At a terminal Ctrl-C reaches the servers as well, maybe first.
            if let Some(status) = server.ended()?.filter(|_| !interrupt::seen()) {
                std::thread::sleep(Duration::from_millis(100));
                if interrupt::seen() {
                    break;
                }
                return Err(Failure::new(format!(
                    "{name} ended by itself with {status}:\n{}",
                    server.output().trim_end()
                )));
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_from_what_the_servers_propose() {
        let fetch =
            Fetch::from_try_lines("curl http://10.0.0.2:8080/", "dig @10.0.0.6 www.x. A").unwrap();
        assert_eq!(fetch.web, "10.0.0.2:8080");
        assert_eq!(fetch.dns, "10.0.0.6");
        assert!(Fetch::from_try_lines("curl", "dig").is_err());
    }
}
