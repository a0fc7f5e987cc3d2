//! Checks Namestorm with dig, and with clients of our own on kernel sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use super::Env;
use super::checks::{Checks, row};
use super::http;
use super::rig::Place;
use crate::shell;
use anyhow::{Context as _, Result, bail, ensure};

/// NS records of the sample zones. Positive answers may have them in the authority section.
const NAME_SERVERS: [&str; 4] = [
    "storm.test. 3600 ns ns1.storm.test.",
    "storm.test. 3600 ns ns2.storm.test.",
    "2.0.192.in-addr.arpa. 86400 ns ns1.storm.test.",
    "2.0.192.in-addr.arpa. 86400 ns ns2.storm.test.",
];
/// Transports over which all questions in the file `storm.test.expected` are asked. Columns: the
/// transport, and its options for dig.
const TRANSPORTS: [(&str, &str); 3] = [
    ("UDP", "+noedns +ignore"),
    ("UDP with EDNS", "+edns"),
    ("TCP", "+tcp"),
];
/// Questions over UDP, the maximum size of the answer in bytes, and whether the answer is
/// truncated.
const SIZES: [(&str, usize, bool); 6] = [
    ("big.storm.test TXT +noedns +ignore", 512, true),
    ("big.storm.test TXT +bufsize=512 +ignore", 512, true),
    // 1,232 bytes is also the server's own limit (DNS flag day 2020).
    ("big.storm.test TXT +bufsize=1232 +ignore", 1_232, false),
    ("huge.storm.test TXT +noedns +ignore", 512, true),
    ("huge.storm.test TXT +bufsize=1232 +ignore", 1_232, true),
    // A client's size of less than 512 bytes counts as 512 (RFC 6891, section 6.2.3).
    ("www.storm.test A +bufsize=100 +ignore", 512, false),
];
/// Columns: the check, the question, and text that dig must print. A leading `!` means that dig
/// must not print the text. An unknown EDNS version must be answered with BADVERS (RFC 6891,
/// section 6.1.3).
const REPLIES: &str = "\
    EDNS is answered with EDNS | www.storm.test A +bufsize=1400 +nocookie | EDNS: version: 0
    no EDNS is answered without | www.storm.test A +noedns | !EDNS:
    an unknown EDNS version has its RCODE | www.storm.test A +edns=1 +noednsnegotiation | status: BADVERS
    an unknown EDNS version is answered by ours | www.storm.test A +edns=1 +noednsnegotiation | EDNS: version: 0
    another class | -c CH version.bind TXT | status: REFUSED
    another operation | +opcode=STATUS www.storm.test A | status: NOTIMP
    the question is echoed as it came | wWw.StOrM.TeSt. A | ;wWw.StOrM.TeSt.
    the question is echoed as it came | CHAIN.storm.TEST. A | ;CHAIN.storm.TEST.
    the question is echoed as it came | NoWhere.storm.test. A | ;NoWhere.storm.test.
    the question is echoed as it came | X.wIlD.storm.test. A | ;X.wIlD.storm.test.";

/// Index of the type among the words of a record.
pub(super) const TYPE: usize = 2;

/// A reply that dig printed, or a correct reply from the file `storm.test.expected`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The question, as `NAME IN TYPE`.
    pub(crate) question: String,
    pub(super) rcode: String,
    /// Header flags as dig prints them, such as `qr aa`.
    pub(super) flags: String,
    /// Records of the answer, authority and additional sections. They lack the class, and single
    /// spaces separate their fields.
    pub(super) sections: [Vec<String>; 3],
    /// What dig printed for this reply after `;; Got answer:`; empty in an expected reply.
    pub(super) text: String,
}

/// Parses the correct replies in `text`, the contents of `storm.test.expected`. The comment at the
/// top of that file describes the format.
pub(crate) fn expected(text: &str) -> Result<Vec<Message>> {
    let mut entries: Vec<Message> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (sign, rest) = line.split_at(line.len().min(1));
        if let ("?", Some((name, kind))) = (sign, rest.trim().split_once(' ')) {
            let question = format!("{name} IN {kind}");
            entries.push(Message {
                question,
                ..Message::default()
            });
        } else if !["", "#"].contains(&sign) {
            let entry = entries
                .last_mut()
                .with_context(|| format!("before a question: {line}"))?;
            match (
                sign,
                rest.trim().split_once(' ').unwrap_or((rest.trim(), "")),
            ) {
                ("=", (rcode, flags)) => {
                    (entry.rcode, entry.flags) = (rcode.to_owned(), flags.to_owned());
                }
                ("!", _) => entry.sections[1].push(words(rest)),
                ("+", _) => entry.sections[2].push(words(rest)),
                _ => entry.sections[0].push(words(line)),
            }
        }
    }
    Ok(entries)
}

/// Collapses whitespace to single spaces.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits dig's output into replies.
pub(super) fn replies(text: &str) -> Vec<Message> {
    let texts = text.split(";; Got answer:").skip(1);
    texts.map(reply).collect()
}

fn reply(text: &str) -> Message {
    let between = |from: &str, to: &str| {
        let rest = text
            .split_once(from)
            .and_then(|(_, rest)| rest.split(to).next());
        rest.unwrap_or_default()
    };
    let section = |name: &str| {
        let lines = between(&format!("\n;; {name} SECTION:\n"), "\n\n").lines();
        lines
            .map(|line| words(line).replacen(" IN ", " ", 1))
            .collect()
    };
    Message {
        question: words(between("\n;; QUESTION SECTION:\n;", "\n")),
        rcode: between(" status: ", ",").to_owned(),
        flags: between("\n;; flags: ", ";").to_owned(),
        sections: ["ANSWER", "AUTHORITY", "ADDITIONAL"].map(section),
        text: text.to_owned(),
    }
}

impl Message {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|set| set == flag)
    }

    /// Returns true if a section has a record of this type.
    pub(super) fn has_type(&self, section: usize, rtype: &str) -> bool {
        let mut records = self.sections[section].iter();
        records.any(|record| record.split(' ').nth(TYPE) == Some(rtype))
    }

    /// Returns dig's line about the OPT record. It is empty if there is none.
    pub(super) fn edns(&self) -> &str {
        let mut lines = self.text.lines();
        lines
            .find(|line| line.starts_with("; EDNS:"))
            .unwrap_or_default()
    }

    /// Returns the length of the reply, in bytes.
    pub(super) fn len(&self) -> Option<usize> {
        let (_, rest) = self.text.split_once(";; MSG SIZE  rcvd: ")?;
        rest.lines().next()?.trim().parse().ok()
    }

    pub(super) fn came_by_tcp(&self) -> bool {
        self.text.contains("(TCP)")
    }

    /// Returns an error unless `reply` is a correct answer to this entry's question.
    fn expect(&self, reply: &Self) -> Result<()> {
        let [answer, authority, additional] = reply.sections.each_ref().map(|records| set(records));
        let right = self.sections.each_ref().map(|records| set(records));
        let same_count = reply.sections[0].len() == self.sections[0].len();
        let is_right = reply.rcode == self.rcode
            && reply.has("aa") == self.has("aa")
            && !(reply.has("tc") || reply.has("ra"))
            && (answer == right[0] && same_count)
            && if right[1].is_empty() {
                authority
                    .iter()
                    .all(|record| NAME_SERVERS.contains(&record.as_str()))
            } else {
                authority == right[1]
            }
            && additional.is_superset(&right[2]);
        ensure!(is_right, "expected\n{self:#?}\ngot\n{reply:#?}");
        Ok(())
    }
}

/// Returns records as a set, with names in lower case. The case of names does not matter, because a
/// server may take a name from the zone or let it point to the question.
pub(super) fn set(records: &[String]) -> BTreeSet<String> {
    const DATA_IS_NAMES: [&str; 6] = ["NS", "CNAME", "SOA", "PTR", "MX", "SRV"];
    let lower = |record: &String| match record.splitn(4, ' ').collect::<Vec<_>>()[..] {
        [owner, ttl, kind, data] if !DATA_IS_NAMES.contains(&kind) => {
            format!("{} {ttl} {kind} {data}", owner.to_lowercase())
        }
        _ => record.to_lowercase(),
    };
    records.iter().map(lower).collect()
}

/// Runs dig. `question` has a name, a type and options. dig retransmits only on lossy paths.
fn dig(place: &Place, address: IpAddr, question: &str) -> Result<Vec<Message>> {
    let patience = if place.loss {
        "+tries=6 +timeout=1"
    } else {
        "+tries=1 +timeout=3"
    };
    let line = format!("@{address} -p {} {patience} {question}", place.port);
    // The exit status is ignored, because with `-f` it is that of the last question only.
    let output = shell::output(Command::new("dig").args(line.split(' ')))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let replies = replies(&text);
    ensure!(!replies.is_empty(), "{question}: no answer:\n{text}");
    Ok(replies)
}

/// A check of one behaviour, as a method of [`Client`].
type Case = fn(&Client) -> Result<()>;

const CASES: [(&str, Case); 7] = [
    ("UDP answers keep to the client's size", Client::sizes),
    ("a truncated answer comes by TCP", Client::truncation),
    ("ANY", Client::any),
    (
        "several questions on one TCP connection",
        Client::tcp_pipelining,
    ),
    ("a TCP question in single bytes", Client::tcp_split),
    ("a compressed question name", Client::compressed_question),
    ("bytes that are no question", Client::garbage),
];

/// Runs all checks against the server at `place`.
pub(crate) fn check(place: &Place, env: &Env, checks: &mut Checks) {
    let (place, env) = (*place, env.clone());
    let client = Client { place, env };
    for address in place.addresses() {
        for (transport, options) in TRANSPORTS {
            client.table(address, transport, options, checks);
        }
    }
    for line in REPLIES.lines() {
        let [name, question, expected] = row(line);
        checks.check(format_args!("{name}: {question}"), || {
            let text = client.ask(question)?.text;
            let right = match expected.strip_prefix('!') {
                Some(wrong) => !text.contains(wrong),
                None => text.contains(expected),
            };
            ensure!(right, "{expected:?} is expected:\n{text}");
            Ok(())
        });
    }
    for (name, case) in CASES {
        checks.check(name, || case(&client));
    }
}

struct Client {
    place: Place,
    env: Env,
}

impl Client {
    /// Asks all questions of `storm.test.expected` with one run of dig, and checks each reply.
    fn table(&self, address: IpAddr, transport: &str, options: &str, checks: &mut Checks) {
        let line = format!("{options} -f {}", self.env.questions.display());
        let replies = match dig(&self.place, address, &line) {
            Ok(replies) => replies,
            Err(failure) => return checks.fail("dig", &format!("{failure:#}")),
        };
        // If dig retries over TCP, it prints the truncated reply first. The map then keeps the last
        // reply.
        let by_question = replies.iter().map(|reply| (&reply.question, reply));
        let by_question: BTreeMap<_, _> = by_question.collect();
        for entry in &self.env.table {
            let question = entry.question.replace(" IN ", " ");
            checks.check(
                format_args!("{question} over {transport} to {address}"),
                || {
                    let reply = by_question.get(&entry.question).context("no answer")?;
                    if reply.has("tc") && options.contains("+ignore") {
                        return Ok(());
                    }
                    entry.expect(reply)
                },
            );
        }
    }

    fn ask(&self, question: &str) -> Result<Message> {
        let mut replies = dig(&self.place, self.place.v4, question)?;
        replies.pop().context("no answer")
    }

    fn sizes(&self) -> Result<()> {
        for (question, max_size, is_truncated) in SIZES {
            let reply = self.ask(question)?;
            let size = reply.len();
            let fits = size.is_some_and(|size| size <= max_size);
            let right = fits && reply.has("tc") == is_truncated && !reply.came_by_tcp();
            ensure!(right, "{question}: {size:?} bytes\n{}", reply.text);
        }
        Ok(())
    }

    fn truncation(&self) -> Result<()> {
        for (name, options) in [("big.storm.test.", "+noedns"), ("huge.storm.test.", "")] {
            let reply = self.ask(format!("{name} TXT {options}").trim())?;
            ensure!(reply.came_by_tcp(), "it came by UDP:\n{}", reply.text);
            let question = format!("{name} IN TXT");
            let mut table = self.env.table.iter();
            let entry = table.find(|entry| entry.question == question);
            entry
                .with_context(|| format!("no {question} in the table"))?
                .expect(&reply)?;
        }
        Ok(())
    }

    /// An ANY response has all records of the name, some of them, or one HINFO (RFC 8482).
    fn any(&self) -> Result<()> {
        for (name, options) in [("www.storm.test.", " +noedns"), ("x.wild.storm.test.", "")] {
            let reply = self.ask(&format!("{name} ANY +notcp{options}"))?;
            let records = &reply.sections[0];
            let is_owned = records.iter().all(|record| record.starts_with(name));
            let right = reply.rcode == "NOERROR" && !records.is_empty() && is_owned;
            ensure!(right, "{name}:\n{}", reply.text);
        }
        let missing = self.ask("nowhere.storm.test. ANY +notcp")?;
        ensure!(missing.rcode == "NXDOMAIN", "{}", missing.text);
        Ok(())
    }

    fn socket(&self) -> SocketAddr {
        self.place.socket(self.place.v4)
    }

    fn tcp_pipelining(&self) -> Result<()> {
        let mut stream = http::connect(self.socket())?;
        let ids = 1..=100;
        let questions: Vec<u8> = ids.clone().flat_map(|id| framed(&question(id))).collect();
        stream.write_all(&questions).context("sending")?;
        let mut answered = BTreeSet::new();
        for _ in ids.clone() {
            answered.insert(id_of(&receive_framed(&mut stream)?)?);
        }
        ensure!(
            answered.into_iter().eq(ids),
            "not every question was answered"
        );
        Ok(())
    }

    fn tcp_split(&self) -> Result<()> {
        let mut stream = http::connect(self.socket())?;
        for byte in framed(&question(7)) {
            stream.write_all(&[byte]).context("sending")?;
            std::thread::sleep(Duration::from_millis(1));
        }
        expect_address(7, &receive_framed(&mut stream)?)
    }

    /// A question name may end in a pointer that points backwards (RFC 1035, section 4.1.4). In a
    /// message's first name, such a pointer can only point into the header. Here it points to a
    /// zero byte of the header.
    fn compressed_question(&self) -> Result<()> {
        let mut message = question(9);
        // The question is for www.storm.test. A pointer to offset 6 replaces the root label. At
        // that offset is the high byte of ANCOUNT, which is zero.
        let end = HEADER + NAME.len() - 1;
        message.splice(end..=end, [0xc0, 6]);
        let reply = exchange(self.socket(), self.place.loss, &message)?;
        let answers = reply.get(7).copied();
        // The server may resolve the name, or report a malformed question with RCODE 1 (FORMERR).
        let is_right =
            id_of(&reply)? == 9 && matches!((rcode_of(&reply), answers), (0, Some(1..)) | (1, _));
        ensure!(is_right, "{reply:?}");
        Ok(())
    }

    fn garbage(&self) -> Result<()> {
        let socket = udp(self.socket())?;
        let valid = question(3);
        let changed = |at: usize, bytes: &[u8]| {
            let mut message = valid.clone();
            message[at..at + bytes.len()].copy_from_slice(bytes);
            message
        };
        let (is_answer, two_questions) = (changed(2, &[0x80]), changed(5, &[2]));
        let pointer_loop = changed(HEADER, &[0xc0, HEADER as u8]);
        let parts = (0..valid.len()).map(|end| &valid[..end]);
        for datagram in parts.chain([&is_answer[..], &two_questions, &pointer_loop]) {
            socket.send(datagram).context("sending")?;
        }
        // Any reply to these datagrams is acceptable, but the server must keep answering.
        expect_address(4, &exchange(self.socket(), self.place.loss, &question(4))?)
    }
}

/// Makes a socket connected to `to`, with a receive timeout of one second.
pub(super) fn udp(to: SocketAddr) -> Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).context("binding")?;
    socket.connect(to).context("connecting")?;
    let set = socket.set_read_timeout(Some(Duration::from_secs(1)));
    set.context("setting a time limit").map(|()| socket)
}

/// Sends a datagram and waits for the reply. Repeats the datagram only on lossy paths.
fn exchange(to: SocketAddr, loss: bool, datagram: &[u8]) -> Result<Vec<u8>> {
    let socket = udp(to)?;
    let mut reply = [0; 4_096];
    for _ in 0..if loss { 8 } else { 1 } {
        socket.send(datagram).context("sending")?;
        if let Ok(length) = socket.recv(&mut reply) {
            return Ok(reply[..length].to_vec());
        }
    }
    bail!("no answer")
}

/// Length of a DNS message's header, in bytes.
const HEADER: usize = 12;

/// `www.storm.test.` in wire format.
const NAME: &[u8] = b"\x03www\x05storm\x04test\x00";

/// Returns a query for the IPv4 address of `www.storm.test`.
pub(super) fn question(id: u16) -> Vec<u8> {
    let header = [[0, 0], [0, 1], [0, 0], [0, 0], [0, 0]].concat();
    [&id.to_be_bytes(), &header[..], NAME, &[0, 1, 0, 1]].concat()
}

/// Prefixes a message with its length, for TCP.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// Sends [`question`] over a TCP connection and checks the answer.
pub(super) fn ask_over(stream: &mut TcpStream, id: u16) -> Result<()> {
    let result = stream.write_all(&framed(&question(id)));
    result.context("sending a question")?;
    expect_address(id, &receive_framed(stream)?)
}

fn receive_framed(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 2];
    let read = stream.read_exact(&mut length);
    read.context("receiving a length")?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    let read = stream.read_exact(&mut message);
    read.context("receiving an answer").map(|()| message)
}

/// Returns the message's id. Fails if the message is shorter than a header.
fn id_of(message: &[u8]) -> Result<u16> {
    ensure!(message.len() >= HEADER, "too short: {message:?}");
    Ok(u16::from_be_bytes([message[0], message[1]]))
}

/// Returns the RCODE of a message that has a header.
fn rcode_of(message: &[u8]) -> u8 {
    message[3] % 16
}

/// Returns an error unless `message` is the correct answer to [`question`].
pub(super) fn expect_address(id: u16, message: &[u8]) -> Result<()> {
    let found = message.windows(4).any(|four| four == [192, 0, 2, 80]);
    let is_right = id_of(message)? == id && message[2] & 0x80 != 0 && rcode_of(message) == 0;
    ensure!(
        is_right && found,
        "not the answer to question {id}: {message:?}"
    );
    Ok(())
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
    fn the_output_of_dig_and_the_table_parse_to_the_same_reply() {
        let replies = replies(&TEXT.repeat(2));
        let table = "# a table\n\n? wWw.storm.test. A\n= NOERROR qr aa rd\n\
                     \x20 www.storm.test. 300  A 192.0.2.80\n+ ns1.storm.test. 3600 A 192.0.2.53\n";
        let expected = expected(table).unwrap();
        assert_eq!(replies.len(), 2);
        for reply in replies {
            assert!(!reply.came_by_tcp() && reply.text.contains("; EDNS: version: 0"));
            let text = String::new();
            assert_eq!(Message { text, ..reply }, expected[0]);
        }
        assert!(super::expected("= NOERROR\n").is_err());
    }

    #[test]
    fn a_wrong_reply_is_found() {
        let right = reply(TEXT);
        let entry = Message {
            flags: "aa".into(),
            ..right.clone()
        };
        entry.expect(&right).unwrap();
        for (from, to) in [
            ("NOERROR", "NXDOMAIN"),
            (" aa ", " "),
            (" rd;", " tc;"),
            (" rd;", " ra;"),
            ("192.0.2.80", "192.0.2.81"),
            (
                "192.0.2.80",
                "192.0.2.80\nwww.storm.test. 300 IN A 192.0.2.80",
            ),
            ("ADDITIONAL SECTION", "AUTHORITY SECTION"),
            ("192.0.2.53", "192.0.2.54"),
        ] {
            assert!(
                entry.expect(&reply(&TEXT.replace(from, to))).is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn only_names_are_compared_without_regard_to_case() {
        let lower = |record: &str| set(&[record.to_owned()]).pop_first().unwrap();
        assert_eq!(lower("A.test. 60 NS NS.Test."), "a.test. 60 ns ns.test.");
        assert_eq!(lower("A.test. 60 TXT \"Text\""), "a.test. 60 TXT \"Text\"");
    }

    /// The file `storm.test.expected` asks for every name and type of the sample zones. The zones
    /// have one record per line, so this test needs no zone parser.
    #[test]
    fn the_table_asks_for_every_record_of_the_zones() {
        let zones = shell::repository().join("xtask/sample/zones");
        let read = |name: &str| shell::read(&zones.join(name)).unwrap();
        let table = expected(&read("storm.test.expected")).unwrap();
        let lower = |question: &str| question.to_lowercase();
        let questions: BTreeSet<_> = table.iter().map(|entry| lower(&entry.question)).collect();
        let mut records = 0;
        for origin in ["storm.test.", "2.0.192.in-addr.arpa."] {
            let zone = read(&format!("{origin}zone"));
            let lines = zone.lines().filter(|line| !line.starts_with([';', '$']));
            for line in lines.filter(|line| !line.is_empty()) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let class = words.iter().position(|word| *word == "IN").unwrap();
                let name = format!("{}.{origin}", words[0]).replace("@.", "");
                let question = lower(&format!("{name} IN {}", words[class + 1]));
                assert!(questions.contains(&question), "{question} is not asked for");
                records += 1;
            }
        }
        assert_eq!(
            records, 73,
            "the zones have changed: look at the table as well"
        );
    }
}
