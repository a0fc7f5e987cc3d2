//! A trace from its start to its end, on the control thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Bytes, Frame};
use hyper::header::HeaderValue;
use pcap_file::PcapError;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

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
/// Maximum time in which the client of a trace may take nothing. The trace then ends. It is also the time
/// in which a client can take the rest of a trace that has ended.
pub(crate) const STALL: Duration = Duration::from_mins(1);
/// Maximum length of a packet in a capture file that all readers accept.
pub(crate) const MAX_SNAP: u32 = 262_144;
/// Minimum length of a packet in a capture: an Ethernet header.
pub(crate) const MIN_SNAP: u32 = 14;
/// Maximum time of a trace, in seconds: a week.
pub(crate) const MAX_SECONDS: u32 = 7 * 24 * 3_600;

/// The field in front of a trace, with the number by which the trace can be stopped.
pub(crate) const NUMBER: &str = "trace-number";
/// The fields after a trace: the numbers of its packets and of missing packets.
pub(crate) const PACKETS: &str = "packets";
pub(crate) const DROPPED: &str = "dropped";
/// The field behind a trace that was cut short because its client took nothing. It has the time in seconds.
pub(crate) const STALLED: &str = "stalled";
/// The names of all these fields.
pub(crate) const TRAILERS: &str = "packets, dropped, stalled";

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
    /// Number of packets that are missing, because they came faster than they were taken.
    pub dropped: u64,
    /// Whether the trace was cut short, because nothing took its packets for a minute.
    pub stalled: bool,
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
                if summary.stalled {
                    trailers.insert(STALLED, HeaderValue::from(STALL.as_secs()));
                }
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
    /// Number of traces that have begun, and so the number of the last one.
    begun: AtomicU64,
    /// All traces up to this number must end.
    stopped: watch::Sender<u64>,
    /// Maximum time in which a client may take nothing.
    stall: Duration,
}

/// The place of the only trace, with the number of the trace that has it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Tracer {
    pub(crate) fn new(program: &'static str, published: Arc<[Published]>) -> Self {
        Self {
            program,
            published,
            place: Arc::new(Semaphore::new(1)),
            begun: AtomicU64::new(0),
            stopped: watch::Sender::new(0),
            stall: STALL,
        }
    }

    /// Takes the place of the only trace.
    ///
    /// # Errors
    /// If a trace is running, or if the server has ended.
    pub(crate) fn begin(&self) -> Result<Place, TryAcquireError> {
        let permit = Arc::clone(&self.place).try_acquire_owned()?;
        Ok(Place {
            number: self.begun.fetch_add(1, Ordering::SeqCst) + 1,
            _permit: permit,
        })
    }

    /// Ends the trace that is running, if there is one, and refuses others.
    pub(crate) fn end(&self) {
        self.place.close();
        self.stopped.send_replace(u64::MAX);
    }

    /// Ends the trace with this number, or else the one that is running, as if its time were over. Returns
    /// false if it is not running.
    pub(crate) fn stop(&self, number: Option<u64>) -> bool {
        let last = self.begun.load(Ordering::SeqCst);
        let is_running = self.place.available_permits() == 0 && number.is_none_or(|it| it == last);
        if is_running {
            self.stopped
                .send_modify(|stopped| *stopped = last.max(*stopped));
        }
        is_running
    }

    /// Sends a trace to `out`, until it ends or the client has gone away. It also ends after a time in
    /// which the client has taken nothing. `out` needs room for three parts. `place` is the result of
    /// [`begin`](Self::begin).
    pub(crate) async fn trace<T: From<TracePart>>(
        &self,
        request: TraceRequest,
        place: Place,
        out: mpsc::Sender<T>,
    ) {
        // A client that takes nothing must not keep the trace from its end.
        let Some(ending) = Ending::reserve(&out) else {
            return;
        };
        let mut readers = self.start(&request).await;
        let workers = readers.len() as u32;
        // Writing to memory does not fail.
        let Ok(mut file) = Pcapng::new(self.program, workers, request.snap) else {
            return;
        };
        let copied = self.copy_until_end(&request, place.number, &mut readers, &mut file, &out);
        let has_ended = copied.await;
        let mut dropped = self.stop_workers(workers).await;
        // The next trace has rings of its own, so it need not wait for this client.
        drop(place);
        if has_ended {
            let rest = async {
                while send(&mut file, &out).await.is_ok()
                    && copy(&mut readers, &mut file, request.count).is_some()
                {}
            };
            // A client that reads slowly does not keep the rings for longer.
            let _ = timeout(self.stall, rest).await;
        }
        if out.is_closed() {
            return;
        }
        let left = count_left(&mut readers, request.count - file.packets(), &mut dropped);
        let stalled = !has_ended || left > 0;
        if stalled {
            tracing::warn!(
                "the trace of {} is cut short, because its client has let the server wait for {} s",
                request.peer,
                self.stall.as_secs()
            );
        }
        ending.send(file, &dropped, stalled);
    }

    /// Moves packets from the rings to the file and to `out`, until the trace ends. Returns false if it
    /// ends earlier because of its client.
    async fn copy_until_end<T: From<TracePart>>(
        &self,
        request: &TraceRequest,
        number: u64,
        readers: &mut [CaptureReader],
        file: &mut Pcapng,
        out: &mpsc::Sender<T>,
    ) -> bool {
        let mut stopped = self.stopped.subscribe();
        let over = async {
            tokio::select! {
                () = sleep(request.time.unwrap_or(Duration::MAX)) => {}
                _ = stopped.wait_for(|stopped| *stopped >= number) => {}
            }
        };
        tokio::pin!(over);
        loop {
            let is_empty = copy(readers, file, request.count).is_none();
            if file.packets() >= request.count {
                return true;
            }
            // The trace also ends while there are always packets.
            tokio::select! {
                biased;
                () = &mut over => return true,
                sent = timeout(self.stall, send(file, out)) => match sent {
                    Ok(Ok(())) => {}
                    _ => return false,
                },
            }
            if !is_empty {
                continue;
            }
            tokio::select! {
                () = sleep(INTERVAL) => {}
                () = &mut over => return true,
                () = out.closed() => return false,
            }
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

/// The room for the end of a trace in the client's channel: the last bytes, and the numbers.
struct Ending<T>([mpsc::OwnedPermit<T>; 2]);

impl<T: From<TracePart>> Ending<T> {
    /// Takes the room before the trace needs it. Returns `None` if the client has gone away.
    fn reserve(out: &mpsc::Sender<T>) -> Option<Self> {
        let one = || out.clone().try_reserve_owned().ok();
        Some(Self([one()?, one()?]))
    }

    /// Sends the bytes that the file still has, the end of the file, and the numbers of packets. Does not
    /// wait for the client.
    fn send(self, mut file: Pcapng, dropped: &[u64], stalled: bool) {
        for (worker, dropped) in dropped.iter().enumerate() {
            let _: Result<(), PcapError> = file.dropped(worker as u32, *dropped);
        }
        let summary = TraceSummary {
            packets: file.packets(),
            dropped: dropped.iter().sum(),
            stalled,
        };
        let Self([bytes, end]) = self;
        bytes.send(TracePart::Bytes(file.take()).into());
        end.send(TracePart::End(summary).into());
    }
}

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

/// Counts the packets that are still in the rings, and at most `wanted`, as missing ones of their workers.
/// Returns their number.
fn count_left(readers: &mut [CaptureReader], wanted: u64, dropped: &mut [u64]) -> u64 {
    let mut left = 0;
    for (reader, dropped) in readers.iter_mut().zip(dropped) {
        while left < wanted && reader.take().is_some() {
            *dropped += 1;
            left += 1;
        }
    }
    left
}

/// Sends the bytes that the file has. They stay in the file if this future is dropped.
///
/// # Errors
/// If the client has gone away.
async fn send<T: From<TracePart>>(
    file: &mut Pcapng,
    out: &mpsc::Sender<T>,
) -> Result<(), SendError<()>> {
    if file.len() > 0 {
        let room = out.reserve().await?;
        room.send(TracePart::Bytes(file.take()).into());
    }
    Ok(())
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
        assert!(!tracer.stop(None), "none is running");
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
                    has_stopped |= tracer.stop(None);
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

    /// How a trace ends whose client takes nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        Stopped,
        OutOfTime,
        Stalled,
        /// It has all its packets.
        Counted,
        /// It is stopped, and its client reads slowly from then on.
        Slow,
    }

    /// Number of packets of the only worker.
    const PACKETS_OF_STALLED: u64 = 100;
    /// Number of packets that end a trace. The last ones do not fit in the channel of its client.
    const COUNTED: u64 = 14;

    /// Answers the questions of one trace whose packets do not fit into its ring.
    fn flood(mailbox: &mut Mailbox<Question>, current: &mut Option<Box<Capture>>) {
        mailbox.take_all(|question| match question {
            Question::StartTrace(mut capture, reply) => {
                reply.send(()).unwrap();
                let mut packet = vec![0; 60_000];
                packet[12] = 8;
                packet[30..34].copy_from_slice(&[192, 0, 2, 7]);
                for _ in 0..PACKETS_OF_STALLED {
                    capture.copy(Direction::Sent, &[&packet]);
                }
                *current = Some(capture);
            }
            Question::StopTrace(reply) => drop(reply.send(current.take())),
            Question::Walk(..) => unreachable!("nobody asks"),
        });
    }

    /// Runs a trace whose client reads only after the next trace could begin. Returns the number of bytes
    /// and the trailers.
    async fn stalled_trace(how: End) -> (usize, HeaderMap) {
        let published: Arc<[Published]> = Published::for_workers(1).into();
        let mut mailbox = published[0].open_questions(&Bell::new().unwrap());
        let mut current = None;
        let stall = match how {
            End::Stalled | End::Counted | End::Slow => Duration::from_millis(300),
            End::Stopped | End::OutOfTime => Duration::from_mins(5),
        };
        let tracer = Tracer {
            stall,
            ..Tracer::new("test", published)
        };
        let mut request = TraceRequest::of("192.0.2.7".parse().unwrap());
        if how == End::OutOfTime {
            request = request.with_time(Duration::from_millis(50));
        }
        if how == End::Counted {
            request = request.with_count(COUNTED);
        }
        let place = tracer.begin().unwrap();
        let (out, mut frames) = mpsc::channel::<Frame<Bytes>>(8);
        let working = async {
            loop {
                flood(&mut mailbox, &mut current);
                tokio::task::yield_now().await;
            }
        };
        let reading = async {
            sleep(Duration::from_millis(20)).await;
            // A trace that has all its packets does not wait for its client.
            let waits = how != End::Counted;
            assert!(!waits || tracer.begin().is_err(), "the trace waits");
            if matches!(how, End::Stopped | End::Slow) {
                assert!(!tracer.stop(Some(2)), "this is another trace");
                assert!(tracer.begin().is_err());
                assert!(tracer.stop(Some(1)));
            }
            while tracer.place.available_permits() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            if matches!(how, End::Stalled | End::Counted) {
                // As the client reads on, it gets what was left out.
                sleep(Duration::from_millis(200)).await;
            }
            let (mut bytes, mut trailers) = (0, HeaderMap::new());
            while let Some(frame) = frames.recv().await {
                match frame.into_data() {
                    Ok(data) => bytes += data.len(),
                    Err(frame) => trailers = frame.into_trailers().unwrap(),
                }
                if how == End::Slow {
                    sleep(Duration::from_millis(60)).await;
                }
            }
            (bytes, trailers)
        };
        let ((), read) = tokio::select! {
            both = async { tokio::join!(tracer.trace(request, place, out), reading) } => both,
            () = working => unreachable!("it has no end"),
        };
        read
    }

    #[test]
    fn a_client_that_takes_nothing_does_not_keep_a_trace_from_its_end() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        for how in [
            End::Stopped,
            End::OutOfTime,
            End::Stalled,
            End::Counted,
            End::Slow,
        ] {
            let limit = Duration::from_secs(20);
            let read = runtime.block_on(async { timeout(limit, stalled_trace(how)).await });
            let (bytes, trailers) = read.unwrap_or_else(|_| panic!("no end: {how:?}"));
            let [packets, dropped] = [PACKETS, DROPPED].map(|name| {
                let number = trailers[name].to_str().unwrap();
                number.parse::<u64>().unwrap()
            });
            assert!(bytes as u64 > packets * 60_000);
            let is_short = trailers.contains_key(STALLED);
            assert_eq!(is_short, matches!(how, End::Stalled | End::Slow), "{how:?}");
            if how == End::Counted {
                assert_eq!(packets, COUNTED);
                continue;
            }
            assert_eq!(packets + dropped, PACKETS_OF_STALLED, "{how:?}");
            // A client that reads on in time gets all that the ring had.
            assert_eq!(packets < 40, is_short, "{how:?}: {packets}");
        }
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
