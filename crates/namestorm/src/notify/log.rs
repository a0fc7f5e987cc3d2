//! Tells the operator what became of NOTIFY, in few lines.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::report::count;
use domain::base::iana::{Rcode, TsigRcode};

use super::schedule::{Doubt, Event, Outcome};
use super::secondary::Secondary;
use crate::name::{self, Name};
use crate::tsig::{FUDGE, ReplyFault};

/// Time for which outcomes are gathered for one line.
const GATHERING: Duration = Duration::from_secs(1);
/// Minimum time between two lines of the same kind about a server.
const LINE_INTERVAL: Duration = Duration::from_mins(1);

/// Gathers what became of NOTIFY, and makes lines of it: at most one a minute for each server and kind of
/// outcome.
#[derive(Debug, Default)]
pub(super) struct NotifyLog(Vec<OfServer>);

/// What is told of one server.
#[derive(Debug)]
struct OfServer {
    address: SocketAddr,
    /// The kernel's address from which the server is told, if it is known.
    from: Option<IpAddr>,
    /// The name of the key that messages to the server are signed with, if there is one.
    key: Option<Name>,
    acknowledged: Gathered,
    refused: Gathered,
    /// The last response code that is not NOERROR.
    rcode: u8,
    unanswered: Gathered,
    doubtful: Gathered,
    /// Why the last reply that does not count does not.
    doubt: Option<Doubt>,
    unsent: Pace,
    /// Why the kernel has refused the last datagram that it has refused.
    error: String,
}

/// A line for the operator.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Info(String),
    Warning(String),
}

impl Line {
    fn write(self) {
        match self {
            Self::Info(text) => tracing::info!("{text}"),
            Self::Warning(text) => tracing::warn!("{text}"),
        }
    }
}

impl NotifyLog {
    /// Starts with each server, and the address from which it is told.
    pub(super) fn new<'s>(servers: impl Iterator<Item = (&'s Secondary, Option<IpAddr>)>) -> Self {
        let of = |(server, from): (&Secondary, _)| OfServer {
            address: server.address(),
            from,
            key: server.key().cloned(),
            acknowledged: Gathered::default(),
            refused: Gathered::default(),
            rcode: 0,
            unanswered: Gathered::default(),
            doubtful: Gathered::default(),
            doubt: None,
            unsent: Pace::default(),
            error: String::new(),
        };
        Self(servers.map(of).collect())
    }

    /// Returns true if there are no servers.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes what has happened to a message.
    pub(super) fn note(&mut self, event: &Event, now: Instant) {
        let server = &mut self.0[event.server];
        let gathered = match event.outcome {
            Outcome::Acknowledged => &mut server.acknowledged,
            Outcome::Refused(rcode) => {
                server.rcode = rcode;
                &mut server.refused
            }
            Outcome::Doubtful(doubt) | Outcome::Unanswered(Some(doubt)) => {
                server.doubt = Some(doubt);
                &mut server.doubtful
            }
            Outcome::Unanswered(None) => &mut server.unanswered,
        };
        gathered.add(&event.apex, now);
    }

    /// Notes that the kernel has refused a datagram to this server.
    pub(super) fn note_unsent(&mut self, server: usize, error: &io::Error, now: Instant) {
        let server = &mut self.0[server];
        server.error = error.to_string();
        server.unsent.want(now);
    }

    /// Returns when the next line is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let paces = self.0.iter().flat_map(|server| {
            let (replies, silence) = (&server.acknowledged, &server.unanswered);
            [replies, &server.refused, &server.doubtful, silence]
                .map(|zones| &zones.pace)
                .into_iter()
                .chain([&server.unsent])
        });
        paces.filter_map(|pace| pace.due).min()
    }

    /// Writes the lines that are due.
    pub(super) fn write(&mut self, now: Instant) {
        self.lines(now).into_iter().for_each(Line::write);
    }

    fn lines(&mut self, now: Instant) -> Vec<Line> {
        self.0.iter_mut().flat_map(|one| one.lines(now)).collect()
    }
}

impl OfServer {
    fn lines(&mut self, now: Instant) -> impl Iterator<Item = Line> + use<> {
        let (address, code) = (self.address, Rcode::masked_from_int(self.rcode));
        let from = self.from.map(|from| format!(" from {from}"));
        let from = from.unwrap_or_default();
        let key = self.key.as_ref().map(|key| format!(" with the key {key}"));
        let key = key.unwrap_or_default();
        let acknowledged = self
            .acknowledged
            .take(now)
            .map(|zones| Line::Info(format!("{address} has acknowledged NOTIFY of {zones}")));
        let refused = self.refused.take(now).map(|zones| {
            Line::Warning(format!(
                "{address} replies to NOTIFY of {zones} with {code}: make it a secondary server of the zone, \
                 and let it accept NOTIFY{from}{key}"
            ))
        });
        let doubtful = self.doubtful.take(now).zip(self.doubt);
        let doubtful = doubtful.map(|(zones, doubt)| Line::Warning(self.doubtful(&zones, doubt)));
        let unanswered = self.unanswered.take(now).map(|zones| {
            Line::Warning(format!(
                "{address} does not reply to NOTIFY of {zones}: check that it runs, and that it accepts UDP{from}"
            ))
        });
        let unsent = self.unsent.take(now).then(|| {
            Line::Warning(format!(
                "the kernel does not send NOTIFY to {address}: {}; check its routes, its firewall, and \
                 IPAddressDeny of the service",
                self.error
            ))
        });
        let lines = [acknowledged, refused, doubtful, unanswered, unsent];
        lines.into_iter().flatten()
    }

    /// Says why replies to messages about these zones do not count, and what to do about it.
    fn doubtful(&self, zones: &str, doubt: Doubt) -> String {
        let (address, code) = (self.address, Rcode::masked_from_int(doubt.rcode));
        let key = self.key.as_ref().map(ToString::to_string);
        let key = key.unwrap_or_default();
        let secret =
            format!("give it the secret that the key {key} has in the file of --tsig-keys");
        let clock = format!("set its clock or that of this host, which may differ by {FUDGE} s");
        let why = match doubt.fault {
            ReplyFault::Unsigned => {
                format!(" without a signature: let it accept NOTIFY only with the key {key}")
            }
            ReplyFault::Invalid => format!(" and a wrong signature: {secret}"),
            ReplyFault::Untimely => format!(" and a signature of another time: {clock}"),
            ReplyFault::Refused(error) => match TsigRcode::from_int(error) {
                TsigRcode::BADKEY => format!(
                    " and BADKEY: give it the key {key} of the file of --tsig-keys, with the same algorithm"
                ),
                TsigRcode::BADSIG => format!(" and BADSIG: {secret}"),
                TsigRcode::BADTIME => format!(" and BADTIME: {clock}"),
                error => format!(" and the TSIG error {error}: {secret}"),
            },
        };
        format!("{address} replies to NOTIFY of {zones} with {code}{why}")
    }
}

/// Messages with the same outcome since the last line.
#[derive(Debug, Default)]
struct Gathered {
    /// The zone of the first message.
    first: Option<Arc<[u8]>>,
    number: u64,
    pace: Pace,
}

impl Gathered {
    fn add(&mut self, apex: &Arc<[u8]>, now: Instant) {
        self.first.get_or_insert_with(|| Arc::clone(apex));
        self.number += 1;
        self.pace.want(now);
    }

    /// Describes the messages if the line is due, and starts again.
    fn take(&mut self, now: Instant) -> Option<String> {
        if !self.pace.take(now) {
            return None;
        }
        let first = self.first.take()?;
        let first = name::Shown(&first);
        let others = std::mem::take(&mut self.number) - 1;
        Some(match others {
            0 => first.to_string(),
            _ => format!("{first} and {} more", count(others)),
        })
    }
}

/// When lines of one kind are written.
#[derive(Debug, Default)]
struct Pace {
    /// When the next line is due, if one is wanted.
    due: Option<Instant>,
    /// When the last line was written.
    last: Option<Instant>,
}

impl Pace {
    /// Asks for a line, soon or when the last one is long enough ago.
    fn want(&mut self, now: Instant) {
        let earliest = self.last.map_or(now, |last| last + LINE_INTERVAL);
        self.due.get_or_insert(earliest.max(now + GATHERING));
    }

    /// Returns true once if a line is due.
    fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts with two servers. Only the address from which the first one is told is known.
    fn log(servers: [&str; 2]) -> NotifyLog {
        let servers = servers.map(|text| text.parse::<Secondary>().unwrap());
        let from = [Some([192, 0, 2, 9].into()), None];
        NotifyLog::new(servers.iter().zip(from))
    }

    #[test]
    fn a_line_gathers_messages_and_the_next_one_comes_a_minute_later() {
        let mut log = log(["192.0.2.1:53", "192.0.2.1:54"]);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let apex: Arc<[u8]> = (*b"\x01a\0").into();
        let event = |server, outcome| Event {
            server,
            apex: Arc::clone(&apex),
            outcome,
        };
        assert_eq!(log.next_deadline(), None);
        for server in [0, 0, 0, 1, 1] {
            log.note(&event(server, Outcome::Acknowledged), at(0));
        }
        assert!(log.lines(at(0)).is_empty());
        assert_eq!(log.next_deadline(), Some(at(1)));
        let expected = [
            "192.0.2.1:53 has acknowledged NOTIFY of a. and 2 more",
            "192.0.2.1:54 has acknowledged NOTIFY of a. and 1 more",
        ];
        assert_eq!(
            log.lines(at(1)),
            expected.map(|line| Line::Info(line.to_owned()))
        );
        log.note(&event(0, Outcome::Acknowledged), at(2));
        log.note(&event(0, Outcome::Refused(9)), at(2));
        assert!(log.lines(at(2)).is_empty());
        let expected = "192.0.2.1:53 replies to NOTIFY of a. with NOTAUTH: make it a secondary server of the \
                        zone, and let it accept NOTIFY from 192.0.2.9";
        assert_eq!(log.lines(at(3)), [Line::Warning(expected.to_owned())]);
        assert_eq!(log.next_deadline(), Some(at(61)));
        assert_eq!(log.lines(at(61)).len(), 1);
        assert_eq!(log.next_deadline(), None);
        log.note(&event(1, Outcome::Unanswered(None)), at(99));
        let error = io::ErrorKind::NetworkUnreachable.into();
        log.note_unsent(1, &error, at(99));
        log.note_unsent(1, &error, at(99));
        let expected = [
            "192.0.2.1:54 does not reply to NOTIFY of a.: check that it runs, and that it accepts UDP",
            "the kernel does not send NOTIFY to 192.0.2.1:54: network unreachable; check its routes, its \
             firewall, and IPAddressDeny of the service",
        ];
        assert_eq!(
            log.lines(at(100)),
            expected.map(|line| Line::Warning(line.to_owned()))
        );
        assert_eq!(log.next_deadline(), None);
    }

    #[test]
    fn a_line_says_what_is_wrong_with_a_signature_and_what_to_do() {
        let start = Instant::now();
        let line = |server, outcome| {
            let mut log = log(["192.0.2.1 Key", "192.0.2.2 other"]);
            let apex = (*b"\x01a\0").into();
            let event = Event {
                server,
                apex,
                outcome,
            };
            log.note(&event, start);
            let [Line::Warning(line)] = &log.lines(start + GATHERING)[..] else {
                panic!("one warning")
            };
            line.clone()
        };
        let of = |rcode, fault| {
            let doubt = Doubt { rcode, fault };
            let [now, later] = [Outcome::Doubtful(doubt), Outcome::Unanswered(Some(doubt))]
                .map(|outcome| line(0, outcome));
            assert_eq!(now, later);
            let start = "192.0.2.1:53 replies to NOTIFY of a. with ";
            now.strip_prefix(start).unwrap().to_owned()
        };
        let secret = "give it the secret that the key Key. has in the file of --tsig-keys";
        let clock = "set its clock or that of this host, which may differ by 300 s";
        let refused = |error| of(9, ReplyFault::Refused(error));
        assert_eq!(
            of(0, ReplyFault::Unsigned),
            "NOERROR without a signature: let it accept NOTIFY only with the key Key."
        );
        let wrong = of(5, ReplyFault::Invalid);
        assert_eq!(wrong, format!("REFUSED and a wrong signature: {secret}"));
        let untimely = of(0, ReplyFault::Untimely);
        let expected = format!("NOERROR and a signature of another time: {clock}");
        assert_eq!(untimely, expected);
        assert_eq!(refused(16), format!("NOTAUTH and BADSIG: {secret}"));
        assert_eq!(
            refused(17),
            "NOTAUTH and BADKEY: give it the key Key. of the file of --tsig-keys, with the same algorithm"
        );
        assert_eq!(refused(18), format!("NOTAUTH and BADTIME: {clock}"));
        let expected = format!("NOTAUTH and the TSIG error BADTRUNC(22): {secret}");
        assert_eq!(refused(22), expected);
        let end = "let it accept NOTIFY from 192.0.2.9 with the key Key.";
        assert!(line(0, Outcome::Refused(9)).ends_with(end));
        let end = "let it accept NOTIFY with the key other.";
        assert!(line(1, Outcome::Refused(9)).ends_with(end));
    }
}
