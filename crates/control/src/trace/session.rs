//! A trace from its start to its end, on the control thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Bytes, Frame};
use hyper::header::HeaderValue;
use pcap_file::PcapError;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::capture::{CaptureReader, capture};
use super::pcapng::Pcapng;
use crate::live::Published;
use crate::questions::Question;

/// Time between two looks into the rings.
const INTERVAL: Duration = Duration::from_millis(10);
/// Number of bytes that are sent to the client at once.
const CHUNK: usize = 64 << 10;
/// A worker that has not answered for this time gets no CPU time, or has ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of a packet in a capture file that all readers accept.
pub(crate) const MAX_SNAP: u32 = 262_144;
/// Minimum length of a packet in a capture: an Ethernet header.
pub(crate) const MIN_SNAP: u32 = 14;
/// Maximum time of a trace, in seconds: a week.
pub(crate) const MAX_SECONDS: u32 = 7 * 24 * 3_600;

/// The fields behind a trace: the number of its packets, and of those that are missing.
pub(crate) const PACKETS: &str = "packets";
pub(crate) const DROPPED: &str = "dropped";
/// The names of both.
pub(crate) const TRAILERS: &str = "packets, dropped";

/// What a trace should have: the packets of one client.
#[derive(Clone, Copy, Debug)]
pub struct TraceRequest {
    peer: IpAddr,
    count: u64,
    time: Option<Duration>,
    snap: u32,
}

impl TraceRequest {
    /// Asks for the packets from and to the client with this address, and for ARP packets about it. The
    /// trace has no limit of packets or time, and has whole packets.
    pub fn of(peer: IpAddr) -> Self {
        Self {
            peer,
            count: u64::MAX,
            time: None,
            snap: MAX_SNAP,
        }
    }

    /// Ends the trace after this number of packets. Zero counts as 1.
    #[must_use]
    pub fn with_count(self, packets: u64) -> Self {
        Self {
            count: packets.max(1),
            ..self
        }
    }

    /// Ends the trace after this time. A longer time than a week counts as a week.
    #[must_use]
    pub fn with_time(self, time: Duration) -> Self {
        let longest = Duration::from_secs(MAX_SECONDS.into());
        Self {
            time: Some(time.min(longest)),
            ..self
        }
    }

    /// Keeps at most this number of bytes of each packet. A number outside of the range from 14 to
    /// 262,144 counts as the nearest one in it.
    #[must_use]
    pub fn with_snap(self, bytes: u32) -> Self {
        Self {
            snap: bytes.clamp(MIN_SNAP, MAX_SNAP),
            ..self
        }
    }
}

/// The numbers of packets of a trace that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Number of packets in the capture.
    pub packets: u64,
    /// Number of packets that are missing, because they came too fast.
    pub dropped: u64,
}

/// A part of a trace.
pub(crate) enum TracePart {
    /// The next bytes of the capture.
    Bytes(Vec<u8>),
    /// The last part.
    End(TraceSummary),
}

/// Makes a part of the body of an answer, or the fields behind it.
impl From<TracePart> for Frame<Bytes> {
    fn from(part: TracePart) -> Self {
        match part {
            TracePart::Bytes(bytes) => Self::data(bytes.into()),
            TracePart::End(summary) => {
                let mut trailers = HeaderMap::new();
                trailers.insert(PACKETS, HeaderValue::from(summary.packets));
                trailers.insert(DROPPED, HeaderValue::from(summary.dropped));
                Self::trailers(trailers)
            }
        }
    }
}

/// The workers of a server, of which one client at a time gets a trace.
#[derive(Debug)]
pub(crate) struct Tracer {
    program: &'static str,
    published: Arc<[Published]>,
    place: Arc<Semaphore>,
    /// Whether the trace that has the place must end.
    is_stopped: AtomicBool,
    stop: Notify,
}

impl Tracer {
    pub(crate) fn new(program: &'static str, published: Arc<[Published]>) -> Self {
        Self {
            program,
            published,
            place: Arc::new(Semaphore::new(1)),
            is_stopped: AtomicBool::new(false),
            stop: Notify::new(),
        }
    }

    /// Takes the place of the only trace.
    ///
    /// # Errors
    /// If a trace is running, or if the server has ended.
    pub(crate) fn begin(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        let place = Arc::clone(&self.place).try_acquire_owned()?;
        self.is_stopped.store(false, Ordering::SeqCst);
        Ok(place)
    }

    /// Ends the trace that is running, if there is one, and refuses others.
    pub(crate) fn end(&self) {
        self.place.close();
        self.stop();
    }

    /// Ends the trace that is running, as if its time were over. Returns false if none is running.
    pub(crate) fn stop(&self) -> bool {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.stop.notify_waiters();
        self.place.available_permits() == 0
    }

    /// Sends a trace to `out`, until it ends or the client has gone away. `place` is the result of
    /// [`begin`](Self::begin).
    pub(crate) async fn trace<T: From<TracePart>>(
        &self,
        request: TraceRequest,
        place: OwnedSemaphorePermit,
        out: mpsc::Sender<T>,
    ) {
        let stopped = self.stop.notified();
        tokio::pin!(stopped);
        stopped.as_mut().enable();
        let mut readers = self.start(&request).await;
        let workers = readers.len() as u32;
        let end = request.time.map(|time| Instant::now() + time);
        // Writing to memory does not fail.
        if let Ok(mut file) = Pcapng::new(self.program, workers, request.snap) {
            // The trace, or the server, may have been stopped before this future waited for that.
            let is_stopped = || self.is_stopped.load(Ordering::SeqCst) || self.place.is_closed();
            // Its time also ends while there are always packets.
            let is_over = || is_stopped() || end.is_some_and(|end| Instant::now() >= end);
            while file.packets() < request.count && !is_over() {
                let is_empty = copy(&mut readers, &mut file, request.count).is_none();
                if send(&mut file, &out).await.is_err() {
                    break;
                }
                if !is_empty {
                    continue;
                }
                let next = Instant::now() + INTERVAL;
                let wake = end.map_or(next, |end| end.min(next));
                tokio::select! {
                    () = sleep_until(wake) => {}
                    () = &mut stopped => break,
                    () = out.closed() => break,
                }
            }
            let dropped = self.stop_workers(workers).await;
            while copy(&mut readers, &mut file, request.count).is_some() {
                if send(&mut file, &out).await.is_err() {
                    break;
                }
            }
            // Whoever gets the end may begin the next trace at once.
            drop(place);
            let _ = finish(file, &dropped, &out).await;
        }
    }

    /// Asks all workers to copy packets, and waits until they do. Returns the other ends of their
    /// rings.
    async fn start(&self, request: &TraceRequest) -> Vec<CaptureReader> {
        let workers = self.published.iter().map(|worker| {
            let (capture, reader) = capture(request.peer, request.snap as usize);
            let (reply, started) = oneshot::channel();
            // A worker that has ended copies nothing.
            drop(worker.ask(Question::StartTrace(capture.into(), reply)));
            (reader, started)
        });
        let (readers, started): (Vec<_>, Vec<_>) = workers.unzip();
        for started in started {
            drop(timeout(PATIENCE, started).await);
        }
        readers
    }

    /// Asks all workers to copy no more packets. Returns how many each of them has dropped.
    async fn stop_workers(&self, workers: u32) -> Vec<u64> {
        let mut dropped = vec![0; workers as usize];
        for (worker, dropped) in self.published.iter().zip(&mut dropped) {
            let (reply, answer) = oneshot::channel();
            if worker.ask(Question::StopTrace(reply)).is_ok()
                && let Ok(Ok(Some(capture))) = timeout(PATIENCE, answer).await
            {
                *dropped = capture.dropped();
            }
        }
        dropped
    }
}

/// The client of a trace has gone away.
#[derive(Debug)]
struct Gone;

/// Moves packets from the rings to the file, until it has a chunk of bytes or `count` packets.
/// Returns `None` if all rings are empty.
fn copy(readers: &mut [CaptureReader], file: &mut Pcapng, count: u64) -> Option<()> {
    let mut copied = None;
    for (worker, reader) in readers.iter_mut().enumerate() {
        while file.len() < CHUNK
            && file.packets() < count
            && let Some(packet) = reader.take()
        {
            // There is an interface for each worker.
            let _: Result<(), PcapError> = file.packet(worker as u32, &packet);
            copied = Some(());
        }
    }
    copied
}

/// Sends the bytes that the file has.
async fn send<T: From<TracePart>>(file: &mut Pcapng, out: &mpsc::Sender<T>) -> Result<(), Gone> {
    if file.len() == 0 {
        return Ok(());
    }
    let part = TracePart::Bytes(file.take());
    out.send(part.into()).await.map_err(|_| Gone)
}

/// Sends the end of the file, and the numbers of packets.
async fn finish<T: From<TracePart>>(
    mut file: Pcapng,
    dropped: &[u64],
    out: &mpsc::Sender<T>,
) -> Result<(), Gone> {
    for (worker, dropped) in dropped.iter().enumerate() {
        let _: Result<(), PcapError> = file.dropped(worker as u32, *dropped);
    }
    send(&mut file, out).await?;
    let summary = TraceSummary {
        packets: file.packets(),
        dropped: dropped.iter().sum(),
    };
    let part = TracePart::End(summary);
    out.send(part.into()).await.map_err(|_| Gone)
}

#[cfg(test)]
mod tests {
    use nmio::{Bell, Mailbox};
    use tokio::runtime::Builder;

    use super::*;
    use crate::trace::capture::{Capture, Direction};

    /// Two workers, which copy two packets each as soon as they are asked to.
    fn work(mailboxes: &mut [Mailbox<Question>], captures: &mut [Option<Box<Capture>>]) {
        for (mailbox, current) in mailboxes.iter_mut().zip(captures) {
            mailbox.take_all(|question| match question {
                Question::StartTrace(mut capture, reply) => {
                    reply.send(()).unwrap();
                    let mut packet = [0; 60];
                    packet[12] = 8;
                    packet[30..34].copy_from_slice(&[192, 0, 2, 7]);
                    capture.copy(Direction::Received, &[&packet]);
                    capture.copy(Direction::Sent, &[&packet]);
                    *current = Some(capture);
                }
                Question::StopTrace(reply) => drop(reply.send(current.take())),
                Question::Walk(..) => unreachable!("nobody asks"),
            });
        }
    }

    /// Runs a trace while `also` runs. Returns the number of bytes and the trailers.
    async fn trace(count: u64, time: Option<Duration>, stops: bool) -> (usize, Option<HeaderMap>) {
        let published: Arc<[Published]> = Published::for_workers(2).into();
        let open = |one: &Published| one.open_questions(&Bell::new().unwrap());
        let mut mailboxes: Vec<_> = published.iter().map(open).collect();
        let mut captures = vec![None, None];
        let tracer = Tracer::new("test", Arc::clone(&published));
        assert!(!tracer.stop(), "none is running");
        let place = tracer.begin().unwrap();
        assert!(tracer.begin().is_err(), "one at a time");
        let request = TraceRequest {
            peer: "192.0.2.7".parse().unwrap(),
            count,
            time,
            snap: MAX_SNAP,
        };
        let (out, mut frames) = mpsc::channel::<Frame<Bytes>>(8);
        let (mut bytes, mut trailers, mut has_stopped) = (0, None, false);
        let reading = async {
            while let Some(frame) = frames.recv().await {
                match frame.into_data() {
                    Ok(data) => bytes += data.len(),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
                if stops && bytes > 0 {
                    has_stopped |= tracer.stop();
                }
            }
        };
        let working = async {
            loop {
                work(&mut mailboxes, &mut captures);
                tokio::task::yield_now().await;
            }
        };
        let tracing = async { tokio::join!(tracer.trace(request, place, out), reading) };
        tokio::select! {
            _ = tracing => {}
            () = working => {}
        }
        assert_eq!(has_stopped, stops);
        assert!(tracer.begin().is_ok(), "the place is free again");
        assert!(captures.iter().all(Option::is_none), "both have stopped");
        (bytes, trailers)
    }

    fn packets(count: u64, time: Option<Duration>, stops: bool) -> u64 {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let (bytes, trailers) = runtime.block_on(trace(count, time, stops));
        let trailers = trailers.unwrap();
        assert_eq!(trailers[DROPPED], "0");
        let packets = trailers[PACKETS].to_str().unwrap().parse().unwrap();
        assert!(bytes > 60 * packets as usize);
        packets
    }

    #[test]
    fn a_trace_ends_with_its_number_of_packets() {
        assert_eq!(packets(3, None, false), 3);
        assert_eq!(packets(4, None, false), 4);
    }

    #[test]
    fn a_trace_ends_with_its_time_or_when_it_is_stopped() {
        let soon = Some(Duration::from_millis(30));
        assert_eq!(packets(u64::MAX, soon, false), 4);
        assert_eq!(packets(u64::MAX, None, true), 4);
    }

    #[test]
    fn a_client_that_goes_away_ends_the_trace() {
        let published: Arc<[Published]> = Published::for_workers(0).into();
        let tracer = Tracer::new("test", published);
        let place = tracer.begin().unwrap();
        let request = TraceRequest {
            peer: "192.0.2.7".parse().unwrap(),
            count: u64::MAX,
            time: None,
            snap: 96,
        };
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let (out, frames) = mpsc::channel::<Frame<Bytes>>(8);
        drop(frames);
        runtime.block_on(tracer.trace(request, place, out));
        assert!(tracer.begin().is_ok());
    }
}
