//! One busy connection, segment by segment: the paper's Figure 2.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use pcap_file::pcap::PcapReader;
use rustix::process::Signal;

use super::content::Content;
use super::generators::{Fetch, Generator, Http, Lengths};
use super::results::TimeLinePoint;
use super::rig::{Rig, Tuning};
use super::servers::{self, Folders, Program, Serves, Spec};
use crate::shell::{Context as _, Failure, Result};

/// The connection is one of so many, so that the server has others to serve
/// meanwhile.
const CONNECTIONS: u32 = 16;

const LENGTHS: Lengths = Lengths {
    warm_up: 0.0,
    measured: 0.3,
};

/// How much of the connection is shown, from its first segment.
const SHOWN_US: f64 = 2_000.0;
const MOST_POINTS: usize = 2_000;

const HTTP: u16 = 80;

/// Fetches large files, and returns what one connection has done.
pub(crate) fn record(content: &Content, folders: &Folders) -> Result<Vec<TimeLinePoint>> {
    let rig = Rig::build(Tuning::default())?;
    let file = content.folder().join("time-line.pcap");
    let spec = Spec {
        program: Program::Sandstorm { mode: "memcopy" },
        serves: Serves::Files,
        arguments: vec!["--pcap".into(), file.display().to_string()],
        connections: CONNECTIONS,
    };
    let started = servers::start(&spec, &rig, content, folders)?;
    rig.pin_receivers()?;
    let generator = Generator::Http(Http::closed(Fetch::File("1m"), CONNECTIONS));
    generator.run(&rig, content, &folders.programs, LENGTHS, || ())?;
    // Its capture is whole when it has ended.
    started.server.stop(Signal::TERM)?;
    read(&file)
}

/// A TCP segment of a capture.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    us: f64,
    /// From the server; the client's address and port tell connections apart.
    sent: bool,
    client: ([u8; 4], u16),
    seq: u32,
    ack: u32,
    len: u32,
}

fn read(path: &Path) -> Result<Vec<TimeLinePoint>> {
    let what = || format!("reading {}", path.display());
    let file = File::open(path).context(what())?;
    let mut capture = PcapReader::new(BufReader::new(file)).context(what())?;
    let mut segments = Vec::new();
    while let Some(packet) = capture.next_packet() {
        let packet = packet.context(what())?;
        let us = packet.timestamp.as_nanos() as f64 / 1e3;
        segments.extend(parse(&packet.data, us));
    }
    let points = busiest(&segments);
    if points.is_empty() {
        return Err(Failure::new(format!(
            "{} holds no connection that was busy",
            path.display()
        )));
    }
    Ok(points)
}

/// The TCP segment in an Ethernet frame with IPv4.
fn parse(frame: &[u8], us: f64) -> Option<Segment> {
    const ETHERNET: usize = 14;
    let ip = frame.get(ETHERNET..)?;
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let is_tcp = frame.get(12..14)? == [0x08, 0x00] && ip[0] >> 4 == 4 && *ip.get(9)? == 6;
    let total = usize::from(u16::from_be_bytes(*ip.get(2..)?.first_chunk()?));
    let tcp = ip.get(header..total).filter(|_| is_tcp)?;
    let field16 = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
    let field32 = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
    let data = usize::from(tcp.get(12)? >> 4) * 4;
    let sent = field16(0)? == HTTP;
    let address = if sent { 16 } else { 12 };
    Some(Segment {
        us,
        sent,
        client: (
            *ip.get(address..)?.first_chunk()?,
            field16(if sent { 2 } else { 0 })?,
        ),
        seq: field32(4)?,
        ack: field32(8)?,
        len: tcp.len().checked_sub(data)? as u32,
    })
}

/// The beginning of the connection that has sent the most, as points.
fn busiest(segments: &[Segment]) -> Vec<TimeLinePoint> {
    let mut sent = std::collections::BTreeMap::new();
    for segment in segments.iter().filter(|segment| segment.sent) {
        *sent.entry(segment.client).or_insert(0_u64) += u64::from(segment.len);
    }
    let Some((&client, _)) = sent.iter().max_by_key(|(_, bytes)| **bytes) else {
        return Vec::new();
    };
    let of_client = || segments.iter().filter(|segment| segment.client == client);
    let (Some(first), Some(base)) = (
        of_client().next().map(|segment| segment.us),
        of_client()
            .find(|segment| segment.sent)
            .map(|segment| segment.seq),
    ) else {
        return Vec::new();
    };
    of_client()
        // A SYN acknowledges nothing yet.
        .filter(|segment| segment.sent || segment.ack != 0)
        .map(|segment| TimeLinePoint {
            us: segment.us - first,
            sent: segment.sent,
            seq: if segment.sent {
                segment.seq.wrapping_add(segment.len).wrapping_sub(base)
            } else {
                segment.ack.wrapping_sub(base)
            },
            len: segment.len,
        })
        .take_while(|point| point.us <= SHOWN_US)
        .take(MOST_POINTS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sent: bool, client: u16, seq: u32, ack: u32, len: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((40 + len).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        let ends = [[10, 0, 0, 2], [10, 0, 0, 1]];
        let ports = [HTTP, client];
        let order = if sent { [0, 1] } else { [1, 0] };
        frame.extend(order.iter().flat_map(|&end| ends[end]));
        frame.extend(order.iter().flat_map(|&end| ports[end].to_be_bytes()));
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame.extend(std::iter::repeat_n(1, usize::from(len)));
        frame
    }

    #[test]
    fn a_segment_is_read_whatever_its_padding() {
        let mut bytes = frame(true, 5_000, 7, 9, 3);
        bytes.extend([0; 9]);
        let segment = parse(&bytes, 1.0).unwrap();
        assert_eq!(segment.client, ([10, 0, 0, 1], 5_000));
        assert_eq!((segment.seq, segment.ack, segment.len), (7, 9, 3));
        for len in 0..57 {
            assert_eq!(parse(&bytes[..len], 1.0), None, "{len}");
        }
    }

    #[test]
    fn the_busiest_connection_is_relative_to_its_beginning() {
        let base = u32::MAX - 10;
        let frames = [
            (0.0, frame(false, 1, 5, 0, 0)),
            (10.0, frame(true, 1, base, 6, 0)),
            (20.0, frame(true, 2, 9, 6, 100)),
            (30.0, frame(true, 1, base.wrapping_add(1), 6, 1_000)),
            (40.0, frame(false, 1, 6, base.wrapping_add(1_001), 0)),
            (9_999.0, frame(true, 1, base.wrapping_add(1_001), 6, 1_000)),
        ];
        let segments: Vec<Segment> = frames
            .iter()
            .filter_map(|(us, frame)| parse(frame, *us))
            .collect();
        let points = busiest(&segments);
        let shown: Vec<_> = points
            .iter()
            .map(|p| (p.us, p.sent, p.seq, p.len))
            .collect();
        assert_eq!(
            shown,
            [
                (10.0, true, 0, 0),
                (30.0, true, 1_001, 1_000),
                (40.0, false, 1_001, 0)
            ]
        );
        assert!(busiest(&[]).is_empty());
    }
}
