//! `xtask demo`: serves a sample site and a sample zone, sends each server one request, and keeps
//! serving until Ctrl-C.
//!
//! Without `--host` the demo runs in a network namespace and does not change the host's network.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::netns::Namespace;
use crate::server::Server;
use crate::shell;
use crate::{interrupt, setup};
use anyhow::{Context as _, Result, ensure};

const SITE: &str = "xtask/sample/site";
const ZONE: &str = "xtask/sample/zones/storm.test.zone";

/// A name in the sample zone. [`ADDRESS`] is its IPv4 address.
const NAME: &str = "www.storm.test";
const ADDRESS: &str = "192.0.2.80";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exit after the check. The exit status is 0 only if both answers are right.
    #[arg(long)]
    once: bool,
    /// Use the host's own network, so that a browser on this host can reach the servers.
    #[arg(long)]
    host: bool,
    /// Do not install packages or build programs.
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

fn serve(options: &Options) -> Result<()> {
    let programs = shell::target_folder()?.join("release");
    // The namespace is declared before the servers, so that it is dropped after them.
    let namespace = (!options.host).then(|| Namespace::create("demo"));
    let namespace = namespace.transpose()?;
    let inside = |program: &Path| match &namespace {
        Some(namespace) => namespace.command(program),
        None => Command::new(program),
    };
    let serve = |program: &str, content: &[&str]| {
        let mut command = inside(&programs.join(program));
        command.current_dir(shell::repository());
        command.arg("serve").args(content);
        command.args(["--device", "auto"]);
        println!("\n$ {}", shell::shown(&command));
        let server = Server::start(command)?;
        print!("{}", server.output());
        anyhow::Ok(server)
    };
    let mut web = serve("sandstorm", &[SITE])?;
    let mut dns = serve("namestorm", &["--zone", ZONE])?;

    let (web_at, dns_at) = places(web.try_line(), dns.try_line())?;
    let checked = check(&inside, &web_at, &dns_at);
    if options.once {
        checked?;
    } else {
        if let Err(failure) = checked {
            // Keep the servers running, so that the user can look for the cause.
            eprintln!("demo: {failure:#}");
        }
        let prefix = match &namespace {
            Some(namespace) => format!("sudo ip netns exec {} ", namespace.name()),
            None => String::new(),
        };
        println!("\nServing until Ctrl-C. Reach them with");
        println!("    {prefix}curl http://{web_at}/");
        println!("    {prefix}dig @{dns_at} {NAME}");
        if options.host {
            println!("or, in a browser on this host: http://{web_at}/");
        }
        wait_for_end([&mut web, &mut dns])?;
    }
    dns.stop_well()?;
    web.stop_well()?;
    println!("demo: both servers have stopped and left nothing behind");
    Ok(())
}

/// Extracts the web server's host and port, and the DNS server's address, from their `try:` lines.
fn places(web: &str, dns: &str) -> Result<(String, String)> {
    let after = |line: &str, mark| {
        let mut words = line.split_whitespace();
        let place = words.find_map(|word| word.strip_prefix(mark)?.split('/').next());
        let missing = format!("no word in {line:?} begins with {mark}");
        place.map(str::to_owned).context(missing)
    };
    Ok((after(web, "http://")?, after(dns, "@")?))
}

/// Fetches a page and resolves a name, prints both answers, and checks that they are right.
fn check(inside: &impl Fn(&Path) -> Command, web_at: &str, dns_at: &str) -> Result<()> {
    let fetch = |program: &str, line: String| {
        let mut command = inside(Path::new(program));
        command.args(line.split(' '));
        println!("\n$ {}", shell::shown(&command));
        let answer = shell::capture_text(&mut command)?;
        println!("{}", answer.trim());
        anyhow::Ok(answer)
    };
    let curl = format!("--silent --show-error --fail --max-time 10 http://{web_at}/");
    let page = fetch("curl", curl)?;
    let dig = format!("@{dns_at} {NAME} A +noall +comments +answer");
    let records = fetch("dig", dig)?;

    let index = shell::repository().join(SITE).join("index.html");
    ensure!(
        page == shell::read(&index)?,
        "the page differs from {}",
        index.display()
    );
    let right = records.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [owner, _, "IN", "A", ADDRESS] if owner.trim_end_matches('.') == NAME)
    });
    ensure!(right, "{NAME} does not have the address {ADDRESS}");
    println!("\ndemo: the page and the name are right");
    Ok(())
}

/// Waits for Ctrl-C. Returns an error if a server exits first.
fn wait_for_end(mut servers: [&mut Server; 2]) -> Result<()> {
    while !interrupt::seen() {
        std::thread::sleep(Duration::from_millis(50));
        for server in &mut servers {
            // On a terminal, the servers receive Ctrl-C too, perhaps before this process. A
            // server's exit is therefore an error only if no Ctrl-C follows within 50 ms.
            let ended = server.expect_running();
            std::thread::sleep(Duration::from_millis(50));
            if !interrupt::seen() {
                ended?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_from_the_try_lines() {
        let (web, dns) = places("curl http://10.0.0.2:8080/", "dig @10.0.0.6 www.x. A").unwrap();
        assert_eq!((&*web, &*dns), ("10.0.0.2:8080", "10.0.0.6"));
        assert!(places("curl", "dig").is_err());
    }
}
