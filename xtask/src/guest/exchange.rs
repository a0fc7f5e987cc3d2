//! Exchanges between the servers in a guest and their clients.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::cases::Case;
use super::costs::Costs;
use super::initramfs::{self, SITE, ZONE};
use super::machine::Guest;
use crate::e2e::checks::Checks;
use crate::shell;

/// Addresses of the server itself, of the kernel in the same guest, and of the client. All are in
/// the networks 10.99.0.0/24 and `fd99::/64`.
const OWN: [&str; 2] = ["10.99.0.2", "fd99::2"];
const KERNEL: [&str; 2] = ["10.99.0.3", "fd99::3"];
pub(super) const CLIENT: [&str; 2] = ["10.99.0.1", "fd99::1"];

/// Lengths of the networks' prefixes.
const PREFIXES: [u8; 2] = [24, 64];
/// Number of transfers at the same time.
const AT_ONCE: u32 = 4;
/// Number of questions that follow each other.
const QUESTIONS: u32 = 300;

/// Megabytes and questions whose cost is measured, and number of clients that ask.
const MEASURED: [u32; 2] = [100, 20_000];
const CLIENTS: u32 = 8;

/// Runs a line of shell at the client and returns its output.
pub(super) type Client<'a> = &'a dyn Fn(&str) -> Result<String>;

/// Returns commands that give an interface its addresses and bring it up.
pub(super) fn configure(link: &str, addresses: [&str; 2], mtu: u32) -> Vec<String> {
    let mut commands = vec![format!("ip link set {link} mtu {mtu} up")];
    for (address, prefix) in addresses.iter().zip(PREFIXES) {
        // IPv6 duplicate address detection would delay the first connection.
        let no_delay = if prefix > 32 { " nodad" } else { "" };
        commands.push(format!(
            "ip address add {address}/{prefix} dev {link}{no_delay}"
        ));
    }
    commands
}

/// Runs both servers in the guest, one after the other, and checks their answers. Also measures
/// costs, if `costs` is given.
pub(super) fn run(
    case: &Case,
    guest: &Guest,
    client: Client<'_>,
    checks: &mut Checks,
    costs: Option<&mut Costs>,
) -> Result<()> {
    for command in configure("eth0", KERNEL, case.mtu) {
        guest.run(&command)?;
    }
    // The card needs a moment, and its state is compared later.
    guest.run("until grep -q up /sys/class/net/eth0/operstate; do usleep 10000; done")?;
    if let Some(admode) = case.admode() {
        let set = format!("echo {admode} >/sys/module/netmap/parameters/admode && ls /dev/netmap");
        checks.check("netmap is there", || guest.run(&set).map(drop));
    }
    if case.expected.is_empty() {
        return Ok(());
    }
    let mut exchange = Exchange {
        case,
        guest,
        client,
        costs,
    };
    exchange.serve(&format!("sandstorm serve {SITE}"), checks, Exchange::web)?;
    if exchange.refusal().is_none() {
        exchange.serve(
            &format!("namestorm serve --zone {ZONE}"),
            checks,
            Exchange::dns,
        )?;
    }
    Ok(())
}

struct Exchange<'a> {
    case: &'a Case,
    guest: &'a Guest,
    client: Client<'a>,
    costs: Option<&'a mut Costs>,
}

impl Exchange<'_> {
    /// Returns the message with which the server must refuse to start, if it must.
    fn refusal(&self) -> Option<&'static str> {
        self.case.expected.strip_prefix('!')
    }

    fn addresses(&self) -> [&'static str; 2] {
        if self.case.has_own_addresses {
            OWN
        } else {
            KERNEL
        }
    }

    /// Starts a server, runs `ask`, stops the server, and checks what the server says and leaves.
    fn serve(
        &mut self,
        program: &str,
        checks: &mut Checks,
        ask: fn(&mut Self, &mut Checks) -> Result<()>,
    ) -> Result<()> {
        let before = self.interface()?;
        let queues = self.case.queues;
        let device = self.case.device;
        let addresses = OWN.iter().zip(PREFIXES);
        let addresses = addresses.map(|(address, prefix)| format!(" --address {address}/{prefix}"));
        let addresses: String = addresses.filter(|_| self.case.has_own_addresses).collect();
        let line = format!("start {program} --device {device},queues={queues}{addresses}");
        if let Some(refusal) = self.refusal() {
            let output = self.guest.run(&format!("! {line}"))?;
            checks.check(format_args!("{program} is refused"), || {
                ensure!(output.contains(refusal), "no {refusal:?} in\n{output}");
                Ok(())
            });
        } else {
            let block = self.guest.run(&line)?;
            checks.check(format_args!("start block of {program}"), || {
                let expected = self.case.expected;
                ensure!(block.contains(expected), "no {expected:?} in\n{block}");
                Ok(())
            });
            ask(self, checks)?;
            checks.check("packets for the kernel", || self.ping(KERNEL));
            self.stop(program, checks);
        }
        checks.check("the interface is as it was", || {
            let after = self.interface()?;
            ensure!(before == after, "before:\n{before}\nafter:\n{after}");
            self.ping(KERNEL)
        });
        Ok(())
    }

    fn stop(&self, program: &str, checks: &mut Checks) {
        checks.check(format_args!("summary of {program}"), || {
            let output = self.guest.run("stop")?;
            let lost = output.contains("lost by the driver");
            ensure!(output.contains("uptime:") && !lost, "{output}");
            Ok(())
        });
        if checks.failed() > 0 {
            let output = self.guest.run("cat /tmp/output");
            checks.note(&output.unwrap_or_default());
        }
    }

    /// Returns the state of the guest's interface: XDP programs, queues, and offload features.
    fn interface(&self) -> Result<String> {
        let lines = "ip -details link show eth0; ethtool -l eth0; ethtool -k eth0";
        self.guest.run(lines)
    }

    fn ping(&self, addresses: [&str; 2]) -> Result<()> {
        for address in addresses {
            (self.client)(&format!("ping -c 1 -W 5 {address}"))?;
        }
        Ok(())
    }

    /// Measures the cost of `units` of work, which the client does with a line of shell.
    fn measure(&mut self, work: &'static str, units: u32, line: &str) -> Result<()> {
        let (client, guest, case) = (self.client, self.guest, self.case.name);
        let Some(costs) = &mut self.costs else {
            return Ok(());
        };
        costs.measure((case, work), guest, units, || client(line).map(drop))
    }

    fn web(&mut self, checks: &mut Checks) -> Result<()> {
        let folder = shell::scratch("guest-site")?;
        initramfs::write_site(folder.path())?;
        for address in self.addresses() {
            for file in ["index.html", initramfs::BIG] {
                let expected = sha256(&folder.path().join(file))?;
                let host = if address.contains(':') {
                    format!("[{address}]")
                } else {
                    address.to_owned()
                };
                let fetch = format!("curl -gsS --max-time 60 http://{host}/{file} | sha256sum");
                checks.check(format_args!("{file} from {address}"), || {
                    let got = (self.client)(&fetch)?;
                    ensure!(got.trim() == expected.trim(), "{got} is not {expected}");
                    Ok(())
                });
                checks.check(
                    format_args!("{file} from {address}, {AT_ONCE} at once"),
                    || {
                        let got = (self.client)(&at_once(&fetch, AT_ONCE))?;
                        let right = got.matches(expected.trim()).count();
                        ensure!(right == AT_ONCE as usize, "{got}");
                        Ok(())
                    },
                );
            }
        }
        checks.check("ping", || self.ping(self.addresses()));
        let (each, fetch) = (
            MEASURED[0] / CLIENTS,
            format!("curl -sS http://{}/", self.addresses()[0]),
        );
        let file = initramfs::BIG;
        let fetch = format!("{fetch}{file}?[1-{each}] -o /dev/null");
        self.measure("MB", each * CLIENTS, &at_once(&fetch, CLIENTS))
    }

    fn dns(&mut self, checks: &mut Checks) -> Result<()> {
        for address in self.addresses() {
            let dig = format!("dig @{address} +tries=1 +time=20");
            for transport in ["+noedns", "+edns", "+tcp"] {
                checks.check(format_args!("a name from {address}, {transport}"), || {
                    let got = (self.client)(&format!("{dig} {transport} +short www.storm.test A"))?;
                    ensure!(got.trim() == "192.0.2.80", "{got}");
                    Ok(())
                });
            }
            checks.check(format_args!("a long answer from {address}"), || {
                let got = (self.client)(&format!("{dig} +tcp huge.storm.test TXT"))?;
                ensure!(
                    got.contains("status: NOERROR") && got.contains("IN\tTXT"),
                    "{got}"
                );
                Ok(())
            });
            checks.check(format_args!("{QUESTIONS} names from {address}"), || {
                let got = (self.client)(&questions(address, QUESTIONS))?;
                let words: Vec<&str> = got.split_whitespace().collect();
                ensure!(words == [&*QUESTIONS.to_string(), "192.0.2.80"], "{got}");
                Ok(())
            });
        }
        let ask = questions(self.addresses()[0], MEASURED[1] / CLIENTS);
        self.measure("question", MEASURED[1], &at_once(&ask, CLIENTS))
    }
}

/// Returns a line that runs `line` several times at once.
fn at_once(line: &str, times: u32) -> String {
    format!("{line} & ").repeat(times as usize) + "wait"
}

/// Returns a line that asks for a name, one question after the other, and counts equal answers.
fn questions(address: &str, number: u32) -> String {
    format!(
        "yes 'www.storm.test A' | head -n {number} | \
         dig @{address} +tries=1 +time=20 +short -f - | uniq -c"
    )
}

/// Returns what `sha256sum` prints for a file on its standard input.
fn sha256(file: &Path) -> Result<String> {
    let mut sum = Command::new("sh");
    shell::capture_text(sum.args(["-c", "sha256sum < \"$0\""]).arg(file))
}
