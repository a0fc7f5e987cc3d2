//! The access log: one line for each request that was answered.
//!
//! A worker copies the head of the request into a record, with the client, the time, the status and
//! the size of the answer. The thread that writes the log finds the fields and formats them.

mod of_sites;

pub use self::of_sites::{AccessLogSenders, AccessLogs};

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use control::{
    CLIENT_LEN, LogDestination, LogName, OptionError, RecordLog, WrongWords, client_from_bytes,
    client_to_bytes,
};

use crate::known_sites::{HostedId, SiteNames};
use crate::login::Credentials;

/// Maximum number of bytes of a request's head that a record has.
const HEAD_MAX: usize = 2_048;
/// Length of a record without the request's head, in bytes.
const ENTRY_LEN: usize = 20 + CLIENT_LEN;

/// The options of the access log, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Logs")]
pub struct AccessLogArgs {
    /// Write a line for each HTTP request to a FILE, or to `stdout`, `syslog` or `journald`. `off`
    /// means no log. SIGUSR1 opens the file again. If lines cannot be written as fast as requests
    /// arrive, some are dropped and counted. Each `[[web]]` of a configuration file can have its own
    /// log.
    #[arg(long, value_name = "FILE|stdout|syslog|journald|off")]
    access_log: Option<LogTarget>,

    /// Form of the lines: `combined` as in Apache and nginx, `json`, or a list of fields. Fields are
    /// separated by tabs: time, client, port, user, method, target, version, status, bytes, host,
    /// referer, user-agent, site. The site is the folder from which the request was answered.
    #[arg(
        long,
        value_name = "combined|json|FIELD,...",
        default_value = "combined"
    )]
    access_log_format: AccessFormat,
}

/// What the option of the access log names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogTarget {
    Off,
    To(LogDestination),
}

impl FromStr for LogTarget {
    type Err = <LogDestination as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "off" => Self::Off,
            text => Self::To(text.parse()?),
        })
    }
}

/// What the log is called.
const NAME: LogName = LogName {
    shown: "access log",
    option: "access_log",
};

impl AccessLogArgs {
    /// Returns the options of a log with lines in the combined format.
    pub fn to(destination: LogDestination) -> Self {
        Self {
            access_log: Some(LogTarget::To(destination)),
            ..Self::default()
        }
    }

    /// Checks the options of all sites. A format needs a log of any of them.
    ///
    /// # Errors
    /// If there is none. The error names both options.
    pub(crate) fn check<'o>(
        mut all: impl Iterator<Item = &'o Self> + Clone,
    ) -> Result<(), OptionError> {
        let has_log = all.clone().any(|one| one.access_log.is_some());
        let has_format = all.any(|one| one.access_log_format != AccessFormat::Combined);
        if has_format && !has_log {
            return Err(OptionError::new(
                "--access-log-format has no effect without --access-log; give both, or neither",
            ));
        }
        Ok(())
    }

    /// Checks that a log can be opened, without making its file.
    ///
    /// # Errors
    /// If it cannot. The error names it.
    pub(crate) fn check_file(destination: &LogDestination, program: &str) -> io::Result<()> {
        RecordLog::check(NAME, program, destination)
    }

    /// The destination of the log, if there is one.
    pub(crate) fn destination(&self) -> Option<&LogDestination> {
        match &self.access_log {
            Some(LogTarget::To(destination)) => Some(destination),
            Some(LogTarget::Off) | None => None,
        }
    }

    /// Opens the log, if there is one, for records of the sites with these names.
    fn open(&self, program: &str, sites: SiteNames) -> io::Result<Option<RecordLog>> {
        let Some(to) = self.destination() else {
            return Ok(None);
        };
        let form = self.access_log_format.clone();
        let format =
            move |record: &[u8], line: &mut Vec<u8>| form.write(record, |id| sites.of(id), line);
        RecordLog::open(NAME, program, to, format).map(Some)
    }
}

/// What a worker knows of an answered request, besides its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// Time of the answer, in seconds since 1970.
    pub(crate) second: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) status: u16,
    /// The hosted site that answered.
    pub(crate) site: HostedId,
    /// Length of the answer's body. 0 if it is not known when the answer begins.
    pub(crate) body_len: u64,
}

impl LogEntry {
    #[inline]
    fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.second.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.status.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.site.0.to_le_bytes());
        bytes[20..].copy_from_slice(&client_to_bytes(self.peer));
        bytes
    }

    fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Self {
        let number = |from: usize, len: usize| {
            let mut number = [0; 8];
            number[..len].copy_from_slice(&bytes[from..from + len]);
            u64::from_le_bytes(number)
        };
        let mut client = [0; CLIENT_LEN];
        client.copy_from_slice(&bytes[20..]);
        Self {
            second: number(0, 8),
            body_len: number(8, 8),
            status: number(16, 2) as u16,
            site: HostedId(number(18, 2) as u16),
            peer: client_from_bytes(&client),
        }
    }
}

/// The form of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessFormat {
    #[default]
    Combined,
    Json,
    Fields(Vec<Field>),
}

/// A field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    Client,
    Port,
    /// The name in the request's credentials, even if they are wrong.
    User,
    Method,
    Target,
    Version,
    Status,
    Bytes,
    Host,
    Referer,
    UserAgent,
    /// The name of the site.
    Site,
}

impl Field {
    const ALL: [(&str, Self); 13] = [
        ("time", Self::Time),
        ("client", Self::Client),
        ("port", Self::Port),
        ("user", Self::User),
        ("method", Self::Method),
        ("target", Self::Target),
        ("version", Self::Version),
        ("status", Self::Status),
        ("bytes", Self::Bytes),
        ("host", Self::Host),
        ("referer", Self::Referer),
        ("user-agent", Self::UserAgent),
        ("site", Self::Site),
    ];

    fn is_number(self) -> bool {
        matches!(self, Self::Port | Self::Status | Self::Bytes)
    }
}

impl FromStr for AccessFormat {
    type Err = WrongWords<String>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "combined" => return Ok(Self::Combined),
            "json" => return Ok(Self::Json),
            _ => {}
        }
        let mut wrong = WrongWords::default();
        let fields = text.split(',').map(str::trim).filter_map(|name| {
            let found = Field::ALL.iter().find(|(of, _)| *of == name);
            let found = found.map(|(_, field)| *field).ok_or_else(|| {
                let names: Vec<_> = Field::ALL.iter().map(|(name, _)| *name).collect();
                format!(
                    "there is no field {name:?}; give combined, json, or fields of {}",
                    names.join(", ")
                )
            });
            wrong.take(text, name, found)
        });
        let fields = fields.collect();
        wrong.finish(Some(Self::Fields(fields)))
    }
}

impl AccessFormat {
    /// Appends a record as a line, without a line feed. `name_of` returns the name of a hosted site.
    fn write(&self, record: &[u8], name_of: impl Fn(HostedId) -> &'static str, line: &mut Vec<u8>) {
        let Some((entry, head)) = record.split_first_chunk() else {
            return;
        };
        let entry = LogEntry::from_bytes(entry);
        let request = Logged::new(entry, head, name_of(entry.site));
        match self {
            Self::Combined => request.write_combined(line),
            Self::Json => request.write_json(line),
            Self::Fields(fields) => request.write_fields(fields, line),
        }
    }
}

/// A request as the log shows it. A part that the request lacks is empty.
struct Logged<'r> {
    entry: LogEntry,
    /// The name of the site.
    site: &'static str,
    /// The request line.
    line: &'r [u8],
    fields: &'r [u8],
}

impl<'r> Logged<'r> {
    fn new(entry: LogEntry, head: &'r [u8], site: &'static str) -> Self {
        let head = head.trim_ascii_start();
        let (line, fields) = split_line(head);
        Self {
            entry,
            site,
            line,
            fields,
        }
    }

    /// Returns the value of a field of the request's head.
    fn header(&self, name: &str) -> &'r [u8] {
        let mut rest = self.fields;
        while !rest.is_empty() {
            let (line, next) = split_line(rest);
            rest = next;
            if line.is_empty() {
                // What follows an invalid head may be another request.
                break;
            }
            let mut parts = line.splitn(2, |byte| *byte == b':');
            let is_it = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
            if parts.next().is_some_and(is_it) {
                return parts.next().unwrap_or_default().trim_ascii();
            }
        }
        &[]
    }

    /// Returns the name in the request's credentials.
    fn user(&self) -> Vec<u8> {
        let credentials = Credentials::read(self.header("authorization"));
        credentials.map_or_else(Vec::new, |one| one.name().to_vec())
    }

    /// Returns a word of the request line, from 0.
    fn word(&self, number: usize) -> &'r [u8] {
        let mut words = self.line.split(|byte| *byte == b' ');
        words.nth(number).unwrap_or_default()
    }

    fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.entry.second)
    }

    /// Returns a field as text, which may have any bytes of the client.
    fn field(&self, field: Field) -> Vec<u8> {
        let entry = &self.entry;
        match field {
            Field::Time => humantime::format_rfc3339_seconds(self.time())
                .to_string()
                .into(),
            Field::Client => entry.peer.ip().to_string().into(),
            Field::Port => entry.peer.port().to_string().into(),
            Field::User => self.user(),
            Field::Method => self.word(0).into(),
            Field::Target => self.word(1).into(),
            Field::Version => self.word(2).into(),
            Field::Status => entry.status.to_string().into(),
            Field::Bytes => entry.body_len.to_string().into(),
            Field::Host => self.header("host").into(),
            Field::Referer => self.header("referer").into(),
            Field::UserAgent => self.header("user-agent").into(),
            Field::Site => self.site.into(),
        }
    }

    /// Writes the combined log format of Apache's HTTP server.
    fn write_combined(&self, line: &mut Vec<u8>) {
        let LogEntry {
            peer,
            status,
            body_len,
            ..
        } = self.entry;
        // Such as `Sun, 06 Nov 1994 08:49:37 GMT`, always with this length.
        let date = httpdate::fmt_http_date(self.time());
        let [day, month, year, time] = [5..7, 8..11, 12..16, 17..25].map(|range| &date[range]);
        // Writing to a vector cannot fail.
        let _ = write!(line, "{} - ", peer.ip());
        escape_name(&self.user(), line);
        let _ = write!(line, " [{day}/{month}/{year}:{time} +0000] \"");
        escape(self.line, line);
        let _ = write!(line, "\" {status} {body_len} \"");
        escape_or_dash(self.header("referer"), line);
        line.extend_from_slice(b"\" \"");
        escape_or_dash(self.header("user-agent"), line);
        line.push(b'"');
    }

    fn write_json(&self, line: &mut Vec<u8>) {
        line.push(b'{');
        for (number, (name, field)) in Field::ALL.into_iter().enumerate() {
            if number > 0 {
                line.push(b',');
            }
            // Writing to a vector cannot fail.
            let _ = write!(line, "\"{name}\":");
            let value = self.field(field);
            if field.is_number() {
                line.extend_from_slice(&value);
            } else {
                let text = String::from_utf8_lossy(&value);
                let _ = serde_json::to_writer(&mut *line, &text);
            }
        }
        line.push(b'}');
    }

    fn write_fields(&self, fields: &[Field], line: &mut Vec<u8>) {
        for (number, field) in fields.iter().enumerate() {
            if number > 0 {
                line.push(b'\t');
            }
            escape_or_dash(&self.field(*field), line);
        }
    }
}

/// Returns the first line without its end, and the rest.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = match end {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[][..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

fn escape_or_dash(text: &[u8], line: &mut Vec<u8>) {
    escape(if text.is_empty() { b"-" } else { text }, line);
}

/// Appends a name without spaces, because they separate the parts of a line.
fn escape_name(name: &[u8], line: &mut Vec<u8>) {
    let mut words = name.split(|byte| *byte == b' ');
    escape_or_dash(words.next().unwrap_or_default(), line);
    for word in words {
        line.extend_from_slice(b"\\x20");
        escape(word, line);
    }
}

/// Appends bytes of a client so that they cannot end a text in quotes, a field or a line.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        if (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\' {
            line.push(byte);
        } else {
            // Writing to a vector cannot fail.
            let _ = write!(line, "\\x{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const HEAD: &[u8] =
        b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nuser-agent:  curl/8 \"x\"\r\n\r\n";

    fn line(format: &str, peer: &str, head: &[u8]) -> String {
        let entry = LogEntry {
            second: 784_111_777,
            peer: peer.parse().unwrap(),
            status: 404,
            site: HostedId(1),
            body_len: 32_212_254_720,
        };
        let mut line = Vec::new();
        let record = [&entry.to_bytes(), head].concat();
        format.parse::<AccessFormat>().unwrap().write(
            &record,
            |id| ["", "/srv/www"][usize::from(id.0)],
            &mut line,
        );
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_combined_format_is_the_one_of_other_servers() {
        assert_eq!(
            line("combined", "192.0.2.1:1234", HEAD),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 404 32212254720 \"-\" \
             \"curl/8 \\x22x\\x22\""
        );
    }

    #[test]
    fn the_user_is_the_one_of_the_request() {
        let with = |pair: &str| {
            let pair = STANDARD.encode(pair);
            let head = format!("GET / HTTP/1.1\r\nAuthorization: Basic {pair}\r\n\r\n");
            line("combined", "192.0.2.1:1", head.as_bytes())
        };
        assert!(with("ali:secret").starts_with("192.0.2.1 - ali ["));
        assert!(with("a b\"\n:x").starts_with("192.0.2.1 - a\\x20b\\x22\\x0A ["));
        assert!(with(":x").starts_with("192.0.2.1 - - ["));
        assert!(with("no colon").starts_with("192.0.2.1 - - ["));
    }

    #[test]
    fn fields_behind_the_head_are_not_those_of_the_request() {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\nReferer: c\r\n";
        assert_eq!(
            line("method,host,referer,user-agent", "192.0.2.1:1", head),
            "POST\ta\t-\t-"
        );
    }

    #[test]
    fn json_has_all_fields() {
        assert_eq!(
            line("json", "[2001:db8::1]:1234", HEAD),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"client\":\"2001:db8::1\",\"port\":1234,\
             \"user\":\"\",\"method\":\"GET\",\"target\":\"/a?b\",\"version\":\"HTTP/1.1\",\"status\":404,\
             \"bytes\":32212254720,\"host\":\"example.org\",\"referer\":\"\",\
             \"user-agent\":\"curl/8 \\\"x\\\"\",\"site\":\"/srv/www\"}"
        );
    }

    #[test]
    fn fields_are_chosen_by_name() {
        assert_eq!(
            line("client, status,referer,host,site", "192.0.2.1:1", HEAD),
            "192.0.2.1\t404\t-\texample.org\t/srv/www"
        );
        let error = "client, agent,time,x".parse::<AccessFormat>();
        let wrong = error.unwrap_err();
        let starts = [
            "there is no field \"agent\"; give combined",
            "there is no field \"x\"",
        ];
        for ((at, error), (expected, start)) in wrong.iter().zip([8, 19].iter().zip(starts)) {
            assert_eq!(at, *expected);
            assert!(error.starts_with(start), "{error}");
        }
        assert_eq!(wrong.iter().count(), 2);
        assert!("".parse::<AccessFormat>().is_err());
    }

    #[test]
    fn no_client_can_forge_a_line() {
        let head = b"\r\nGET /\x00\"\xff\t\\ HTTP/1.1\r\nreferer: a\rb\r\n";
        assert_eq!(
            line("combined", "192.0.2.1:1", head),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /\\x00\\x22\\xFF\\x09\\x5C HTTP/1.1\" \
             404 32212254720 \"a\\x0Db\" \"-\""
        );
        let json = line("json", "192.0.2.1:1", head);
        assert!(!json.contains(char::is_control), "{json}");
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
        let fields = line("target,referer,user-agent", "192.0.2.1:1", head);
        assert_eq!(fields, "/\\x00\\x22\\xFF\\x09\\x5C\ta\\x0Db\t-");
        for garbage in [&b""[..], b"\n", b"x", b"GET", b": \r\n:"] {
            for format in ["combined", "json", "method,target,version,host"] {
                assert!(!line(format, "192.0.2.1:1", garbage).contains('\n'));
            }
        }
    }
}
