//! Tests of the list of connections and of traces.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};

use pcap_file::pcapng::{Block, PcapNgReader};

use super::echo::{connect, expect_echo, start_echo};
use super::*;
use crate::{ConnectionFilter, ListSummary, TraceRequest, TraceSummary};

/// Starts an echo server on a tap device, with some connections of this host.
fn start_with(device: &str, connections: usize) -> (Server, Vec<TcpStream>) {
    let server = serving(start_echo(ServeArgs::on(device.parse().unwrap())));
    let address = server.listening().addresses[0];
    let connected = (0..connections).map(|_| {
        let mut stream = connect(address);
        expect_echo(&mut stream, "a text");
        stream
    });
    let streams = connected.collect();
    (server, streams)
}

/// Waits for an answer, without a runtime.
fn answered<T, E>(answer: Answer<T, E>) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    in_time("an answer", || answer.wait())
}

fn of(stream: &TcpStream) -> TraceRequest {
    TraceRequest::of(stream.local_addr().unwrap().ip())
}

/// Returns the lengths of the packets in a capture.
fn packets(capture: &[u8]) -> Vec<usize> {
    let mut reader = PcapNgReader::new(capture).unwrap();
    let mut lengths = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            lengths.push(packet.data.len());
        }
    }
    lengths
}

#[test]
fn a_list_has_the_connections_that_match() {
    if !enter_namespace() {
        return;
    }
    let (server, mut streams) = start_with("tap:list", 100);
    let handle = server.handle();
    let all = answered(handle.connections(ConnectionFilter::default(), 1_000)).unwrap();
    let summary = ListSummary {
        connections: 100,
        matching: 100,
        listed: 100,
        silent_workers: vec![],
    };
    assert_eq!(all.summary, summary);
    let mut peers: Vec<_> = all.connections.iter().map(|one| one.peer).collect();
    let mut expected: Vec<_> = streams
        .iter()
        .map(|one| one.local_addr().unwrap())
        .collect();
    peers.sort_unstable();
    expected.sort_unstable();
    assert_eq!(peers, expected);
    let first = &all.connections[0];
    assert_eq!((first.worker, &*first.program), (0, "embed-echo"));
    assert_eq!((&*first.state, first.bytes_received), ("established", 6));

    let port = streams[3].local_addr().unwrap().port();
    let one = ConnectionFilter::default().with_port(port);
    let found = block_on("a list", handle.connections(one, 1_000)).unwrap();
    let ports: Vec<_> = found
        .connections
        .iter()
        .map(|one| one.peer.port())
        .collect();
    assert_eq!(ports, [port]);
    let network = "203.0.113.0/24".parse().unwrap();
    let strangers = ConnectionFilter::default().with_peer(network);
    let none = answered(handle.connections(strangers, 1_000)).unwrap();
    assert!(none.connections.is_empty());
    assert_eq!((none.summary.connections, none.summary.matching), (100, 0));

    let established = ConnectionFilter::default().with_state(tcpip::State::Established);
    let cut = answered(handle.connections(established, 7)).unwrap();
    assert_eq!((cut.connections.len(), cut.summary.matching), (7, 100));
    drop(handle.connections(ConnectionFilter::default(), 1_000));
    streams.clear();
    handle.stop_at_once();
    ended(server).unwrap();
    let late = answered(handle.connections(ConnectionFilter::default(), 1_000)).unwrap();
    assert_eq!(late.summary.silent_workers, [0]);
}

/// Sends texts to the server until `answer` is there, because a trace needs a moment to begin.
fn answered_meanwhile<T, E>(answer: Answer<T, E>, stream: &mut TcpStream) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let waiting = thread::spawn(|| answer.wait());
    eventually("an answer", || {
        expect_echo(stream, "a text");
        waiting.is_finished()
    });
    waiting.join().unwrap()
}

#[test]
fn a_trace_has_the_packets_of_its_client() {
    if !enter_namespace() {
        return;
    }
    let (server, mut streams) = start_with("tap:trace", 1);
    let (handle, stream) = (server.handle(), &mut streams[0]);
    assert!(!handle.stop_trace(), "no trace is running");
    let trace = handle.trace(of(stream).with_count(4).with_snap(60), Vec::new());
    let other = answered(handle.trace(of(stream), Vec::new()));
    assert!(matches!(other, Err(TraceError::Running)), "{other:?}");
    let (summary, capture) = answered_meanwhile(trace, stream).unwrap();
    let expected = TraceSummary {
        packets: 4,
        dropped: 0,
        stalled: false,
    };
    assert_eq!(summary, expected);
    assert_eq!(packets(&capture), [60; 4]);
    // A stranger's trace has none of these packets, and ends with its time.
    let stranger = TraceRequest::of("203.0.113.7".parse().unwrap());
    let brief = stranger.with_time(Duration::from_millis(100));
    let (summary, capture) = answered_meanwhile(handle.trace(brief, Vec::new()), stream).unwrap();
    assert_eq!(summary, TraceSummary::default());
    assert!(packets(&capture).is_empty() && !capture.is_empty());
    handle.stop_at_once();
    ended(server).unwrap();
}

#[test]
fn a_trace_ends_when_it_is_asked_to_and_with_the_server() {
    if !enter_namespace() {
        return;
    }
    let (server, streams) = start_with("tap:traceend", 1);
    let handle = server.handle();
    // It may not have begun when it is asked to end.
    for delay in [0, 50] {
        let trace = handle.trace(of(&streams[0]), Vec::new());
        thread::sleep(Duration::from_millis(delay));
        assert!(handle.stop_trace());
        answered(trace).unwrap();
    }
    // A dropped future ends its trace a moment later.
    drop(handle.trace(of(&streams[0]), Vec::new()));
    eventually("the end of a trace", || !handle.stop_trace());
    let trace = handle.trace(of(&streams[0]), Vec::new());
    handle.stop_at_once();
    ended(server).unwrap();
    let (_, capture) = block_on("the end of the trace", trace).unwrap();
    packets(&capture);
    let late = answered(handle.trace(of(&streams[0]), Vec::new()));
    assert!(matches!(late, Err(TraceError::Ended)), "{late:?}");
}

/// Fails or panics when it is written to.
struct Broken {
    panics: bool,
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        assert!(!self.panics, "as the test asks for");
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks when it is written to, until the other end of the channel is dropped.
struct Blocking(Receiver<()>);

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_ends_although_its_write_blocks() {
    if !enter_namespace() {
        return;
    }
    let (server, streams) = start_with("tap:blocking", 1);
    let handle = server.handle();
    let brief = || of(&streams[0]).with_time(Duration::from_millis(20));
    let (blocks, blocked) = channel();
    let trace = handle.trace(of(&streams[0]), Blocking(blocked));
    assert!(handle.stop_trace());
    eventually("another trace", || {
        let other = answered(handle.trace(brief(), Vec::new()));
        !matches!(other, Err(TraceError::Running))
    });
    drop(blocks);
    let (summary, _) = answered(trace).unwrap();
    assert!(!summary.stalled);
    handle.stop_at_once();
    ended(server).unwrap();
}

#[test]
fn a_trace_that_cannot_be_written_makes_room_for_others() {
    if !enter_namespace() {
        return;
    }
    let (server, streams) = start_with("tap:broken", 1);
    let handle = server.handle();
    for panics in [false, true] {
        let outcome = answered(handle.trace(of(&streams[0]), Broken { panics }));
        match outcome.map(|_| ()) {
            Err(TraceError::Write(error)) if !panics => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            }
            Err(TraceError::Thread(_)) if panics => {}
            other => panic!("{other:?}"),
        }
        eventually("the end of the trace", || !handle.stop_trace());
    }
    let trace = handle.trace(
        of(&streams[0]).with_time(Duration::from_millis(20)),
        Vec::new(),
    );
    answered(trace).unwrap();
    handle.stop_at_once();
    ended(server).unwrap();
}
