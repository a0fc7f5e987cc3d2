//! What namestorm must answer, asked by dig and over sockets.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::Content;
use super::checks::Checks;
use super::dig::{Reply, ask, ask_all};
use super::expected::Entry;
use super::rig::Place;
use crate::shell::{Context as _, Failure, Result};

/// The largest answer that a server here sends by UDP, whatever the client
/// says it takes (the DNS flag day's size).
const UDP_MOST: usize = 1_232;

/// The name servers of the sample zones, which positive answers may name in
/// their authority section.
const NAME_SERVERS: [&str; 4] = [
    "storm.test. 3600 ns ns1.storm.test.",
    "storm.test. 3600 ns ns2.storm.test.",
    "2.0.192.in-addr.arpa. 86400 ns ns1.storm.test.",
    "2.0.192.in-addr.arpa. 86400 ns ns2.storm.test.",
];

/// One thing that is checked.
type Case<'a> = fn(&Client<'a>) -> Result<()>;

/// Everything that is checked of one server.
pub(crate) fn check(place: &Place, content: &Content, checks: &mut Checks) {
    let client = Client { place, content };
    let transports: [(&str, &[&str]); 3] = [
        ("UDP", &["+noedns", "+ignore"]),
        ("UDP with EDNS", &[]),
        ("TCP", &["+tcp"]),
    ];
    for address in place.addresses() {
        for (transport, options) in transports {
            client.table(address, transport, options, checks);
        }
    }
    let cases: &[(&str, Case<'_>)] = &[
        ("UDP answers keep to the client's size", Client::sizes),
        ("a truncated answer comes by TCP", Client::truncation),
        ("EDNS is answered with EDNS, and only then", Client::edns),
        ("an unknown EDNS version", Client::edns_version),
        ("ANY", Client::any),
        ("another class, another operation", Client::other_header),
        ("the question is echoed as it came", Client::case),
        (
            "several questions on one TCP connection",
            Client::tcp_pipelining,
        ),
        ("a TCP question in single bytes", Client::tcp_split),
        ("a compressed question name", Client::compressed_question),
        ("bytes that are no question", Client::garbage),
    ];
    for (name, case) in cases {
        checks.check(name, || case(&client));
    }
}

/// The table's questions, one a line, as dig takes them from a file.
pub(crate) fn questions(table: &[Entry]) -> String {
    let lines: Vec<String> = table
        .iter()
        .map(|entry| format!("{} {}\n", entry.name, entry.kind))
        .collect();
    lines.concat()
}

struct Client<'a> {
    place: &'a Place,
    content: &'a Content,
}

impl Client<'_> {
    /// Asks the whole table by one dig; one check each entry.
    fn table(&self, address: IpAddr, transport: &str, options: &[&str], checks: &mut Checks) {
        let replies = match ask_all(self.place, address, options, &self.content.questions) {
            Ok(replies) => replies,
            Err(failure) => return checks.fail("dig", &failure.to_string()),
        };
        // Where dig asked again by TCP, it shows the truncated reply first.
        let mut by_question: HashMap<&str, Vec<&Reply>> = HashMap::new();
        for reply in &replies {
            by_question.entry(&reply.question).or_default().push(reply);
        }
        for entry in &self.content.table {
            let name = format!(
                "{} {} over {transport} to {address}",
                entry.name, entry.kind
            );
            let question = format!("{} IN {}", entry.name, entry.kind);
            checks.check(&name, || {
                let replies = by_question.get(question.as_str());
                let reply = replies
                    .and_then(|replies| replies.last())
                    .ok_or_else(|| Failure::new("no answer"))?;
                if reply.has("tc") && options.contains(&"+ignore") {
                    return Ok(());
                }
                compare(entry, reply)
                    .map_err(|failure| Failure::new(format!("{failure}\n{reply:?}")))
            });
        }
    }

    fn ask(&self, question: &str) -> Result<Reply> {
        let replies = ask(self.place, self.place.v4, question)?;
        replies
            .into_iter()
            .last()
            .ok_or_else(|| Failure::new(format!("{question}: no answer")))
    }

    fn sizes(&self) -> Result<()> {
        let holds = |question: &str, most: usize, truncated: bool| {
            let reply = self.ask(question)?;
            if reply.size <= most && reply.has("tc") == truncated && !reply.tcp {
                return Ok(());
            }
            Err(Failure::new(format!(
                "{question}: {} bytes\n{reply:?}",
                reply.size
            )))
        };
        holds("big.storm.test TXT +noedns +ignore", 512, true)?;
        holds("big.storm.test TXT +bufsize=512 +ignore", 512, true)?;
        holds("big.storm.test TXT +bufsize=1232 +ignore", UDP_MOST, false)?;
        holds("huge.storm.test TXT +noedns +ignore", 512, true)?;
        holds("huge.storm.test TXT +bufsize=1232 +ignore", UDP_MOST, true)?;
        // Less than 512 counts as 512 (RFC 6891, section 6.2.3).
        holds("www.storm.test A +bufsize=100 +ignore", 512, false)
    }

    fn truncation(&self) -> Result<()> {
        for question in ["big.storm.test TXT +noedns", "huge.storm.test TXT"] {
            let reply = self.ask(question)?;
            let name = format!("{}.", question.split(' ').next().unwrap_or_default());
            let entry = self.content.table.iter().find(|entry| entry.name == name);
            let entry = entry.ok_or_else(|| Failure::new(format!("no {name} in the table")))?;
            if !reply.tcp {
                return Err(Failure::new(format!("{question} came by UDP:\n{reply:?}")));
            }
            compare(entry, &reply)?;
        }
        Ok(())
    }

    fn edns(&self) -> Result<()> {
        let with = self.ask("www.storm.test A +bufsize=1400 +nocookie")?;
        let without = self.ask("www.storm.test A +noedns")?;
        if !with.edns.starts_with("version: 0") || !without.edns.is_empty() {
            return Err(Failure::new(format!("{with:?}\n{without:?}")));
        }
        Ok(())
    }

    /// RFC 6891, section 6.1.3.
    fn edns_version(&self) -> Result<()> {
        let reply = self.ask("www.storm.test A +edns=1 +noednsnegotiation")?;
        if reply.rcode == "BADVERS" && reply.edns.starts_with("version: 0") {
            return Ok(());
        }
        Err(Failure::new(format!("{reply:?}")))
    }

    /// RFC 8482: all records of the name, some of them, or one HINFO.
    fn any(&self) -> Result<()> {
        for (question, name) in [
            ("www.storm.test. ANY +noedns +notcp", "www.storm.test."),
            ("x.wild.storm.test. ANY +notcp", "x.wild.storm.test."),
        ] {
            let reply = self.ask(question)?;
            let owned = |record: &String| record.starts_with(name);
            if reply.rcode != "NOERROR"
                || reply.answer.is_empty()
                || !reply.answer.iter().all(owned)
            {
                return Err(Failure::new(format!("{question}:\n{reply:?}")));
            }
        }
        let missing = self.ask("nowhere.storm.test. ANY +notcp")?;
        if missing.rcode == "NXDOMAIN" {
            Ok(())
        } else {
            Err(Failure::new(format!("{missing:?}")))
        }
    }

    fn other_header(&self) -> Result<()> {
        let class = self.ask("-c CH version.bind TXT")?;
        let operation = self.ask("+opcode=STATUS www.storm.test A")?;
        if class.rcode == "REFUSED" && operation.rcode == "NOTIMP" {
            return Ok(());
        }
        Err(Failure::new(format!("{class:?}\n{operation:?}")))
    }

    fn case(&self) -> Result<()> {
        for name in [
            "wWw.StOrM.TeSt.",
            "CHAIN.storm.TEST.",
            "NoWhere.storm.test.",
            "X.wIlD.storm.test.",
        ] {
            let reply = self.ask(&format!("{name} A"))?;
            if reply.question != format!("{name} IN A") {
                return Err(Failure::new(format!(
                    "{name} came back as {}",
                    reply.question
                )));
            }
        }
        Ok(())
    }

    fn socket(&self) -> SocketAddr {
        self.place.socket(self.place.v4)
    }

    fn tcp(&self) -> Result<TcpStream> {
        connect(self.socket())
    }

    fn tcp_pipelining(&self) -> Result<()> {
        let mut stream = self.tcp()?;
        let ids: Vec<u16> = (1..=100).collect();
        let questions: Vec<u8> = ids.iter().flat_map(|&id| framed(&question(id))).collect();
        stream.write_all(&questions).context("sending")?;
        let mut answered = BTreeSet::new();
        for _ in &ids {
            answered.insert(id_of(&receive_framed(&mut stream)?)?);
        }
        if answered.into_iter().eq(ids) {
            return Ok(());
        }
        Err(Failure::new("not every question was answered"))
    }

    fn tcp_split(&self) -> Result<()> {
        let mut stream = self.tcp()?;
        for byte in framed(&question(7)) {
            stream.write_all(&[byte]).context("sending")?;
            std::thread::sleep(Duration::from_millis(1));
        }
        expect_address(7, &receive_framed(&mut stream)?)
    }

    /// Sends a datagram until something comes back, a few times.
    fn exchange(&self, datagram: &[u8]) -> Result<Vec<u8>> {
        let any = if self.socket().is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = UdpSocket::bind(any).context("binding")?;
        socket.connect(self.socket()).context("connecting")?;
        socket
            .set_read_timeout(Some(Duration::from_secs(1)))
            .context("setting a time limit")?;
        let mut reply = [0; 4_096];
        for _ in 0..if self.place.loss { 8 } else { 1 } {
            socket.send(datagram).context("sending")?;
            if let Ok(length) = socket.recv(&mut reply) {
                return Ok(reply[..length].to_vec());
            }
        }
        Err(Failure::new("no answer"))
    }

    /// A name that ends in a pointer is legal in a question as anywhere
    /// (RFC 1035, section 4.1.4), if it points backwards; in the first name
    /// of a message it can only point into the header, and this one points
    /// at zero bytes there.
    fn compressed_question(&self) -> Result<()> {
        let mut message = question(9);
        // www.storm.test., with its closing zero replaced by a pointer to
        // offset 6, the high byte of ANCOUNT, which is zero.
        let end = HEADER + NAME.len() - 1;
        message.splice(end..=end, [0xc0, 6]);
        let reply = self.exchange(&message)?;
        // The name was followed, or the question refused as malformed.
        match (id_of(&reply).map(|_| rcode_of(&reply)), reply.get(7)) {
            (Ok(0), Some(1..)) | (Ok(1), _) => Ok(()),
            _ => Err(Failure::new(format!("{reply:?}"))),
        }
    }

    fn garbage(&self) -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0").context("binding")?;
        socket.connect(self.socket()).context("connecting")?;
        let whole = question(3);
        for end in 0..whole.len() {
            socket.send(&whole[..end]).context("sending")?;
        }
        let mut answer_bit = whole.clone();
        answer_bit[2] |= 0x80;
        let mut two_questions = whole.clone();
        two_questions[5] = 2;
        let mut pointer_loop = whole;
        pointer_loop[HEADER] = 0xc0;
        pointer_loop[HEADER + 1] = HEADER as u8;
        for datagram in [&answer_bit, &two_questions, &pointer_loop] {
            socket.send(datagram).context("sending")?;
        }
        // What it said to these does not matter; that it goes on does.
        expect_address(4, &self.exchange(&question(4))?)
    }
}

/// Bytes of a DNS message's header.
const HEADER: usize = 12;

/// `www.storm.test.` in wire format.
const NAME: &[u8] = b"\x03www\x05storm\x04test\x00";

/// A question for the address of `www.storm.test`.
pub(super) fn question(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(NAME);
    message.extend([0, 1, 0, 1]);
    message
}

/// A message with its length in front, as TCP wants it.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend(message);
    bytes
}

/// Connects to a server of DNS.
pub(super) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let patience = super::http::PATIENCE;
    let stream = TcpStream::connect_timeout(&to, patience).context("connecting")?;
    stream
        .set_read_timeout(Some(patience))
        .context("setting a time limit")?;
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    Ok(stream)
}

/// Asks [`question`] over a connection, and expects its answer.
pub(super) fn ask_over(stream: &mut TcpStream, id: u16) -> Result<()> {
    let asked = stream.write_all(&framed(&question(id)));
    asked.context("sending a question")?;
    expect_address(id, &receive_framed(stream)?)
}

fn receive_framed(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 2];
    stream
        .read_exact(&mut length)
        .context("receiving a length")?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream
        .read_exact(&mut message)
        .context("receiving an answer")?;
    Ok(message)
}

fn id_of(message: &[u8]) -> Result<u16> {
    match message {
        [high, low, ..] if message.len() >= HEADER => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(Failure::new(format!(
            "too short for an answer: {message:?}"
        ))),
    }
}

/// The RCODE of a message that has a header.
fn rcode_of(message: &[u8]) -> u8 {
    message[3] % 16
}

/// Checks that a message answers [`question`].
fn expect_address(id: u16, message: &[u8]) -> Result<()> {
    const ADDRESS: [u8; 4] = [192, 0, 2, 80];
    let found = message.windows(ADDRESS.len()).any(|four| four == ADDRESS);
    if id_of(message)? == id && message[2] & 0x80 != 0 && rcode_of(message) == 0 && found {
        return Ok(());
    }
    Err(Failure::new(format!(
        "not the answer to question {id}: {message:?}"
    )))
}

fn compare(entry: &Entry, reply: &Reply) -> Result<()> {
    let wrong = |what: &str| Err(Failure::new(format!("{what}, expected\n{entry:?}")));
    if reply.rcode != entry.rcode {
        return wrong(&format!("status {}", reply.rcode));
    }
    if reply.has("aa") != entry.authoritative || reply.has("tc") || reply.has("ra") {
        return wrong(&format!("flags {:?}", reply.flags));
    }
    if set(&reply.answer) != set(&entry.answer) || reply.answer.len() != entry.answer.len() {
        return wrong("another answer section");
    }
    let authority_right = if entry.authority.is_empty() {
        set(&reply.authority)
            .iter()
            .all(|record| NAME_SERVERS.contains(&record.as_str()))
    } else {
        set(&reply.authority) == set(&entry.authority)
    };
    if !authority_right {
        return wrong("another authority section");
    }
    if !set(&reply.additional).is_superset(&set(&entry.additional)) {
        return wrong("too little in the additional section");
    }
    Ok(())
}

/// Records as a set. Names compare without case: a server may give them as
/// they stand in the zone, or point into the question.
fn set(records: &[String]) -> BTreeSet<String> {
    records.iter().map(|record| without_case(record)).collect()
}

fn without_case(record: &str) -> String {
    const DATA_IS_NAMES: [&str; 6] = ["NS", "CNAME", "SOA", "PTR", "MX", "SRV"];
    match record.splitn(4, ' ').collect::<Vec<_>>()[..] {
        [owner, ttl, kind, data] if !DATA_IS_NAMES.contains(&kind) => {
            format!("{} {ttl} {kind} {data}", owner.to_lowercase())
        }
        _ => record.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_compare_without_case() {
        assert_eq!(
            without_case("A.test. 60 NS NS.Test."),
            "a.test. 60 ns ns.test."
        );
        assert_eq!(
            without_case("A.test. 60 TXT \"Text\""),
            "a.test. 60 TXT \"Text\""
        );
    }
}
