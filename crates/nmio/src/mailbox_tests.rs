use std::thread;
use std::time::Duration;

use super::*;
use crate::frame::Frame;
use crate::port::Port;
use crate::sim::{self, LinkConfig, PathConfig};
use crate::time::{Clock, Instant};
use crate::{Handler, LoopConfig};

fn take_messages(mailbox: &mut Mailbox<u32>) -> Vec<u32> {
    let mut all = Vec::new();
    mailbox.bell().silence();
    mailbox.take_all(|message| all.push(message));
    all
}

fn is_readable(bell: &Bell) -> bool {
    let events = sys_poll(bell);
    events & libc::POLLIN != 0
}

fn sys_poll(bell: &Bell) -> i16 {
    crate::sys::poll_readable([Some(bell.event())], Duration::ZERO).unwrap()[0]
}

#[test]
fn a_full_mailbox_returns_the_message() {
    let (sender, mut mailbox) = mailbox(2).unwrap();
    assert_eq!(sender.send(1), Ok(()));
    assert_eq!(sender.clone().send(2), Ok(()));
    assert_eq!(sender.send(3), Err(SendMessageError::Full(3)));
    assert_eq!(take_messages(&mut mailbox), [1, 2]);
    assert_eq!(sender.send(3), Ok(()));
    assert_eq!(take_messages(&mut mailbox), [3]);
    drop(mailbox);
    assert_eq!(sender.send(4), Err(SendMessageError::Closed(4)));
}

#[test]
fn the_bell_rings_once_until_the_mailbox_is_emptied() {
    let (sender, mut mailbox) = mailbox(8).unwrap();
    assert!(!mailbox.bell().is_rung());
    assert!(!is_readable(mailbox.bell()));
    sender.send(1).unwrap();
    assert!(is_readable(mailbox.bell()));
    // Sending a second message makes no system call, so the eventfd's count stays at one.
    sender.send(2).unwrap();
    let mut count = [0; 8];
    rustix::io::read(mailbox.bell().event(), &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    rustix::io::write(mailbox.bell().event(), &count).unwrap();
    assert_eq!(take_messages(&mut mailbox), [1, 2]);
    assert!(!mailbox.bell().is_rung());
    assert!(!is_readable(mailbox.bell()));
}

#[test]
fn a_message_sent_while_messages_are_taken_waits_for_the_next_call() {
    let (sender, mut mailbox) = mailbox(1).unwrap();
    sender.send(1).unwrap();
    let mut rounds = 0;
    assert!(mailbox.bell().silence());
    mailbox.take_all(|message| {
        rounds += 1;
        sender.send(message + 1).unwrap();
    });
    assert_eq!(rounds, 1, "a sender cannot keep the worker busy");
    assert!(mailbox.bell().is_rung());
    assert_eq!(take_messages(&mut mailbox), [2]);
}

/// The worker looks between the two steps of a sender, which rings the bell and then writes.
#[test]
fn a_bell_stays_rung_until_its_sender_has_written() {
    let (sender, mut mailbox) = mailbox(8).unwrap();
    let bell = mailbox.bell().clone();
    sender.messages.send(1).unwrap();
    bell.0.is_rung.store(true, Ordering::Release);
    assert!(!bell.silence());
    assert!(bell.is_rung());
    // The bell is rung, so another sender does not write.
    sender.send(2).unwrap();
    assert!(!bell.silence());
    rustix::io::write(bell.event(), &1u64.to_ne_bytes()).unwrap();
    assert!(bell.silence());
    assert!(!bell.is_rung());
    assert!(!is_readable(&bell), "the next wait lasts its whole timeout");
    assert_eq!(take_messages(&mut mailbox), [1, 2]);
}

#[test]
fn mailboxes_can_share_a_bell() {
    let bell = Bell::new().unwrap();
    let (to_first, mut first) = bell.mailbox(1);
    let (to_second, mut second) = bell.mailbox(1);
    to_second.send(2).unwrap();
    to_first.send(1).unwrap();
    assert!(bell.silence());
    assert!(!first.bell().silence() && !second.bell().silence());
    let mut taken = Vec::new();
    first.take_all(|message| taken.push(message));
    // This message is sent while the worker takes messages, and rings the bell again.
    to_first.send(3).unwrap();
    second.take_all(|message| taken.push(message));
    assert_eq!(taken, [1, 2]);
    assert!(bell.silence());
    first.take_all(|message| taken.push(message));
    assert_eq!(taken, [1, 2, 3]);
}

/// Two threads send as fast as they can. Every message must arrive, and must ring the bell if the
/// bell is silent.
#[test]
fn every_message_is_received() {
    const MESSAGES: u32 = 20_000;
    let (sender, mut mailbox) = mailbox(16).unwrap();
    let senders: Vec<_> = (0..2)
        .map(|sender_id| {
            let sender = sender.clone();
            thread::spawn(move || {
                for number in 0..MESSAGES {
                    while sender.send((sender_id, number)).is_err() {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; 2];
    while next != [MESSAGES; 2] {
        let bell = mailbox.bell();
        let limit = Duration::from_secs(10);
        let [events] = crate::sys::poll_readable([Some(bell.event())], limit).unwrap();
        assert!(events & libc::POLLIN != 0, "a message must ring the bell");
        bell.silence();
        mailbox.take_all(|(sender_id, number): (usize, u32)| {
            assert_eq!(
                next[sender_id], number,
                "messages of one sender arrive in order"
            );
            next[sender_id] += 1;
        });
    }
    for sender in senders {
        sender.join().unwrap();
    }
    let bell = mailbox.bell();
    assert_eq!(is_readable(bell), bell.is_rung());
}

/// Records each message and the time at which it was handled.
struct Listener {
    mailbox: Mailbox<u32>,
    received: Vec<(u32, Instant)>,
}

impl<P: Port> Handler<P> for Listener {
    fn handle_frame(&mut self, _: &mut P, _: Frame, _: Instant) {}
    fn handle_messages(&mut self, _: &mut P, now: Instant) {
        let Self { mailbox, received } = self;
        mailbox.take_all(|message| received.push((message, now)));
    }
    fn bell(&self) -> Option<&Bell> {
        Some(self.mailbox.bell())
    }
    fn handle_timers(&mut self, _: &mut P, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends a message when its timer expires.
struct Caller {
    sender: Sender<u32>,
    at: Option<Instant>,
}

impl<P: Port> Handler<P> for Caller {
    fn handle_frame(&mut self, _: &mut P, _: Frame, _: Instant) {}
    fn handle_timers(&mut self, _: &mut P, now: Instant) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
            self.sender.send(7).unwrap();
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.at
    }
}

#[test]
fn a_sleeping_worker_gets_a_message_within_100_microseconds() {
    let (sender, mailbox) = mailbox(4).unwrap();
    let (mut a, mut b, clock) = sim::link(&LinkConfig::symmetric(PathConfig::default()), 1);
    let mut listener = Listener {
        mailbox,
        received: Vec::new(),
    };
    let at = clock.now() + Duration::from_millis(37);
    let mut caller = Caller {
        sender,
        at: Some(at),
    };
    let config = LoopConfig::default();
    let end = clock.now() + Duration::from_secs(1);
    let has_received = |listener: &Listener, _: &Caller| !listener.received.is_empty();
    let ends = ((&mut a, &mut listener), (&mut b, &mut caller));
    assert!(sim::run_until(&clock, ends.0, ends.1, &config, end, has_received).unwrap());
    let [(7, received)] = listener.received[..] else {
        panic!("{:?}", listener.received)
    };
    assert!(
        received.since(at) <= Duration::from_micros(100),
        "{received:?}"
    );
}
