use std::net::Ipv4Addr;
use std::time::Duration;

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{self, LinkConfig, PathConfig, SimPort};
use nmio::{Clock as _, Frame, Handler, LoopConfig};

use super::*;

/// Records when messages arrive and when the timer fires.
#[derive(Default)]
struct Recorder {
    messages: Vec<(u32, Instant)>,
    due: Option<Instant>,
    period: Duration,
    timers: Vec<Instant>,
}

impl Service for Recorder {
    type Message = u32;

    fn on_datagram<P: Port>(&mut self, _datagram: Datagram<'_, P>, _now: Instant) {}

    fn on_message(&mut self, message: u32, now: Instant) {
        self.messages.push((message, now));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn on_timer(&mut self, now: Instant) {
        self.timers.push(now);
        self.due = Some(now + self.period);
    }
}

/// Calls a function once, at the time `due`.
struct At<F> {
    due: Option<Instant>,
    call: F,
}

impl<F: FnMut()> Handler<SimPort> for At<F> {
    fn handle_frame(&mut self, _: &mut SimPort, _: Frame, _: Instant) {}
    fn handle_timers(&mut self, _: &mut SimPort, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            (self.call)();
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

fn server(service: Recorder) -> Server<Recorder> {
    let ours = Ipv4Addr::new(192, 0, 2, 1);
    let station = Station::new(Mac([2, 0, 0, 0, 0, 1]), &[ours.into()]);
    Server::new(Host::own(station, [0; 4]), Udp::new(7, service))
}

/// Runs the server for `duration`. If `at` is set, calls `call` when that much time has passed
/// since the start, as another thread would.
fn run(
    server: &mut Server<Recorder>,
    duration: Duration,
    at: Option<Duration>,
    call: impl FnMut(),
) {
    let link = LinkConfig::symmetric(PathConfig::default());
    let (mut server_port, mut peer_port, clock) = sim::link(&link, 1);
    let start = clock.now();
    let mut timed_call = At {
        due: at.map(|at| start + at),
        call,
    };
    let ends = (
        (&mut server_port, server),
        (&mut peer_port, &mut timed_call),
    );
    let config = LoopConfig::default();
    sim::run_until(&clock, ends.0, ends.1, &config, start + duration, |_, _| {
        false
    })
    .unwrap();
}

#[test]
fn a_message_reaches_a_sleeping_service_within_100_microseconds() {
    let (sender, mailbox) = nmio::mailbox(4).unwrap();
    let mut server = server(Recorder::default()).with_bell(mailbox.bell().clone());
    server.transports.set_mailbox(mailbox);
    let (duration, at) = (Duration::from_secs(1), Duration::from_millis(37));
    run(&mut server, duration, Some(at), || {
        sender.send(7).unwrap();
        sender.send(8).unwrap();
    });
    let [(7, first), (8, second)] = server.transports.service().messages[..] else {
        panic!("{:?}", server.transports.service().messages)
    };
    assert_eq!(first, second, "one pass takes both messages");
    let latency = first.since(Instant::ZERO + at);
    assert!(first >= Instant::ZERO + at && latency <= Duration::from_micros(100));
}

#[test]
fn a_timer_fires_repeatedly_at_the_requested_times() {
    let mut server = server(Recorder {
        due: Some(Instant::from_millis(250)),
        period: Duration::from_millis(300),
        ..Recorder::default()
    });
    run(&mut server, Duration::from_secs(1), None, || {});
    let expected = [250, 550, 850].map(Instant::from_millis);
    assert_eq!(server.transports.service().timers, expected);
    assert!(server.transports.service().messages.is_empty());
}

#[test]
fn a_server_without_a_mailbox_has_no_bell() {
    let server = server(Recorder::default());
    assert!(Handler::<SimPort>::bell(&server).is_none());
    assert_eq!(Handler::<SimPort>::poll_timeout(&server), None);
}
