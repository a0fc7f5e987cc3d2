//! The query log: a line for each query, or for one of N. Also messages of dnstap for them.
//!
//! A worker copies the start of the reply, which has the question, into a record. The thread that
//! writes the log formats it.

mod dnstap;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use control::units::number;
use control::{
    CLIENT_LEN, FrameDestination, LogDestination, LogName, OptionError, RecordLog, RecordSender,
    StartError, client_from_bytes, client_to_bytes, config,
};
use nmio::Instant;

use self::dnstap::Tap;
use crate::edns::EXTENDED_RCODE_AT;
use crate::name::{self, Shown};
use crate::rtype;

/// Length of a record without the start of the reply, in bytes.
const ENTRY_LEN: usize = 4 + CLIENT_LEN;
/// Length of a DNS header, in bytes.
const HEADER_LEN: usize = 12;

/// The options of the query log, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logs")]
pub struct QueryLogArgs {
    /// Write a line for each DNS query that gets a reply to a FILE, or to `stdout`, `syslog` or
    /// `journald`. SIGUSR1 opens the file again. If lines cannot be written as fast as queries
    /// arrive, some are dropped and counted.
    #[arg(
        id = "query_log",
        long = "query-log",
        value_name = "FILE|stdout|syslog|journald"
    )]
    to: Option<LogDestination>,

    /// Form of the lines of the query log.
    #[arg(
        id = "query_log_format",
        long = "query-log-format",
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    format: QueryFormat,

    /// Send each DNS query and its reply as dnstap (`AUTH_QUERY` and `AUTH_RESPONSE`), to the socket
    /// of a collector or to a FILE. If messages cannot be written as fast as queries arrive, some are
    /// dropped and counted.
    #[arg(long, value_name = "unix:PATH|FILE")]
    dnstap: Option<FrameDestination>,

    /// Log only one of N queries of each worker and transport. This also holds for dnstap.
    #[arg(id = "query_log_sample", long = "query-log-sample", value_name = "N", default_value_t = 1,
          value_parser = number::<u32>(1..=u32::MAX))]
    sample: u32,
}

/// What the log is called.
const NAME: LogName = LogName {
    shown: "query log",
    option: "query_log",
};

/// The form of the lines.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QueryFormat {
    /// Time, client, transport, name, type, response code and size of the reply, with spaces between
    /// them.
    #[default]
    Text,
    /// An object of JSON.
    Json,
}

impl QueryLogArgs {
    /// Checks the options, and that the logs can be opened, without making their files. `program` is the
    /// name that the system's log shows. Returns all errors, each a message for the operator.
    pub fn check(&self, program: &str) -> Vec<StartError> {
        let options = self.check_options().map(Into::into);
        let lines = self.to.as_ref();
        let lines = lines.and_then(|to| RecordLog::check(NAME, program, to).err());
        let tap = self.dnstap.as_ref();
        let tap = tap.and_then(|to| RecordLog::check_frames(dnstap::NAME, to).err());
        let logs = lines.into_iter().chain(tap).map(Into::into);
        options.chain(logs).collect()
    }

    /// Returns an error for each option that is without effect.
    fn check_options(&self) -> impl Iterator<Item = OptionError> {
        // An option with a wrong value is given, too.
        let has_lines = self.to.is_some() || config::is_wrong(0, "query_log");
        let has_tap = self.dnstap.is_some() || config::is_wrong(0, "dnstap");
        let samples = self.sample > 1 && !has_lines && !has_tap;
        let formats = self.format == QueryFormat::Json && !has_lines;
        let sample = samples.then_some(("--query-log-sample", "--query-log or --dnstap"));
        let format = formats.then_some(("--query-log-format", "--query-log"));
        let wrong = sample.into_iter().chain(format);
        wrong.map(|(option, of)| {
            let error = format!("{option} has no effect without {of}; give both, or neither");
            OptionError::new(error)
        })
    }
}

/// The open logs of queries. At least one of the two is open.
#[derive(Debug)]
pub(crate) struct QueryLog {
    lines: Option<RecordLog>,
    dnstap: Option<RecordLog>,
    sample: u32,
}

impl QueryLog {
    /// Opens the logs that the options name. `program` and `version` are those of the server.
    ///
    /// # Errors
    /// If a log cannot be opened, or if there are options of a log without the log. The error names
    /// it.
    pub(crate) fn open(
        args: &QueryLogArgs,
        program: &str,
        version: &str,
    ) -> Result<Option<Self>, StartError> {
        if let Some(error) = args.check_options().next() {
            return Err(error.into());
        }
        let form = args.format;
        let format = move |record: &[u8], line: &mut Vec<u8>| {
            write(form, SystemTime::now(), record, line);
        };
        let lines = args.to.as_ref();
        let lines = lines.map(|to| RecordLog::open(NAME, program, to, format));
        let identity = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        let version = format!("{program} {version}");
        let dnstap = args.dnstap.as_ref();
        let dnstap = dnstap.map(|to| dnstap::open(to, identity(), version));
        let this = Self {
            lines: lines.transpose()?,
            dnstap: dnstap.transpose()?,
            sample: args.sample.max(1),
        };
        Ok((this.lines.is_some() || this.dnstap.is_some()).then_some(this))
    }

    /// Returns the logs of records.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &RecordLog> {
        self.lines.iter().chain(&self.dnstap)
    }

    /// Opens the end of one worker and transport.
    pub(crate) fn sender(&self, is_tcp: bool) -> QueryLogger {
        let lines = self.lines.as_ref().map(|log| LineLogger {
            sender: log.sender(),
            is_tcp,
        });
        let tap = self.dnstap.as_ref();
        QueryLogger {
            lines,
            tap: tap.map(|log| Tap::new(log.sender(), is_tcp)),
            sample: self.sample,
            until_next: 1,
            is_sampled: false,
        }
    }
}

/// The end of the logs that belongs to one worker and transport.
#[derive(Debug)]
pub(crate) struct QueryLogger {
    lines: Option<LineLogger>,
    tap: Option<Tap>,
    sample: u32,
    /// Number of queries up to the next one that is logged, that one included.
    until_next: u32,
    /// Whether the last query is logged.
    is_sampled: bool,
}

/// The end of the query log that belongs to one worker and transport.
#[derive(Debug)]
struct LineLogger {
    sender: RecordSender,
    is_tcp: bool,
}

impl QueryLogger {
    /// Logs a query before it is answered, unless it is left out of the sample. `ends` are the addresses
    /// of the client and of the server.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_query(&mut self, ends: [SocketAddr; 2], query: &[u8], now: Instant) {
        self.until_next -= 1;
        self.is_sampled = self.until_next == 0;
        if !self.is_sampled {
            return;
        }
        self.until_next = self.sample;
        if let Some(tap) = &mut self.tap {
            tap.on_query(ends, query, now);
        }
    }

    /// Logs the reply to the last query, unless that was left out. It consists of a head, a tail, an OPT
    /// record and a signature.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_reply(&mut self, ends: [SocketAddr; 2], parts: [&[u8]; 4]) {
        if !self.is_sampled {
            return;
        }
        if let Some(lines) = &mut self.lines {
            let [head, tail, opt, signature] = parts;
            lines.log(ends[0], head, tail.len() + signature.len(), opt);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_reply(ends, &parts);
        }
    }

    /// Number of queries so far in the current sample.
    #[cfg(test)]
    pub(crate) fn queries(&self) -> u32 {
        match self.until_next {
            // The first query is logged, and the count begins again.
            1 => 0,
            left => self.sample - left + 1,
        }
    }

    /// Number of lines of the query log that are lost, if there is one.
    pub(crate) fn lost_lines(&self) -> Option<u64> {
        self.lines.as_ref().map(|lines| lines.sender.lost())
    }

    /// Number of messages of dnstap that are lost, if there is dnstap.
    pub(crate) fn lost_messages(&self) -> Option<u64> {
        self.tap.as_ref().map(Tap::lost)
    }
}

impl LineLogger {
    /// Logs a query. The arguments after the client are the reply's head, the length of its other
    /// parts, and its OPT record.
    fn log(&mut self, peer: SocketAddr, head: &[u8], tail_len: usize, opt: &[u8]) {
        let entry = Entry {
            peer,
            reply_len: (head.len() + tail_len + opt.len()) as u16,
            extended_rcode: opt.get(EXTENDED_RCODE_AT).copied().unwrap_or(0),
            is_tcp: self.is_tcp,
        };
        self.sender.send(&entry.to_bytes(), head);
    }
}

/// What a worker knows of a query, besides the head of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    peer: SocketAddr,
    reply_len: u16,
    extended_rcode: u8,
    is_tcp: bool,
}

impl Entry {
    #[inline]
    fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..2].copy_from_slice(&self.reply_len.to_ne_bytes());
        bytes[2] = self.extended_rcode;
        bytes[3] = self.is_tcp.into();
        bytes[4..].copy_from_slice(&client_to_bytes(self.peer));
        bytes
    }

    fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Self {
        let mut client = [0; CLIENT_LEN];
        client.copy_from_slice(&bytes[4..]);
        Self {
            peer: client_from_bytes(&client),
            reply_len: u16::from_ne_bytes([bytes[0], bytes[1]]),
            extended_rcode: bytes[2],
            is_tcp: bytes[3] != 0,
        }
    }
}

/// Appends a record as a line, without a line feed.
fn write(form: QueryFormat, now: SystemTime, record: &[u8], line: &mut Vec<u8>) {
    let Some((entry, head)) = record.split_first_chunk() else {
        return;
    };
    let entry = Entry::from_bytes(entry);
    let time = humantime::format_rfc3339_millis(now);
    let (name, qtype) = question(head);
    let code = head.get(3).map_or(0, |flags| u16::from(flags & 15));
    let rcode = rcode(u16::from(entry.extended_rcode) << 4 | code);
    let transport = if entry.is_tcp { "tcp" } else { "udp" };
    let (ip, port, len) = (entry.peer.ip(), entry.peer.port(), entry.reply_len);
    // Writing to a vector cannot fail.
    let _ = match form {
        QueryFormat::Text => {
            let client = entry.peer;
            write!(
                line,
                "{time} {client} {transport} {name} {qtype} {rcode} {len}"
            )
        }
        QueryFormat::Json => {
            let name = serde_json::Value::from(name);
            write!(
                line,
                "{{\"time\":\"{time}\",\"client\":\"{ip}\",\"port\":{port},\
                 \"transport\":\"{transport}\",\"name\":{name},\"type\":\"{qtype}\",\
                 \"rcode\":\"{rcode}\",\"bytes\":{len}}}"
            )
        }
    };
}

/// Returns the name and the type in the question, or `-` for both if there is no question.
fn question(head: &[u8]) -> (String, String) {
    let found = head.get(HEADER_LEN..).and_then(|question| {
        let len = name::prefix_len(question)?;
        let qtype = question.get(len..len + 2)?;
        let qtype = u16::from_be_bytes([qtype[0], qtype[1]]);
        Some((Shown(&question[..len]).to_string(), rtype::show(qtype)))
    });
    found.unwrap_or_else(|| ("-".to_owned(), "-".to_owned()))
}

/// Returns the mnemonic of a response code, or its number.
fn rcode(code: u16) -> String {
    domain::base::iana::OptRcode::masked_from_int(code).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const HEAD: &[u8] = b"\x12\x34\x84\x03\0\x01\0\0\0\0\0\0\x03wWw\x07exa\"mp\xff\0\0\x1c\0\x01";

    fn line(form: QueryFormat, peer: &str, extended_rcode: u8, head: &[u8]) -> String {
        let entry = Entry {
            peer: peer.parse().unwrap(),
            reply_len: 300,
            extended_rcode,
            is_tcp: true,
        };
        let mut line = Vec::new();
        let now = UNIX_EPOCH + Duration::from_millis(784_111_777_042);
        write(form, now, &[&entry.to_bytes(), head].concat(), &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_has_the_question_and_the_response_code() {
        assert_eq!(
            line(QueryFormat::Text, "[2001:db8::1]:53", 0, HEAD),
            "1994-11-06T08:49:37.042Z [2001:db8::1]:53 tcp wWw.exa\\\"mp\\255. AAAA NXDOMAIN 300"
        );
        assert_eq!(
            line(QueryFormat::Json, "192.0.2.1:53", 0, HEAD),
            "{\"time\":\"1994-11-06T08:49:37.042Z\",\"client\":\"192.0.2.1\",\"port\":53,\
             \"transport\":\"tcp\",\"name\":\"wWw.exa\\\\\\\"mp\\\\255.\",\"type\":\"AAAA\",\
             \"rcode\":\"NXDOMAIN\",\"bytes\":300}"
        );
    }

    #[test]
    fn a_reply_without_a_question_has_dashes() {
        let version = line(
            QueryFormat::Text,
            "192.0.2.1:53",
            1,
            b"\x12\x34\x84\0\0\0\0\0\0\0\0\0",
        );
        assert!(
            version.ends_with(" 192.0.2.1:53 tcp - - BADVERS 300"),
            "{version}"
        );
        for head in [&b""[..], b"\x01", &HEAD[..20], &HEAD[..HEAD.len() - 3]] {
            let text = line(QueryFormat::Text, "192.0.2.1:53", 0, head);
            assert!(text.contains(" - - "), "{text}");
        }
    }

    #[test]
    fn a_sample_has_one_of_n_queries_and_its_reply_in_both_logs() {
        let folder = tempfile::tempdir().unwrap();
        let args = QueryLogArgs {
            to: Some(LogDestination::File(folder.path().join("log"))),
            dnstap: Some(FrameDestination::File(folder.path().join("tap"))),
            sample: 3,
            ..QueryLogArgs::default()
        };
        let log = QueryLog::open(&args, "test", "1").unwrap().unwrap();
        let mut logger = log.sender(false);
        let ends = ["192.0.2.1:53".parse().unwrap(); 2];
        for nth in 0..7 {
            logger.on_query(ends, HEAD, Instant::ZERO);
            assert_eq!(logger.is_sampled, nth % 3 == 0);
            // A query without a reply counts, too.
            if nth != 1 {
                logger.on_reply(ends, [HEAD, &[], &[], &[]]);
            }
        }
        assert_eq!(
            (logger.lost_lines(), logger.lost_messages()),
            (Some(0), Some(0))
        );
    }
}
