//! The start block and the summary: aligned `label: value` lines.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nmio::PortCounters;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::tally::{Count, CountKind, Labels, Tally};

/// Lines of a block or a report: a label and a value each.
pub type Lines = Vec<(&'static str, String)>;

/// A block of aligned `label: value` lines.
#[derive(Clone, Debug, Default)]
pub struct Block(Vec<Line>);

#[derive(Clone, Debug)]
struct Line {
    label: String,
    /// The name of this line's value among those with the same label.
    part: Option<String>,
    value: String,
}

impl Block {
    /// Adds a line.
    pub fn line(&mut self, label: impl Into<String>, value: impl Into<String>) {
        self.0.push(Line {
            label: label.into(),
            part: None,
            value: value.into(),
        });
    }

    /// Adds a line with a named part of what the label stands for.
    fn part(&mut self, label: &str, part: &str, value: String) {
        self.0.push(Line {
            label: label.to_owned(),
            part: Some(part.to_owned()),
            value,
        });
    }

    /// Returns the label and the value of each line.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|line| (&*line.label, &*line.value))
    }
}

/// Writes the block as an object. A label that several lines have gets a list of their values, or an
/// object with their parts.
impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (index, first) in self.0.iter().enumerate() {
            let label = &first.label;
            let is_same = |line: &&Line| line.label == *label;
            if self.0[..index].iter().any(|line| is_same(&line)) {
                continue;
            }
            let same = self.0.iter().filter(is_same);
            let parts = same
                .clone()
                .filter_map(|line| Some((line.part.as_ref()?, &line.value)));
            let parts: BTreeMap<_, _> = parts.collect();
            let values: Vec<_> = same.map(|line| &line.value).collect();
            match values[..] {
                _ if !parts.is_empty() => map.serialize_entry(label, &parts)?,
                [value] => map.serialize_entry(label, value)?,
                _ => map.serialize_entry(label, &values)?,
            }
        }
        map.end()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = |name: fn(&Line) -> Option<&String>| {
            let names = self.0.iter().filter_map(name);
            names.map(|name| name.chars().count()).max().unwrap_or(0) + 2
        };
        let label_width = longest(|line| Some(&line.label));
        let part_width = longest(|line| line.part.as_ref());
        for Line { label, part, value } in &self.0 {
            write!(f, "{:label_width$}", format!("{label}:"))?;
            if let Some(part) = part {
                write!(f, "{part:part_width$}")?;
            }
            writeln!(f, "{value}")?;
        }
        Ok(())
    }
}

/// Formats a number with commas between thousands: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 zone`, `1,234 zones`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

/// Formats a number of bytes with a decimal unit: `17 B`, `4.1 kB`, `30.0 MB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1_000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1_000.0;
    let mut unit = 0;
    // A value of 999.95 or more would be rounded to 1000.0, so the next unit is used.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The reason of packets that found no room in the TX ring. Transports and ports count them.
const NO_ROOM: &str = "TX ring full";

/// Joins the lines of a message, because an event of the log has one.
pub(crate) fn joined_lines(message: &str) -> String {
    message.replace("\n  ", "; ").replace('\n', "; ")
}

/// Composes the summary of a server that has ended.
pub(crate) fn summary(uptime: Duration, port: &PortCounters, tally: &Tally) -> Block {
    let mut block = Block::default();
    block.line("uptime", format!("{:.1} s", uptime.as_secs_f64()));
    port_lines(&mut block, port);
    event_lines(&mut block, tally.events());
    block.line("dropped", dropped(&all_drops(port, tally)));
    block
}

/// Returns the packets that the transports and a port dropped. A packet that found no room in the TX
/// ring counts once, although the port counts those of the transports, too.
fn all_drops(port: &PortCounters, tally: &Tally) -> Vec<Count> {
    let no_room = tally.drops().iter().filter(|one| one.name == NO_ROOM);
    let counted: u64 = no_room.map(|one| one.count).sum();
    let mut of_port = port_drops(port);
    for one in of_port.iter_mut().filter(|one| one.name == NO_ROOM) {
        one.count = one.count.saturating_sub(counted);
    }
    [tally.drops(), &of_port].concat()
}

/// Returns the packets that a port dropped, by reason.
pub(crate) fn port_drops(port: &PortCounters) -> [Count; 5] {
    let drops = [
        ("lost before the RX ring", port.rx_lost),
        ("lost by the driver", port.tx_lost),
        ("refused by the kernel", port.tx_refused),
        ("bad descriptor", port.bad_descriptors),
        (NO_ROOM, port.tx_ring_full),
    ];
    drops.map(|(name, count)| Count {
        program: None,
        site: None,
        name,
        labels: Labels::NONE,
        kind: CountKind::Total,
        count,
    })
}

fn port_lines(block: &mut Block, port: &PortCounters) {
    let frames = |n, size| format!("{} frames, {}", count(n), bytes(size));
    block.line("received", frames(port.rx_frames, port.rx_bytes));
    let mut sent = frames(port.tx_frames, port.tx_bytes);
    if port.tx_supers > 0 {
        let supers = count(port.tx_supers);
        sent = format!("{sent}; of these, runs in {supers} super-segments");
    }
    if port.tx_retries > 0 {
        let retries = count(port.tx_retries);
        sent = format!("{sent}; the device was full {retries} times");
    }
    block.line("sent", sent);
    let (sends, waits) = (count(port.tx_wakeups), count(port.waits));
    block.line("system calls", format!("{sends} to send, {waits} to wait"));
    for (label, batches) in [
        ("received batches", &port.rx_batches),
        ("sent batches", &port.tx_batches),
    ] {
        let batches = batches.to_string();
        if !batches.is_empty() {
            block.line(label, batches);
        }
    }
}

/// Adds one line for each event: `requests: 5`. The kinds of an event share a line: `answers: 5 (200
/// 4, 404 1)`. If there are several programs or sites, the label is their name, and the counts are
/// aligned: `sandstorm: requests 5`.
fn event_lines(block: &mut Block, events: &[Count]) {
    let mut lines: Vec<Vec<&Count>> = Vec::new();
    for event in events.iter().filter(|one| one.kind.is_in_summary()) {
        match lines.iter_mut().find(|line| line[0].is_kin(event)) {
            Some(line) => line.push(event),
            None => lines.push(vec![event]),
        }
    }
    for kinds in lines {
        let (event, n) = (kinds[0], of_kinds(&kinds));
        match event.counter_name() {
            None => block.line(event.name, n),
            Some(counter) => block.part(&counter, event.name, n),
        }
    }
}

/// Formats the sum of the kinds of an event, and each kind that happened: `5 (200 4, 404 1)`.
fn of_kinds(kinds: &[&Count]) -> String {
    let total = count(kinds.iter().map(|one| one.count).sum());
    let happened = kinds
        .iter()
        .filter(|one| one.count > 0 && !one.labels.is_empty())
        .map(|one| format!("{} {}", one.labels.values(), count(one.count)));
    let happened: Vec<_> = happened.collect();
    if happened.is_empty() {
        return total;
    }
    format!("{total} ({})", happened.join(", "))
}

/// Formats the total and its reasons: `5 (fragment 2, TX ring full 3)`. If there are several
/// programs or sites, the reasons are grouped: `6 (sandstorm: fragment 1; namestorm: fragment 2; TX ring
/// full 3)`.
fn dropped(drops: &[Count]) -> String {
    let total = count(drops.iter().map(|drop| drop.count).sum());
    let drops: Vec<_> = drops.iter().filter(|drop| drop.count > 0).collect();
    let groups = drops.chunk_by(|one, next| one.counter() == next.counter());
    let groups: Vec<String> = groups
        .map(|group| {
            let reason = |drop: &&Count| format!("{} {}", drop.name, count(drop.count));
            let reasons = group.iter().map(reason).collect::<Vec<_>>().join(", ");
            match group[0].counter_name() {
                None => reasons,
                Some(counter) => format!("{counter}: {reasons}"),
            }
        })
        .collect();
    if groups.is_empty() {
        return total;
    }
    format!("{total} ({})", groups.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_sizes_have_units() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(30_000_000), "30.0 MB");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
    }

    #[test]
    fn values_are_aligned() {
        let mut block = Block::default();
        block.line("sandstorm", "0.1.0");
        block.line("try", "curl http://192.0.2.1/");
        assert_eq!(
            block.to_string(),
            "sandstorm: 0.1.0\ntry:       curl http://192.0.2.1/\n"
        );
    }

    #[test]
    fn the_summary_shows_batch_sizes() {
        let mut port = PortCounters::default();
        for frames in [1, 1, 64, 1_500] {
            port.rx_batches.count(frames);
        }
        let text = summary(Duration::ZERO, &port, &Tally::default()).to_string();
        assert!(
            text.contains("received batches: 1: 2, 64-127: 1, 1024: 1\n"),
            "{text}"
        );
        assert!(!text.contains("sent batches"), "no batch was sent: {text}");
    }

    #[test]
    fn the_summary_names_each_reason_for_drops() {
        let port = PortCounters {
            rx_frames: 12,
            rx_bytes: 3_400,
            tx_ring_full: 2,
            tx_wakeups: 1_234,
            ..Default::default()
        };
        let mut tally = Tally::default();
        tally.event("requests", 5);
        for (status, n) in [("200", 4), ("304", 0), ("404", 1)] {
            tally.event_of("answers", ("status", status), n);
        }
        tally.event_of("losses", ("cause", "timeout"), 0);
        tally.detail("segments", Labels::NONE, 9);
        tally.level_detail("connections in state", ("state", "closing"), 8);
        tally.drop("bad checksum", 1_000);
        tally.drop("fragment", 0);
        let text = summary(Duration::from_millis(1_500), &port, &tally).to_string();
        assert_eq!(
            text,
            "uptime:       1.5 s\n\
             received:     12 frames, 3.4 kB\n\
             sent:         0 frames, 0 B\n\
             system calls: 1,234 to send, 0 to wait\n\
             requests:     5\n\
             answers:      5 (200 4, 404 1)\n\
             losses:       0\n\
             dropped:      1,002 (bad checksum 1,000, TX ring full 2)\n"
        );
    }

    #[test]
    fn a_packet_without_room_is_counted_once() {
        let port = PortCounters {
            tx_ring_full: 5,
            ..Default::default()
        };
        let mut tally = Tally::default();
        for (program, count) in [("sandstorm", 1), ("namestorm", 3)] {
            tally.for_program(program, |tally| tally.drop(NO_ROOM, count));
        }
        let text = summary(Duration::ZERO, &port, &tally).to_string();
        let line = "5 (sandstorm: TX ring full 1; namestorm: TX ring full 3; TX ring full 1)\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn the_summary_of_several_programs_names_the_program() {
        let port = PortCounters {
            tx_ring_full: 2,
            tx_refused: 45,
            ..Default::default()
        };
        let mut tally = Tally::default();
        tally.for_program("sandstorm", |tally| {
            tally.event("connections", 1_000);
            tally.drop("bad checksum", 0);
        });
        tally.for_program("namestorm", |tally| {
            tally.event("TCP connections", 3);
            tally.drop("bad checksum", 4);
            tally.drop("fragment", 5);
        });
        tally.drop("unknown VLAN", 6);
        let block = summary(Duration::ZERO, &port, &tally);
        let json = serde_json::to_value(&block).unwrap();
        assert_eq!(json["sandstorm"]["connections"], "1,000");
        assert_eq!(json["namestorm"]["TCP connections"], "3");
        let text = block.to_string();
        assert_eq!(
            text,
            "uptime:       0.0 s\n\
             received:     0 frames, 0 B\n\
             sent:         0 frames, 0 B\n\
             system calls: 0 to send, 0 to wait\n\
             sandstorm:    connections      1,000\n\
             namestorm:    TCP connections  3\n\
             dropped:      62 (namestorm: bad checksum 4, fragment 5; unknown VLAN 6, refused by the kernel 45, \
             TX ring full 2)\n"
        );
    }
}
