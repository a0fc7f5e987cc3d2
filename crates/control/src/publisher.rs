//! Wraps a worker's server to publish its counts while it serves, and to answer questions.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use ip::{Host, Server, Transports as _};
use nmio::{Batch, Drain, Frame, Handler, Instant, Mailbox, Port, Stop, Times};

use crate::follower::{Attachment, NetworkChange, Renewal};
use crate::live::{Published, WorkerSnapshot};
use crate::program::Program;
use crate::questions::Question;
use crate::trace::port::Traced;

/// Minimum time between two snapshots.
const PERIOD: Duration = Duration::from_millis(100);
/// Time until the next attempt if a reader holds the lock of the snapshot.
const RETRY: Duration = Duration::from_millis(1);
/// Number of table slots whose connections one pass of the event loop visits.
const SLOTS: u32 = 64;

/// A walk through all connections after a change of the addresses.
struct RenewalWalk {
    /// The next table slots.
    slots: Range<u32>,
    /// Whether connections to removed addresses are reset.
    resets: bool,
}

impl RenewalWalk {
    fn begin(resets: bool) -> Self {
        Self {
            slots: 0..SLOTS,
            resets,
        }
    }

    /// Returns the walk through the next slots.
    fn next(self) -> Self {
        let end = self.slots.end;
        Self {
            slots: end..end.saturating_add(SLOTS),
            ..self
        }
    }
}

/// Makes the host answer for the station. Begins a walk if the connections need a new MAC address.
fn renew(host: &mut Host, walk: &mut Option<RenewalWalk>, renewal: Renewal, port: &mut impl Port) {
    let Renewal { station, announces } = renewal;
    if announces {
        station.announce(port);
    }
    if station.mac() != host.station().mac() {
        // A walk that was under way begins anew.
        *walk = Some(RenewalWalk::begin(
            walk.take().is_some_and(|walk| walk.resets),
        ));
    }
    host.set_station(station);
}

/// A server that publishes its counts between two batches. The usual cost is one comparison per
/// batch.
pub(crate) struct Publisher<'a, G: Program, P: Port> {
    program: &'a G,
    server: Server<G::Transports<P>>,
    published: &'a Published,
    questions: Mailbox<Question>,
    next: Instant,
    batch_times: Times,
    network: Mailbox<NetworkChange>,
    /// Why the worker cannot go on, if a new queue could not be attached.
    failed: Option<io::Error>,
    /// Stops all workers.
    stop: &'a Stop,
    /// The walk that is under way, if there is one.
    walk: Option<RenewalWalk>,
}

impl<'a, G: Program, P: Port> Publisher<'a, G, Traced<P>> {
    /// Creates the wrapper and publishes the first counts, so that each ready worker has a
    /// snapshot. The bell of `questions` must be the server's.
    pub(crate) fn new(
        program: &'a G,
        server: Server<G::Transports<Traced<P>>>,
        port: &Traced<P>,
        published: &'a Published,
        (network, questions): (Mailbox<NetworkChange>, Mailbox<Question>),
        stop: &'a Stop,
    ) -> Self {
        let publisher = Self {
            program,
            server,
            published,
            questions,
            next: Instant::ZERO + PERIOD,
            batch_times: Times::default(),
            network,
            failed: None,
            stop,
            walk: None,
        };
        publisher.count(port, &mut published.lock());
        publisher
    }

    /// Returns the error because of which the worker could not go on, if there is one.
    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// Publishes the last counts after the loop has ended, and returns them.
    pub(crate) fn finish(self, port: &Traced<P>) -> WorkerSnapshot {
        let mut slot = self.published.lock();
        self.count(port, &mut slot);
        slot.clone()
    }

    #[cold]
    fn publish(&mut self, port: &Traced<P>, now: Instant) {
        self.next = now + RETRY;
        if let Some(mut slot) = self.published.try_write() {
            self.count(port, &mut slot);
            self.next = now + PERIOD;
        }
    }

    /// Handles the messages about the network.
    fn follow_network(&mut self, port: &mut Traced<P>) {
        let (host, walk) = (&mut self.server.host, &mut self.walk);
        let (failed, stop) = (&mut self.failed, self.stop);
        self.network.take_all(|message| match message {
            NetworkChange::Station(renewal) => renew(host, walk, *renewal, port),
            NetworkChange::ResetStrangers => *walk = Some(RenewalWalk::begin(true)),
            NetworkChange::Attach(attachment) => {
                let Attachment { queue, renewal } = *attachment;
                if let Err(error) = port.attach(queue) {
                    *failed = Some(error);
                    return stop.at_once();
                }
                renew(host, walk, renewal, port);
            }
        });
    }

    /// Visits a few connections: they get the MAC address of the station, and those to removed addresses
    /// are reset.
    #[cold]
    fn step(&mut self, port: &mut Traced<P>, walk: RenewalWalk, now: Instant) {
        let Server {
            host, transports, ..
        } = &mut self.server;
        let station = host.station();
        let is_ours = |address: &IpAddr| station.addresses().contains(address);
        let slots = || walk.slots.clone();
        let mut more = transports.set_own_mac(slots(), station.mac());
        if walk.resets {
            more |= transports.reset_strangers(port, slots(), &is_ours, now);
        }
        self.walk = more.then(|| walk.next());
    }

    /// Answers the questions that wait.
    #[cold]
    #[inline(never)]
    fn answer(&mut self, port: &mut Traced<P>, now: Instant) {
        let (program, transports) = (self.program, &mut self.server.transports);
        self.questions.take_all(|question| match question {
            Question::Walk(mut walk, reply) => {
                walk.begin_slice();
                program.walk(transports, now, &mut walk);
                // The client may have gone away.
                drop(reply.send(walk));
            }
            Question::StartTrace(capture, reply) => {
                drop(port.set_capture(Some(capture)));
                let _ = reply.send(());
            }
            Question::StopTrace(reply) => drop(reply.send(port.set_capture(None))),
        });
    }

    fn count(&self, port: &Traced<P>, slot: &mut WorkerSnapshot) {
        take_snapshot(slot, self.program, &self.server, port, &self.batch_times);
    }
}

/// Replaces a snapshot by the counts of a worker's server and port. A worker does this ten times a
/// second by itself; a bench can count what it costs.
pub fn take_snapshot<G: Program, P: Port>(
    snapshot: &mut WorkerSnapshot,
    program: &G,
    server: &Server<G::Transports<P>>,
    port: &P,
    batch_times: &Times,
) {
    let Server {
        host, transports, ..
    } = server;
    let counted = program.counted(transports);
    let port = (port.counters(), port.levels());
    snapshot.fill(port, batch_times, counted, |tally| {
        program.tally(transports, tally);
        let counters = host.counters();
        for (kind, count) in [
            (
                "ARP and neighbour discovery answered",
                counters.discovery_replies,
            ),
            ("echo answered", counters.echo_replies),
            ("ICMP error received", counters.icmp_errors),
            ("ICMP error sent", counters.errors_sent),
        ] {
            tally.detail("control messages", ("kind", kind), count);
        }
        for (reason, count) in counters.drops() {
            tally.drop(reason, count);
        }
    });
}

impl<G: Program, P: Port> Handler<Traced<P>> for Publisher<'_, G, Traced<P>> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut Traced<P>, frame: Frame, now: Instant) {
        self.server.handle_frame(port, frame, now);
    }

    #[inline(always)]
    fn handle_batch(&mut self, port: &mut Traced<P>, batch: &mut Batch, now: Instant) {
        self.server.handle_batch(port, batch, now);
    }

    #[inline(always)]
    fn handle_messages(&mut self, port: &mut Traced<P>, now: Instant) {
        self.follow_network(port);
        self.server.handle_messages(port, now);
        self.answer(port, now);
    }

    #[inline(always)]
    fn bell(&self) -> Option<&nmio::Bell> {
        self.server.bell()
    }

    // Even an idle loop calls this method at least ten times a second, so its counts stay fresh.
    #[inline(always)]
    fn handle_timers(&mut self, port: &mut Traced<P>, now: Instant) {
        self.server.handle_timers(port, now);
        if let Some(walk) = self.walk.take() {
            self.step(port, walk, now);
        }
        if now >= self.next {
            self.publish(port, now);
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        if self.walk.is_some() {
            return Some(Instant::ZERO);
        }
        self.server.poll_timeout()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.server.is_flooded(now)
    }

    #[inline(always)]
    fn note_flushed(&mut self, received: Instant, now: Instant) {
        let nanos = now.as_nanos().saturating_sub(received.as_nanos());
        self.batch_times
            .count((nanos / 1_000).min(u32::MAX.into()) as u32);
    }

    fn handle_drain(&mut self, port: &mut Traced<P>, now: Instant) -> Drain {
        self.server.handle_drain(port, now)
    }

    fn handle_stop(&mut self, port: &mut Traced<P>, now: Instant) -> bool {
        self.server.handle_stop(port, now)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::LazyLock;

    use nmio::device::Transport;
    use nmio::sim::{LinkConfig, SimClock, SimPort, link};
    use nmio::{Clock as _, LoopConfig, LoopState};

    use eth::{Mac, Station};
    use ip::Transports;

    use super::*;
    use crate::live::{Snapshot, snapshot};
    use crate::program::{StartError, Tally, WorkerContext};

    static RUNNING: LazyLock<Stop> = LazyLock::new(Stop::new);

    /// A program that only counts frames.
    struct Probe;

    /// Number of frames, and each call that sets a MAC address.
    #[derive(Default)]
    struct Counter(u64, Vec<(u32, Mac)>);

    impl<P: Port> Transports<P> for Counter {
        const INTERCEPTS: bool = true;

        fn serves(&self, _: u8, _: u16) -> bool {
            false
        }
        fn intercept(&mut self, _: &mut P, _: Frame, _: Instant) -> Option<Frame> {
            self.0 += 1;
            None
        }
        fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
            self.1.push((slots.start, own));
            slots.end < 3 * SLOTS
        }
    }

    impl Program for Probe {
        const NAME: &'static str = "probe";
        const VERSION: &'static str = "0";
        const DEFAULT_PORT: u16 = 7;
        type Transports<P: Port> = Counter;

        fn services(&self, _: u16) -> Vec<(Transport, u16)> {
            Vec::new()
        }

        fn transports<P: Port>(&self, _: &mut P, _: &WorkerContext) -> Result<Counter, StartError> {
            Ok(Counter::default())
        }

        fn tally<P: Port>(&self, counter: &Counter, tally: &mut Tally) {
            CALLS.with_borrow_mut(|calls| *calls += 1);
            tally.event("frames", counter.0);
        }
    }

    thread_local! {
        /// Number of calls of `tally` on this thread.
        static CALLS: RefCell<u32> = const { RefCell::new(0) };
    }

    fn calls() -> u32 {
        CALLS.with_borrow(|calls| *calls)
    }

    /// A worker on a simulated link.
    struct Worker<'a> {
        port: Traced<SimPort>,
        peer: SimPort,
        clock: SimClock,
        loop_state: LoopState,
        publisher: Publisher<'a, Probe, Traced<SimPort>>,
        published: &'a [Published],
        network: nmio::mailbox::Sender<NetworkChange>,
    }

    fn server() -> Server<Counter> {
        let station = Station::new(Mac([2, 0, 0, 0, 0, 1]), &[]);
        Server::new(Host::own(station, [0; 4]), Counter::default())
    }

    impl<'a> Worker<'a> {
        fn new(published: &'a [Published]) -> Self {
            let (port, peer, clock) = link(&LinkConfig::default(), 0);
            let port = Traced::new(port);
            let bell = nmio::Bell::new().unwrap();
            let questions = published[0].open_questions(&bell);
            let (network, mailbox) = bell.mailbox(1);
            let mailboxes = (mailbox, questions);
            Self {
                loop_state: LoopState::new(&LoopConfig::default(), clock.now()),
                publisher: Publisher::new(
                    &Probe,
                    server().with_bell(bell),
                    &port,
                    &published[0],
                    mailboxes,
                    &RUNNING,
                ),
                port,
                peer,
                clock,
                published,
                network,
            }
        }

        fn send(&mut self) {
            let mut frame = self.peer.pool().take().unwrap();
            frame.set_len(60);
            self.peer.send(frame).unwrap();
            self.peer.flush().unwrap();
            self.clock.advance(Duration::from_micros(100));
        }

        fn pass(&mut self) {
            let now = self.clock.now();
            let (port, publisher) = (&mut self.port, &mut self.publisher);
            self.loop_state.pass(port, publisher, now).unwrap();
        }

        fn snapshot(&self) -> Snapshot {
            snapshot(self.published)
        }
    }

    fn frames(snapshot: &Snapshot) -> Option<u64> {
        snapshot.tally().of("frames")
    }

    #[test]
    fn counts_are_published_at_most_once_in_100_ms() {
        let published = Published::for_workers(1);
        assert_eq!(frames(&snapshot(&published)), None);
        let mut worker = Worker::new(&published);
        assert_eq!(frames(&worker.snapshot()), Some(0), "before the first pass");
        let mut times = Vec::new();
        while worker.clock.now() < Instant::from_millis(1_050) {
            worker.send();
            let before = calls();
            worker.pass();
            if calls() > before {
                assert_eq!(calls(), before + 1);
                times.push(worker.clock.now());
                let snapshot = worker.snapshot();
                assert_eq!(
                    frames(&snapshot),
                    Some(worker.publisher.server.transports.0)
                );
                assert_eq!(
                    snapshot.port().rx_frames,
                    worker.publisher.server.transports.0
                );
            }
        }
        assert!((10..=11).contains(&times.len()), "{times:?}");
        for pair in times.windows(2) {
            assert!(pair[1].since(pair[0]) >= PERIOD, "{pair:?}");
        }
    }

    #[test]
    fn an_idle_worker_publishes_its_last_counts_within_100_ms() {
        let published = Published::for_workers(1);
        let mut worker = Worker::new(&published);
        worker.pass();
        worker.clock.advance(Duration::from_millis(30));
        worker.send();
        worker.pass();
        let last_activity = worker.clock.now();
        assert_eq!(frames(&worker.snapshot()), Some(0), "too early");
        // The maximum time for which the loop sleeps.
        let timeout = worker.loop_state.timeout(None, last_activity);
        worker.clock.advance(timeout);
        worker.pass();
        assert_eq!(frames(&worker.snapshot()), Some(1));
        assert!(worker.clock.now().since(last_activity) <= Duration::from_millis(100));
    }

    #[test]
    fn a_reader_delays_the_counts_but_not_the_worker() {
        let published = Published::for_workers(1);
        let mut worker = Worker::new(&published);
        worker.pass();
        let before = calls();
        worker.clock.advance(PERIOD);
        let reader = published[0].lock();
        for _ in 0..100 {
            worker.send();
            worker.pass();
        }
        assert_eq!(
            calls(),
            before,
            "a worker that cannot publish counts nothing"
        );
        drop(reader);
        worker.clock.advance(RETRY);
        worker.pass();
        assert_eq!(frames(&worker.snapshot()), Some(100));
    }

    #[test]
    fn all_connections_get_a_new_mac_address() {
        let published = Published::for_workers(1);
        let mut worker = Worker::new(&published);
        let mac = |last| Mac([2, 0, 0, 0, 0, last]);
        for (own, calls) in [(mac(1), vec![]), (mac(7), vec![0, SLOTS, 2 * SLOTS])] {
            let station = Station::new(own, &[]);
            let announces = false;
            let renewal = Box::new(Renewal { station, announces });
            worker
                .network
                .send(NetworkChange::Station(renewal))
                .unwrap();
            for _ in 0..5 {
                worker.pass();
            }
            let server = &worker.publisher.server;
            let expected: Vec<_> = calls.into_iter().map(|slot| (slot, own)).collect();
            assert_eq!(server.transports.1, expected);
            assert_eq!(server.host.station().mac(), own);
        }
    }

    #[test]
    fn the_last_counts_remain_after_the_worker_ends() {
        let published = Published::for_workers(1);
        let mut worker = Worker::new(&published);
        worker.pass();
        worker.send();
        worker.pass();
        let last = worker.publisher.finish(&worker.port);
        assert_eq!(last.tally().of("frames"), Some(1));
        assert_eq!(frames(&snapshot(&published)), Some(1));
    }
}
