//! Running dig, and reading what it prints.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use super::expected::record;
use super::rig::Place;
use crate::shell::{self, Context as _, Result};

/// A reply as dig shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) rcode: String,
    /// Header flags, as in `qr aa`.
    pub(crate) flags: Vec<String>,
    /// The question, as `NAME CLASS TYPE`, case kept.
    pub(crate) question: String,
    /// The records of the three sections, without the class.
    pub(crate) answer: Vec<String>,
    pub(crate) authority: Vec<String>,
    pub(crate) additional: Vec<String>,
    /// The line that tells the EDNS version and size; empty without EDNS.
    pub(crate) edns: String,
    /// Bytes of the message.
    pub(crate) size: usize,
    /// Whether it came by TCP.
    pub(crate) tcp: bool,
}

impl Reply {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|set| set == flag)
    }
}

/// A dig that asks `address`; it asks again only where frames are lost.
fn dig(place: &Place, address: IpAddr) -> Command {
    let mut command = Command::new("dig");
    command.args([&format!("@{address}"), "-p", &place.port.to_string()]);
    command.args(if place.loss {
        ["+tries=6", "+timeout=1"]
    } else {
        ["+tries=1", "+timeout=3"]
    });
    command
}

/// Asks one thing; `question` holds name, type and further options.
pub(crate) fn ask(place: &Place, address: IpAddr, question: &str) -> Result<Vec<Reply>> {
    let mut command = dig(place, address);
    command.args(question.split_whitespace());
    shell::capture_text(&mut command).map(|text| parse(&text))
}

/// Asks every line of the file `questions` by one process.
pub(crate) fn ask_all(
    place: &Place,
    address: IpAddr,
    options: &[&str],
    questions: &Path,
) -> Result<Vec<Reply>> {
    let mut command = dig(place, address);
    command.args(options).arg("-f").arg(questions);
    // Its status is that of the last question alone: look at the replies.
    let output = shell::output(&mut command).context("asking all")?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(text: &str) -> Vec<Reply> {
    let mut replies: Vec<Reply> = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if line == ";; Got answer:" {
            replies.push(Reply::default());
            section = "";
            continue;
        }
        let Some(reply) = replies.last_mut() else {
            continue;
        };
        if let Some(rest) = line.strip_prefix(";; ->>HEADER<<- ") {
            word_after(rest, "status: ").clone_into(&mut reply.rcode);
        } else if let Some(rest) = line.strip_prefix(";; flags: ") {
            let flags = rest.split(';').next().unwrap_or_default();
            reply.flags = flags.split_whitespace().map(str::to_owned).collect();
        } else if let Some(rest) = line.strip_prefix(";; MSG SIZE  rcvd: ") {
            reply.size = rest.trim().parse().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix(";; SERVER: ") {
            reply.tcp = rest.ends_with("(TCP)");
        } else if let Some(rest) = line.strip_prefix("; EDNS: ") {
            rest.clone_into(&mut reply.edns);
        } else if let Some(rest) = line.strip_prefix(";; ") {
            section = rest.strip_suffix(" SECTION:").unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix(';') {
            if section == "QUESTION" {
                reply.question = record(rest);
            }
        } else if !line.is_empty() {
            let records = match section {
                "ANSWER" => &mut reply.answer,
                "AUTHORITY" => &mut reply.authority,
                "ADDITIONAL" => &mut reply.additional,
                _ => continue,
            };
            records.push(without_class(line));
        }
    }
    replies
}

fn word_after<'a>(text: &'a str, label: &str) -> &'a str {
    let after = text.split_once(label).map_or("", |(_, after)| after);
    after.split([',', ' ']).next().unwrap_or_default()
}

/// `OWNER TTL TYPE DATA` of a record line, which has the class in the third
/// place.
fn without_class(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let kept = words
        .iter()
        .enumerate()
        .filter(|&(i, _)| i != 2)
        .map(|(_, &word)| word);
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
; <<>> DiG 9.18 <<>> @10.0.0.2 wWw.storm.test A
;; global options: +cmd
;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 12345
;; flags: qr aa rd; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 2
;; WARNING: recursion requested but not available

;; OPT PSEUDOSECTION:
; EDNS: version: 0, flags:; udp: 1232
;; QUESTION SECTION:
;wWw.storm.test.\t\t\tIN\tA

;; ANSWER SECTION:
www.storm.test.\t\t300\tIN\tA\t192.0.2.80

;; ADDITIONAL SECTION:
ns1.storm.test.\t\t3600\tIN\tA\t192.0.2.53

;; Query time: 0 msec
;; SERVER: 10.0.0.2#53(10.0.0.2) (UDP)
;; WHEN: Sat Nov 21 09:00:00 UTC 2026
;; MSG SIZE  rcvd: 75

";

    #[test]
    fn what_dig_prints_is_read() {
        let expected = Reply {
            rcode: "NOERROR".into(),
            flags: ["qr", "aa", "rd"].map(str::to_owned).to_vec(),
            question: "wWw.storm.test. IN A".into(),
            answer: vec!["www.storm.test. 300 A 192.0.2.80".into()],
            authority: vec![],
            additional: vec!["ns1.storm.test. 3600 A 192.0.2.53".into()],
            edns: "version: 0, flags:; udp: 1232".into(),
            size: 75,
            tcp: false,
        };
        let twice = format!("{TEXT}{}", TEXT.replace("(UDP)", "(TCP)"));
        assert_eq!(
            parse(&twice),
            [
                expected.clone(),
                Reply {
                    tcp: true,
                    ..expected
                }
            ]
        );
    }
}
