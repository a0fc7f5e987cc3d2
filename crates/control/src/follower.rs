//! Follows changes of the interface while the workers serve: its addresses and its link.
//!
//! The kernel reports each change ([`Monitor`]). After a change of the addresses, the helper process
//! changes the steering program and the reserved ports, and returns the addresses. The workers get
//! them through their mailboxes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eth::Station;
use nmio::device::{Change, CurrentAddresses, Monitor, QueueAccess};
use nmio::mailbox::{SendMessageError, Sender};
use tokio::time::{MissedTickBehavior, interval};

use crate::error::Error;
use crate::interface_state::{InterfaceState, NAMES};
use crate::program::station;

/// Interval between two looks for changes.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);
/// Maximum number of changes handled in one period. The kernel keeps further changes for the next
/// period.
const MAX_CHANGES: usize = 100;
/// Time for which connections wait for the return of a removed address, while the link is up.
const PATIENCE: Duration = Duration::from_secs(3);

/// Interval between two attempts to serve an address whose ports another program had.
const RETRY: Duration = Duration::from_secs(5);

/// A message to a worker about a change of its network.
#[derive(Clone, Debug)]
pub(crate) enum NetworkChange {
    /// The server has the addresses of this station now.
    Station(Box<Station>),
    /// End the connections to addresses that the server no longer has.
    ResetStrangers,
}

/// Number of messages for which a worker's mailbox has room.
pub(crate) const MAILBOX: usize = 4;

/// Follows the changes of an interface, on the control thread.
pub(crate) struct Follower {
    /// `None` if the device is no interface, or once reading the changes has failed.
    monitor: Option<Monitor>,
    outboxes: Vec<Outbox>,
    state: Arc<InterfaceState>,
    interface: String,
    /// The MAC address under which the server can be reached.
    mac: [u8; 6],
    vlans: Vec<u16>,
    served: CurrentAddresses,
    is_own: bool,
    can_follow: bool,
    /// Whether the interface was removed. The server then ends, even if the interface returns.
    is_removed: bool,
    /// Whether the addresses may have changed since they were last read.
    is_stale: bool,
    is_up: bool,
    /// Whether connections to a removed address may be open, and when they end.
    patience: Option<Instant>,
    /// When to try again to serve the addresses that were refused.
    retry: Option<Instant>,
}

/// The messages to one worker that found no room in its mailbox.
struct Outbox {
    mailbox: Sender<NetworkChange>,
    waiting: VecDeque<NetworkChange>,
}

impl Outbox {
    fn push(&mut self, message: NetworkChange) {
        if matches!(message, NetworkChange::Station(_)) {
            // Only the last station counts.
            self.waiting.clear();
        }
        self.waiting.push_back(message);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            match self.mailbox.send(message) {
                Err(SendMessageError::Full(message)) => {
                    self.waiting.push_front(message);
                    return;
                }
                // A worker that has ended needs no message.
                Ok(()) | Err(SendMessageError::Closed(_)) => {}
            }
        }
    }
}

impl Follower {
    /// Starts to watch the interface. Must be called before the thread drops its privileges.
    ///
    /// # Errors
    /// If the kernel cannot report changes to the interface.
    pub(crate) fn new(interface: &QueueAccess, state: &Arc<InterfaceState>) -> io::Result<Self> {
        let monitor = interface.monitor()?;
        let is_up = monitor.as_ref().is_none_or(Monitor::has_link);
        state.change(|status| status.is_up = is_up);
        Ok(Self {
            monitor,
            outboxes: Vec::new(),
            state: Arc::clone(state),
            interface: interface.name().to_owned(),
            mac: interface.mac(),
            vlans: interface.vlans().to_vec(),
            served: CurrentAddresses {
                addresses: interface.addresses().to_vec(),
                refused: Vec::new(),
            },
            is_own: interface.is_own(),
            can_follow: interface.can_follow_addresses(),
            is_removed: false,
            // The addresses may have changed before the monitor was opened.
            is_stale: interface.can_follow_addresses(),
            is_up,
            patience: None,
            retry: None,
        })
    }

    /// Sets the mailboxes of all workers.
    pub(crate) fn set_workers(&mut self, mailboxes: Vec<Sender<NetworkChange>>) {
        let outboxes = mailboxes.into_iter().map(|mailbox| Outbox {
            mailbox,
            waiting: VecDeque::new(),
        });
        self.outboxes = outboxes.collect();
    }

    /// Handles changes while the future is polled. `follow` changes the steering program and the
    /// reserved ports ([`Interface::follow_addresses`](nmio::device::Interface)).
    pub(crate) async fn keep_following(
        mut self,
        follow: impl Fn() -> Result<CurrentAddresses, Error>,
    ) -> Infallible {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            period.tick().await;
            self.step(Instant::now(), &follow);
        }
    }

    /// Handles the changes since the last call.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        follow: impl FnOnce() -> Result<CurrentAddresses, Error>,
    ) {
        self.read_changes(now);
        let monitor = self.monitor.as_ref();
        let is_present = monitor.is_none_or(Monitor::is_present);
        let is_usable = monitor.is_none_or(|monitor| monitor.is_usable(!self.is_own));
        self.state.change(|status| status.is_present = is_present);
        self.state.set_usable(is_usable);
        let retries = self.retry.is_some_and(|time| now >= time);
        if (self.is_stale || retries) && self.can_follow {
            (self.is_stale, self.retry) = (false, None);
            match follow() {
                Ok(current) => self.serve(current, now),
                Err(error) => tracing::warn!(
                    "interface {}: the server cannot follow its addresses: {error}; restart the \
                     server to serve the current addresses",
                    self.interface
                ),
            }
        }
        if self.is_up && self.patience.is_some_and(|end| now >= end) {
            self.patience = None;
            self.send(&NetworkChange::ResetStrangers);
        }
        self.outboxes.iter_mut().for_each(Outbox::flush);
    }

    fn send(&mut self, message: &NetworkChange) {
        for outbox in &mut self.outboxes {
            outbox.push(message.clone());
        }
    }

    /// Makes the workers serve these addresses.
    fn serve(&mut self, current: CurrentAddresses, now: Instant) {
        self.note_refused(&current.refused, now);
        let (old, new) = (self.served.distinct(), current.distinct());
        self.note_difference(&old, &new, now);
        let is_new = self.served.addresses != current.addresses;
        self.served = current;
        if is_new {
            let station = station(self.mac, &self.served.addresses, &self.vlans);
            self.send(&NetworkChange::Station(Box::new(station)));
        }
        let addresses = new.iter().map(ToString::to_string).collect();
        self.state.change(|status| status.addresses = addresses);
    }

    fn note_refused(&mut self, refused: &[(IpAddr, String)], now: Instant) {
        let is_known = |address| {
            self.served
                .refused
                .iter()
                .any(|(known, _)| *known == address)
        };
        for (address, why) in refused.iter().filter(|(address, _)| !is_known(*address)) {
            tracing::warn!(
                "interface {}: address {address} is not served: {why}; the server tries again each \
                 {} s",
                self.interface,
                RETRY.as_secs()
            );
        }
        self.retry = (!refused.is_empty()).then(|| now + RETRY);
        let refused = refused.iter();
        let refused = refused.map(|(address, why)| (address.to_string(), why.clone()));
        let refused = refused.collect();
        self.state.change(|status| status.refused = refused);
    }

    fn note_difference(&mut self, old: &[IpAddr], new: &[IpAddr], now: Instant) {
        let name = &self.interface;
        for address in new.iter().filter(|one| !old.contains(one)) {
            tracing::warn!("interface {name}: address {address} is served now");
        }
        for address in old.iter().filter(|one| !new.contains(one)) {
            tracing::warn!(
                "interface {name} has lost address {address}; its connections end if it does not \
                 return within {} s",
                PATIENCE.as_secs()
            );
            self.patience = Some(now + PATIENCE);
        }
    }

    fn read_changes(&mut self, now: Instant) {
        for _ in 0..MAX_CHANGES {
            let Some(monitor) = &mut self.monitor else {
                return;
            };
            match monitor.next_change() {
                Ok(Some(change)) => self.handle_change(change, now),
                Ok(None) => return,
                Err(error) => {
                    self.monitor = None;
                    tracing::warn!(
                        "changes of interface {} are no longer noticed: {error}",
                        self.interface
                    );
                }
            }
        }
    }

    fn handle_change(&mut self, change: Change, now: Instant) {
        self.log_change(change);
        self.state.change(|status| status.count(name_of(change)));
        match change {
            Change::Down | Change::NoCarrier => self.is_up = false,
            Change::Up | Change::Carrier => {
                self.is_up = self.monitor.as_ref().is_none_or(Monitor::has_link);
                // Some addresses return only now.
                self.patience = self.patience.map(|_| now + PATIENCE);
            }
            Change::AddressAdded(_) | Change::AddressRemoved(_) => self.is_stale = true,
            Change::Missed => {
                self.is_stale = true;
                self.is_up = self.monitor.as_ref().is_none_or(Monitor::has_link);
            }
            Change::Removed => {
                self.is_up = false;
                (self.can_follow, self.is_removed) = (false, true);
            }
            Change::Mac(_) | Change::Mtu(_) | Change::Renamed | Change::Returned => {}
        }
        let is_up = self.is_up;
        self.state.change(|status| status.is_up = is_up);
    }

    fn log_change(&self, change: Change) {
        let name = &self.interface;
        let restart = if self.is_own {
            "the server still serves its own addresses"
        } else {
            "restart the server to serve the current addresses, because this device cannot follow \
             them"
        };
        match change {
            Change::Down => tracing::warn!("interface {name} is down"),
            Change::Up => tracing::warn!("interface {name} is up"),
            Change::NoCarrier => tracing::warn!("interface {name} has no carrier"),
            Change::Carrier => tracing::warn!("interface {name} has a carrier again"),
            Change::AddressAdded(_) | Change::AddressRemoved(_)
                if self.can_follow || self.is_removed => {}
            Change::AddressAdded(address) => {
                tracing::info!("interface {name} has a new address {address}; {restart}");
            }
            Change::AddressRemoved(address) => {
                tracing::info!("interface {name} has lost address {address}; {restart}");
            }
            Change::Mac(mac) if mac == self.mac => {
                tracing::warn!("interface {name} has its former MAC address, and is served again");
            }
            Change::Mac(_) => tracing::warn!(
                "interface {name} has a new MAC address, to which the server does not answer; restart \
                 the server"
            ),
            Change::Mtu(mtu) => tracing::warn!(
                "interface {name} has MTU {mtu} now; the server keeps the MTU of its start until it is \
                 restarted"
            ),
            Change::Renamed => tracing::warn!(
                "interface {name} has another name; the server still serves it, and calls it {name} \
                 until it is restarted"
            ),
            Change::Removed => tracing::warn!("interface {name} was removed"),
            Change::Returned => tracing::warn!("there is an interface {name} again"),
            Change::Missed => {
                tracing::info!(
                    "interface {name}: too many changes at once, so some are not logged"
                );
            }
        }
    }
}

/// Returns the name of a change, which is in [`NAMES`].
fn name_of(change: Change) -> &'static str {
    let [
        up,
        down,
        carrier,
        no_carrier,
        mac,
        mtu,
        renamed,
        added,
        lost,
        removed,
        returned,
        missed,
    ] = NAMES;
    match change {
        Change::Up => up,
        Change::Down => down,
        Change::Carrier => carrier,
        Change::NoCarrier => no_carrier,
        Change::Mac(_) => mac,
        Change::Mtu(_) => mtu,
        Change::Renamed => renamed,
        Change::AddressAdded(_) => added,
        Change::AddressRemoved(_) => lost,
        Change::Removed => removed,
        Change::Returned => returned,
        Change::Missed => missed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use nmio::Mailbox;

    use super::*;

    /// Creates a follower of a server with address 192.0.2.1 and MAC address 02:02:02:02:02:02,
    /// which has one worker.
    fn follower() -> (Follower, Mailbox<NetworkChange>) {
        let (sender, mailbox) = nmio::mailbox(1).unwrap();
        let mut follower = Follower {
            monitor: None,
            outboxes: Vec::new(),
            state: Arc::default(),
            interface: "srv0".into(),
            mac: [2; 6],
            vlans: Vec::new(),
            served: addresses(&["192.0.2.1/24"]),
            is_own: false,
            can_follow: true,
            is_removed: false,
            is_stale: false,
            is_up: true,
            patience: None,
            retry: None,
        };
        follower.set_workers(vec![sender]);
        (follower, mailbox)
    }

    fn addresses(list: &[&str]) -> CurrentAddresses {
        CurrentAddresses {
            addresses: list.iter().map(|one| one.parse().unwrap()).collect(),
            refused: Vec::new(),
        }
    }

    /// Returns what the worker hears: the addresses, or nothing for a reset.
    fn heard(mailbox: &mut Mailbox<NetworkChange>) -> Vec<Option<String>> {
        let mut heard = Vec::new();
        mailbox.take_all(|message| {
            heard.push(match message {
                NetworkChange::Station(station) => Some(format!("{:?}", station.addresses())),
                NetworkChange::ResetStrangers => None,
            });
        });
        heard
    }

    #[test]
    fn workers_hear_of_addresses_at_once_and_end_connections_later() {
        let (mut follower, mut mailbox) = follower();
        let start = Instant::now();
        let mut step = |seconds: u64, list: Option<&[&str]>, is_up| {
            follower.is_stale = list.is_some();
            follower.is_up = is_up;
            let follow = || Ok(addresses(list.expect("the addresses are not stale")));
            follower.step(start + Duration::from_secs(seconds), follow);
            heard(&mut mailbox)
        };
        assert!(step(0, Some(&["192.0.2.1/24"]), true).is_empty());
        let both = Some("[192.0.2.1, 192.0.2.2]".to_owned());
        assert_eq!(
            step(1, Some(&["192.0.2.1/24", "192.0.2.2/24"]), true),
            [both]
        );
        let second = Some("[192.0.2.2]".to_owned());
        assert_eq!(step(2, Some(&["192.0.2.2/24"]), true), [second]);
        assert!(step(4, None, true).is_empty(), "too early");
        assert!(step(9, None, false).is_empty(), "the link is down");
        assert_eq!(step(10, None, true), [None]);
        assert!(step(99, None, true).is_empty(), "once is enough");
        let status = follower.state.read();
        assert_eq!(status.addresses, ["192.0.2.2"]);
    }

    #[test]
    fn a_full_mailbox_delays_messages_and_keeps_the_last_addresses() {
        let (mut follower, mut mailbox) = follower();
        let now = Instant::now();
        for list in [&["10.0.0.1/8"], &["10.0.0.2/8"], &["10.0.0.3/8"]] {
            follower.serve(addresses(list), now);
        }
        follower.send(&NetworkChange::ResetStrangers);
        assert_eq!(heard(&mut mailbox), [Some("[10.0.0.1]".to_owned())]);
        let mut later = Vec::new();
        for _ in 0..3 {
            follower.outboxes[0].flush();
            later.extend(heard(&mut mailbox));
        }
        assert_eq!(later, [Some("[10.0.0.3]".to_owned()), None]);
    }

    #[test]
    fn a_refused_address_is_tried_again() {
        let (mut follower, mut mailbox) = follower();
        let start = Instant::now();
        follower.is_stale = true;
        let mut step = |seconds: u64, list: Option<&[&str]>| {
            let follow = || {
                let mut current = addresses(list.expect("it is too early"));
                if current.addresses.len() == 1 {
                    let refused = "192.0.2.2".parse().unwrap();
                    current
                        .refused
                        .push((refused, "its port is taken".to_owned()));
                }
                Ok(current)
            };
            follower.step(start + Duration::from_secs(seconds), follow);
            (heard(&mut mailbox), follower.state.read().refused.len())
        };
        let (one, two) = (&["192.0.2.1/24"][..], &["192.0.2.1/24", "192.0.2.2/24"][..]);
        assert_eq!(step(1, Some(one)), (vec![], 1));
        assert_eq!(step(5, None), (vec![], 1));
        assert_eq!(step(6, Some(one)), (vec![], 1));
        assert_eq!(step(10, None), (vec![], 1));
        let both = Some("[192.0.2.1, 192.0.2.2]".to_owned());
        assert_eq!(step(11, Some(two)), (vec![both], 0));
        assert_eq!(step(99, None), (vec![], 0));
    }

    /// Returns what is logged about `change`.
    fn logged(change: Change) -> String {
        let (follower, _mailbox) = follower();
        let (mut written, writer) = io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Arc::new(writer))
            .finish();
        tracing::subscriber::with_default(subscriber, || follower.log_change(change));
        let mut text = String::new();
        written.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_a_new_mac_address_causes_advice_to_restart() {
        let new = logged(Change::Mac([4; 6]));
        assert!(new.contains("srv0") && new.contains("restart"), "{new}");
        let former = logged(Change::Mac([2; 6]));
        assert!(former.contains("is served again"), "{former}");
        assert!(!former.contains("restart"), "{former}");
    }
}
