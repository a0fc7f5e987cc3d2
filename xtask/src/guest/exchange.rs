//! Exchanges between the servers in a guest and their clients.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cases::Case;
use super::costs::Costs;
use super::initramfs::{self, SMALL};
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

/// Options of the DNS server whose cost is measured. The first ones send after each batch. With the
/// last one, the server sends when its RX ring is empty.
const FLUSHES: [(&str, &str); 5] = [
    ("batch 1", "--batch 1 --flush-interval-us 0"),
    ("batch 16", "--batch 16 --flush-interval-us 0"),
    ("batch 64", "--batch 64 --flush-interval-us 0"),
    ("batch 256", "--batch 256 --flush-interval-us 0"),
    ("whole ring", "--batch 256 --flush-interval-us 5000"),
];
/// The same where the card has 1,024 buffers for packets that arrive.
const LARGER_FLUSHES: [(&str, &str); 6] = [
    ("batch 1", "--batch 1 --flush-interval-us 0"),
    ("batch 16", "--batch 16 --flush-interval-us 0"),
    ("batch 64", "--batch 64 --flush-interval-us 0"),
    ("batch 256", "--batch 256 --flush-interval-us 0"),
    ("batch 512", "--batch 512 --flush-interval-us 0"),
    ("batch 1024", "--batch 1024 --flush-interval-us 0"),
];
/// Number of queries whose cost is measured.
const QUERIES: u32 = 80_000;
/// Options of the client for unanswered queries. The guest's card has 256 buffers for packets that arrive.
const OUTSTANDING: &str = "-q 200";
/// The same for a card with 1,024 buffers. The replies to so many need the buffers of several sockets.
const MORE_OUTSTANDING: &str = "-q 1500 -c 8";
/// The same for a port of a switch. With 1,000, some are lost.
const OUTSTANDING_AT_SWITCH: &str = "-q 600 -c 8";
/// Number of clients of the web server whose cost is measured.
const CLIENTS: u32 = 8;

/// Lets the guest's kernel receive all packets of a card with 1,024 buffers at once, every 20 ms. QEMU
/// delivers about 50 at once, so otherwise few would wait in the RX ring.
const GATHER: &str = "cd /proc/sys/net/core && echo 2048 >netdev_budget && \
    echo 200000 >netdev_budget_usecs && cd /sys/class/net/eth0 && \
    echo 1 >napi_defer_hard_irqs && echo 20000000 >gro_flush_timeout && cd /";

/// The servers' command lines.
const WEB: &str = "sandstorm serve /site";
const DNS: &str = "namestorm serve --zone /storm.test.zone";

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
    guest.run(&case.set_parameters())?;
    if case.is_of_batches() {
        guest.run(GATHER)?;
    }
    if case.has_queueing_discipline() {
        guest.run("tc qdisc replace dev eth0 root pfifo limit 77")?;
    }
    if let Some((program, arguments)) = case.joint() {
        guest.run("ip link set eth0 promisc on")?;
        guest.run(&format!("join {program} {arguments}"))?;
    }
    let exchange = Exchange {
        case,
        guest,
        client,
    };
    exchange.serve(WEB, checks, Exchange::web)?;
    if exchange.refusal().is_none() {
        exchange.serve(DNS, checks, |exchange, checks| {
            exchange.dns(checks);
            Ok(())
        })?;
        if let Some(costs) = costs {
            exchange.measure(checks, costs)?;
        }
    }
    if let Some((program, arguments)) = case.joint() {
        guest.run(&format!("part {program} {arguments}"))?;
        guest.run("ip link set eth0 promisc off")?;
        // netmap's programs leave another queueing discipline behind.
        checks.check("packets for the kernel", || exchange.ping(KERNEL));
    }
    Ok(())
}

struct Exchange<'a> {
    case: &'a Case,
    guest: &'a Guest,
    client: Client<'a>,
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
        &self,
        program: &str,
        checks: &mut Checks,
        ask: impl FnOnce(&Self, &mut Checks) -> Result<()>,
    ) -> Result<()> {
        let before = self.interface()?;
        let device = format!("{}{}", self.case.device, self.case.queues_option());
        let addresses = OWN.iter().zip(PREFIXES);
        let addresses = addresses.map(|(address, prefix)| format!(" --address {address}/{prefix}"));
        let addresses: String = addresses.filter(|_| self.case.has_own_addresses).collect();
        let wait = self.case.wait_options();
        let line = format!("start {program} --device {device}{wait}{addresses}");
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
            if self.case.has_netmap() {
                checks.check("netmap stays loaded", || self.expect_loaded());
            }
            if self.case.has_outage() {
                checks.check("an interface that is down", || self.outage(program));
            }
            ask(self, checks)?;
            // netmap's programs take the card from the kernel.
            if self.case.joint().is_none() {
                checks.check("packets for the kernel", || self.ping(KERNEL));
            }
            if self.case.queues > 1 {
                checks.check("each queue", || self.expect_all_queues(program));
            }
            self.stop(program, checks);
        }
        if self.case.joint().is_none() {
            self.expect_interface(&before, checks);
        }
        Ok(())
    }

    /// Checks that each worker, and so each queue, has received packets.
    fn expect_all_queues(&self, program: &str) -> Result<()> {
        let name = program.split(' ').next().unwrap_or(program);
        let output = self.guest.run(&format!("{name} status --json"))?;
        let status: Value = serde_json::from_str(output.trim())?;
        let workers = status["workers"].as_array().map_or(&[][..], |all| all);
        let received = workers
            .iter()
            .map(|one| one["port"]["received frames"].as_u64());
        let received: Vec<_> = received.map(Option::unwrap_or_default).collect();
        let is_each = received.iter().all(|frames| *frames > 0);
        ensure!(
            is_each && received.len() == self.case.queues as usize,
            "received frames: {received:?}"
        );
        Ok(())
    }

    /// Checks that netmap cannot be unloaded while a server uses it.
    fn expect_loaded(&self) -> Result<()> {
        self.guest.run("! rmmod netmap").map(drop)
    }

    /// Brings the interface down for some seconds. Checks that the log says what this means, and that
    /// the server knows the state of the interface.
    fn outage(&self, program: &str) -> Result<()> {
        let name = program.split(' ').next().unwrap_or(program);
        let expect = |is_up: bool| {
            let output = self.guest.run(&format!("{name} status --json"))?;
            let status: Value = serde_json::from_str(output.trim())?;
            let told = &status["interface"]["is_up"];
            ensure!(told.as_bool() == Some(is_up), "is_up is {told} in {output}");
            Ok(())
        };
        // Linux otherwise removes the kernel's IPv6 addresses.
        self.guest
            .run("echo 1 >/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down")?;
        self.guest.run("ip link set eth0 down; sleep 5")?;
        let output = self.guest.run("cat /tmp/output")?;
        ensure!(output.contains("calls hang until it is up"), "{output}");
        expect(false)?;
        self.guest.run("ip link set eth0 up")?;
        self.guest.run(
            "until grep -q up /sys/class/net/eth0/operstate; do usleep 10000; done; sleep 1",
        )?;
        expect(true)
    }

    /// Checks that the interface has the same state as before, and carries the kernel's packets.
    fn expect_interface(&self, before: &str, checks: &mut Checks) {
        checks.check("the interface is as it was", || {
            let after = self.interface()?;
            ensure!(before == after, "before:\n{before}\nafter:\n{after}");
            self.ping(KERNEL)
        });
    }

    /// Returns the state of the guest's interface: XDP programs, queues, offload features, and queueing
    /// disciplines with their parameters.
    fn interface(&self) -> Result<String> {
        // The number of references is none of the parameters.
        self.guest.run(
            "ip -details link show eth0; ethtool -l eth0; ethtool -k eth0; \
             tc qdisc show dev eth0 | sed 's/ refcnt [0-9]*//'",
        )
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

    fn ping(&self, addresses: [&str; 2]) -> Result<()> {
        for address in addresses {
            (self.client)(&format!("ping -c 1 -W 5 {address}"))?;
        }
        Ok(())
    }

    /// Measures what the servers cost in each mode, and with each size of their batches.
    fn measure(&self, checks: &mut Checks, costs: &mut Costs) -> Result<()> {
        if self.case.is_of_batches() {
            let outstanding = match self.case.joint() {
                Some(_) => OUTSTANDING_AT_SWITCH,
                None => MORE_OUTSTANDING,
            };
            return self.measure_dns(&LARGER_FLUSHES, outstanding, checks, costs);
        }
        let address = self.addresses()[0];
        for mode in ["memcopy", "pre-copy"] {
            self.serve(&format!("{WEB} --mode {mode}"), checks, |exchange, _| {
                for (work, file, units) in [("1 MB", initramfs::BIG, 48), ("1 KB", SMALL, 16_000)] {
                    let each = units / CLIENTS;
                    let fetch =
                        format!("curl -fsS http://{address}/{file}?[1-{each}] -o /dev/null");
                    // curl writes only errors, and a failed load says nothing about the cost.
                    let line = format!("({}) 2>&1 | {{ ! grep .; }}", at_once(&fetch, CLIENTS));
                    exchange.cost(costs, format!("{work}, {mode}"), units, &line)?;
                }
                Ok(())
            })?;
        }
        self.measure_dns(&FLUSHES, OUTSTANDING, checks, costs)
    }

    fn measure_dns(
        &self,
        flushes: &[(&str, &str)],
        outstanding: &str,
        checks: &mut Checks,
        costs: &mut Costs,
    ) -> Result<()> {
        let address = self.addresses()[0];
        for (name, options) in flushes {
            self.serve(
                &format!("{DNS} --rate-limit 0 {options}"),
                checks,
                |exchange, _| {
                    // The guest may lose some packets, but not many.
                    let line = format!(
                        "yes 'www.storm.test A' | head -n {QUERIES} | \
                     dnsperf -s {address} {outstanding} -t 20 -n 1 2>&1 | \
                     grep -E 'completed:.*\\((100\\.00|99\\.9.)%\\)'"
                    );
                    exchange.cost(costs, format!("query, {name}"), QUERIES, &line)?;
                    let (case, size) = (exchange.case.name, exchange.mean_batch()?);
                    println!("{case}, {name}: {size:.0} packets in a sent batch on average");
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    /// Measures what `units` cost that the client's `line` asks for.
    fn cost(&self, costs: &mut Costs, work: String, units: u32, line: &str) -> Result<()> {
        let client = || (self.client)(line).map(drop);
        costs.measure((self.case.name, work), self.guest, units, client)
    }

    /// Returns the mean number of packets that the DNS server has sent in a batch.
    fn mean_batch(&self) -> Result<f64> {
        let output = self.guest.run("namestorm status --json")?;
        let status: Value = serde_json::from_str(output.trim())?;
        mean_batch(&status).with_context(|| format!("no sent batches in {output}"))
    }

    fn web(&self, checks: &mut Checks) -> Result<()> {
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
        Ok(())
    }

    fn dns(&self, checks: &mut Checks) {
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
    }
}

/// Returns the mean number of packets in the sent batches of the first worker.
fn mean_batch(status: &Value) -> Option<f64> {
    let histograms = status["workers"][0]["histograms"].as_array()?;
    let mut sent = histograms
        .iter()
        .filter(|one| one["name"] == "batch frames" && one["labels"]["direction"] == "sent");
    let sent = sent.next()?;
    let counts = sent["ranges"].as_array()?.iter();
    let batches: f64 = counts.filter_map(|range| range[1].as_f64()).sum();
    Some(sent["sum"].as_f64()? / batches)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_sent_batches_is_computed_from_their_histogram() {
        let histogram = |direction: &str, sum: u32| {
            serde_json::json!({
                "name": "batch frames",
                "labels": {"direction": direction},
                "sum": sum,
                "ranges": [[1.0, 3], [3.0, 1], [null, 0]],
            })
        };
        let histograms = [histogram("received", 1), histogram("sent", 6)];
        let status = serde_json::json!({"workers": [{"histograms": histograms}]});
        assert_eq!(mean_batch(&status), Some(1.5));
        assert_eq!(mean_batch(&serde_json::json!({})), None);
    }
}
