//! The lines of a list of connections, as JSON and for people.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcpip::{Condition, Info, Negotiated, Overview};

use super::filter::StateName;
use super::walk::Found;
use crate::report;

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Connection(Box<ConnectionStatus>),
    /// The last line.
    End {
        summary: ListSummary,
    },
}

/// Totals of a list of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSummary {
    /// Number of connections of all workers.
    pub connections: u64,
    /// Number of connections that match the filter.
    pub matching: u64,
    /// Number of connections in the list. It is smaller than `matching` if the list was cut.
    pub listed: u64,
    /// Numbers of the workers that did not answer within 2 s, or have ended. Their connections are
    /// missing.
    pub silent_workers: Vec<u32>,
}

/// One TCP connection. Its JSON is what `connections --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Number of the worker that serves the connection.
    pub worker: u32,
    /// The program's name. It differs between the parts of a [`Both`](crate::Both).
    pub program: String,
    /// The server's address and port.
    pub local: SocketAddr,
    /// The client's address and port.
    pub peer: SocketAddr,
    /// The state of RFC 9293, section 3.3.2, with the name that `ss` uses, such as `established`.
    pub state: String,
    /// Time since the SYN arrived, or since the ACK of a SYN cookie, in seconds.
    pub age_seconds: f64,
    /// Time since the last segment, in seconds. It is zero while data is in flight.
    pub idle_seconds: f64,
    /// Number of bytes sent, without retransmissions.
    pub bytes_sent: u64,
    /// Number of bytes that the client has acknowledged cumulatively.
    pub bytes_acked: u64,
    /// Number of bytes received in order.
    pub bytes_received: u64,
    /// Number of retransmissions, including probes of lost tails.
    pub retransmits: u32,
    /// Number of timeouts since the client last acknowledged new data, or of probes without an answer.
    pub retries: u8,
    /// The phase of loss recovery: `open`, `disorder`, `recovery` or `loss`.
    pub recovery: String,
    /// Maximum payload of a segment, in bytes.
    pub mss: u16,
    /// Congestion window, in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes, or `None` as long as there was no loss.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time in seconds, or zero before the first sample.
    pub srtt_seconds: f64,
    /// Variation of the round-trip time, in seconds.
    pub rttvar_seconds: f64,
    /// Minimum round-trip time in seconds, or zero before the first sample.
    pub min_rtt_seconds: f64,
    /// Retransmission timeout with its backoff, in seconds.
    pub rto_seconds: f64,
    /// Number of bytes sent but not yet acknowledged cumulatively. A FIN counts as one byte.
    pub unacked: u32,
    /// Number of bytes written but not yet sent. A FIN counts as one byte.
    pub unsent: u32,
    /// Number of bytes acknowledged selectively, but not yet cumulatively.
    pub sacked: u32,
    /// Number of unacknowledged bytes that count as lost and were not yet retransmitted.
    pub lost: u32,
    /// The client's window, in bytes.
    pub snd_wnd: u32,
    /// The server's window as last advertised, in bytes.
    pub rcv_wnd: u32,
    /// The TCP options in use: `ts`, `sack`, `ecn`, and `wscale:N,N` with both shifts.
    pub options: Vec<String>,
    /// The content that is being sent, if there is any.
    pub sending: Option<SendingStatus>,
}

/// The content that a connection is sending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendingStatus {
    /// Its name, if it has one: the path of a file.
    pub name: Option<String>,
    /// Number of its bytes that are acknowledged, with the head of the response.
    pub acked: u64,
    /// Its length in bytes, with the head of the response.
    pub len: u64,
}

impl ConnectionStatus {
    /// Creates the line of a connection of this worker. `name` is the name of the content that it
    /// sends, if that has one.
    pub(crate) fn new(worker: u32, found: &Found, name: Option<String>) -> Self {
        let Found {
            program,
            connection,
        } = found;
        let Overview { info, .. } = connection;
        let seconds = |time: Duration| time.as_secs_f64();
        Self {
            worker,
            program: (*program).to_owned(),
            local: connection.local,
            peer: connection.peer,
            state: StateName::from(info.state).name(),
            age_seconds: seconds(connection.age),
            idle_seconds: seconds(connection.idle),
            bytes_sent: connection.bytes_sent,
            bytes_acked: connection.bytes_acked,
            bytes_received: connection.bytes_received,
            retransmits: connection.retransmits,
            retries: info.retries,
            recovery: condition(info.condition).to_owned(),
            mss: info.mss,
            cwnd: info.cwnd,
            ssthresh: (info.ssthresh != u32::MAX).then_some(info.ssthresh),
            srtt_seconds: seconds(info.srtt),
            rttvar_seconds: seconds(info.rttvar),
            min_rtt_seconds: seconds(info.min_rtt),
            rto_seconds: seconds(connection.rto),
            unacked: info.unacked,
            unsent: info.unsent,
            sacked: info.sacked,
            lost: info.lost,
            snd_wnd: info.snd_wnd,
            rcv_wnd: info.rcv_wnd,
            options: options(info),
            sending: connection.sending.map(|sending| SendingStatus {
                name,
                acked: sending.at,
                len: sending.len,
            }),
        }
    }
}

fn condition(condition: Condition) -> &'static str {
    match condition {
        Condition::Open => "open",
        Condition::Disorder => "disorder",
        Condition::Recovery => "recovery",
        Condition::Loss => "loss",
    }
}

/// Returns the TCP options in use. The scales belong to the client's window and to ours.
fn options(info: &Info) -> Vec<String> {
    let agreed: Negotiated = info.negotiated;
    let mut options = Vec::new();
    for (name, is_on) in [
        ("ts", agreed.timestamps()),
        ("sack", agreed.sack()),
        ("ecn", agreed.ecn()),
    ] {
        options.extend(is_on.then(|| name.to_owned()));
    }
    if agreed.scaled() {
        options.push(format!("wscale:{},{}", agreed.peer_scale(), info.own_scale));
    }
    options
}

/// Formats a connection as a line with its addresses, and one with its counts, like `ss`.
impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            state,
            local,
            peer,
            ..
        } = self;
        write!(
            f,
            "{state:<12} {local} {peer} {program}, worker {}",
            self.worker
        )?;
        if let Some(sent) = &self.sending {
            write!(f, ", sending {sent}")?;
        }
        writeln!(f)?;
        let ms = |seconds: f64| format!("{:.3}", seconds * 1e3);
        write!(
            f,
            "     age:{:.1}s idle:{:.1}s rtt:{}/{}ms minrtt:{}ms rto:{}ms mss:{} cwnd:{} snd_wnd:{}",
            self.age_seconds,
            self.idle_seconds,
            ms(self.srtt_seconds),
            ms(self.rttvar_seconds),
            ms(self.min_rtt_seconds),
            ms(self.rto_seconds),
            self.mss,
            self.cwnd,
            self.snd_wnd
        )?;
        for (name, value) in [
            ("ssthresh", self.ssthresh.unwrap_or(0).into()),
            ("unacked", self.unacked.into()),
            ("unsent", self.unsent.into()),
            ("sacked", self.sacked.into()),
            ("lost", self.lost.into()),
            ("retrans", self.retransmits.into()),
            ("bytes_sent", self.bytes_sent),
            ("bytes_acked", self.bytes_acked),
            ("bytes_received", self.bytes_received),
            ("rcv_wnd", self.rcv_wnd.into()),
        ] {
            if value > 0 {
                write!(f, " {name}:{value}")?;
            }
        }
        if self.recovery != "open" {
            write!(f, " {}", self.recovery)?;
        }
        for option in &self.options {
            write!(f, " {option}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for SendingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = report::bytes(self.len);
        let Some(name) = &self.name else {
            return write!(f, "{len}");
        };
        let percent = 100 * self.acked / self.len.max(1);
        write!(f, "{name} ({percent}% of {len})")
    }
}

/// Formats the last line of a list for people.
impl fmt::Display for ListSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connections: {}", report::count(self.connections))?;
        if self.matching < self.connections {
            write!(f, ", of which {} match", report::count(self.matching))?;
        }
        if self.listed < self.matching {
            let listed = report::count(self.listed);
            write!(f, "; the list is cut after {listed}, its limit")?;
        }
        for worker in &self.silent_workers {
            write!(
                f,
                "; worker {worker} did not answer, so connections are missing"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::walk::example;

    fn found() -> Found {
        let mut connection = example("192.0.2.7:5000");
        connection.info.state = tcpip::State::Established;
        connection.info.mss = 1448;
        connection.info.cwnd = 14_480;
        connection.info.snd_wnd = 65_535;
        connection.info.ssthresh = u32::MAX;
        connection.info.srtt = Duration::from_micros(1_250);
        connection.bytes_sent = 900;
        connection.sending = Some(tcpip::Sending {
            content: Some(7),
            at: 250,
            len: 1_000,
        });
        Found {
            program: "web",
            connection,
        }
    }

    #[test]
    fn a_line_for_people_leaves_out_most_zeros() {
        let row = ConnectionStatus::new(1, &found(), Some("/a".to_owned()));
        assert_eq!(
            row.to_string(),
            "established  192.0.2.1:80 192.0.2.7:5000 web, worker 1, sending /a (25% of 1.0 kB)\n     \
             age:3.0s idle:0.0s rtt:1.250/0.000ms minrtt:0.000ms rto:200.000ms mss:1448 cwnd:14480 snd_wnd:65535 \
             bytes_sent:900\n"
        );
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let row = Line::Connection(ConnectionStatus::new(0, &found(), None).into());
        let end = Line::End {
            summary: ListSummary::default(),
        };
        for line in [row, end] {
            let json = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&json).unwrap(), line, "{json}");
        }
    }

    #[test]
    fn the_last_line_says_what_is_missing() {
        let summary = ListSummary {
            connections: 2_000,
            matching: 1_500,
            listed: 1_000,
            silent_workers: vec![3],
        };
        assert_eq!(
            summary.to_string(),
            "connections: 2,000, of which 1,500 match; the list is cut after 1,000, its limit; \
             worker 3 did not answer, so connections are missing"
        );
        let all = ListSummary {
            connections: 1,
            matching: 1,
            listed: 1,
            silent_workers: vec![],
        };
        assert_eq!(all.to_string(), "connections: 1");
    }
}
