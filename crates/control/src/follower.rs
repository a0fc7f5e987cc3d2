//! Follows changes of the interface while the workers serve: its addresses, its MAC address and its
//! link.
//!
//! The kernel reports each change ([`Monitor`]). After a change of an address, the helper process
//! changes the steering program and the reserved ports, and returns the addresses. The workers get
//! them through their mailboxes.
//!
//! If the interface is removed, the follower waits until an interface of this name can be served. The
//! helper process opens it, and the workers' ports continue on its queues.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eth::{Mac, Station};
use nmio::device::{Change, CurrentAddresses, Monitor, NewQueue, QueueAccess};
use nmio::mailbox::{SendMessageError, Sender};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::Error;
use crate::interface_state::{InterfaceState, NAMES};

/// Interval between two looks for changes.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);
/// Maximum number of changes handled in one period. The kernel keeps further changes for the next
/// period.
const MAX_CHANGES: usize = 100;
/// Time for which connections wait for the return of a removed address, while the link is up.
const PATIENCE: Duration = Duration::from_secs(3);

/// Interval between two attempts to serve an address whose ports another program had, and to open an
/// interface that has returned.
const RETRY: Duration = Duration::from_secs(5);

/// A message to a worker about a change of its network.
#[derive(Clone, Debug)]
pub(crate) enum NetworkChange {
    /// The server has the addresses of this station now.
    Station(Box<Renewal>),
    /// End the connections to addresses that the server no longer has.
    ResetStrangers,
    /// Continue on a queue of the interface that replaces a removed one.
    Attach(Box<Attachment>),
}

/// The addresses of a server after a change, for a worker.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) station: Station,
    /// Whether to announce the addresses.
    pub(crate) announces: bool,
}

/// A queue of another interface, for a worker.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) queue: NewQueue,
    /// The addresses that the server has on this interface.
    pub(crate) renewal: Renewal,
}

/// What happens to a server whose interface is removed.
#[derive(Debug)]
pub(crate) enum Removal {
    /// The interface was removed, and the server waits for another one.
    Waits,
    /// The server continues on another interface.
    GoesOn,
    /// The server cannot use the interface that replaces the removed one.
    Ends(Error),
}

/// What changes and opens the interface for the follower.
pub(crate) trait Opener {
    /// Changes the steering program and the reserved ports
    /// ([`Interface::follow_addresses`](nmio::device::Interface::follow_addresses)).
    fn follow(&mut self) -> Result<CurrentAddresses, Error>;

    /// Opens the interface that has taken the place of the removed one.
    fn reopen(&mut self) -> Result<QueueAccess, Error>;
}

/// Number of messages for which a worker's mailbox has room.
pub(crate) const MAILBOX: usize = 4;

/// Follows the changes of an interface, on the control thread.
pub(crate) struct Follower {
    /// `None` if the device is no interface, or once reading the changes has failed.
    monitor: Option<Monitor>,
    outboxes: Vec<Outbox>,
    state: Arc<InterfaceState>,
    /// The MAC address under which the server can be reached.
    mac: [u8; 6],
    served: CurrentAddresses,
    /// The interface as it was opened last, without its queues.
    opened: QueueAccess,
    /// Who hears of a removal, if the workers' ports wait for the return of the interface.
    removals: Option<mpsc::Sender<Removal>>,
    /// Whether the interface was removed, and no other one is served instead.
    is_removed: bool,
    /// Why the interface could not be opened again the last time.
    refusal: Option<String>,
    /// Whether the addresses may have changed since they were last read.
    is_stale: bool,
    is_up: bool,
    /// Whether connections to a removed address may be open, and when they end.
    patience: Option<Instant>,
    /// When to try again to serve the addresses that were refused, or to open a removed interface.
    retry: Option<Instant>,
}

/// The messages to one worker that found no room in its mailbox.
struct Outbox {
    mailbox: Sender<NetworkChange>,
    waiting: VecDeque<NetworkChange>,
}

impl Outbox {
    fn push(&mut self, mut message: NetworkChange) {
        match &mut message {
            // Only the last station counts. It is announced if one before it was to be.
            NetworkChange::Station(last) => self.waiting.retain(|message| match message {
                NetworkChange::Station(earlier) => {
                    last.announces |= earlier.announces;
                    false
                }
                NetworkChange::ResetStrangers => false,
                NetworkChange::Attach(_) => true,
            }),
            // It brings a station with it.
            NetworkChange::Attach(_) => self.waiting.clear(),
            NetworkChange::ResetStrangers => {}
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
        let mut opened = interface.clone();
        opened.close_queues();
        Ok(Self {
            monitor,
            opened,
            removals: None,
            refusal: None,
            outboxes: Vec::new(),
            state: Arc::clone(state),
            mac: interface.mac(),
            served: addresses_of(interface),
            is_removed: false,
            // The addresses may have changed before the monitor was opened.
            is_stale: true,
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

    /// Returns the state of the interface, which the endpoints read.
    pub(crate) fn state(&self) -> &InterfaceState {
        &self.state
    }

    /// Says that the workers' ports wait for the return of a removed interface. `removals` hears of
    /// each removal.
    pub(crate) fn wait_for_return(&mut self, removals: mpsc::Sender<Removal>) {
        self.removals = Some(removals);
    }

    /// Whether changes of the addresses can be followed.
    fn can_follow(&self) -> bool {
        !self.is_removed && self.opened.can_follow_addresses()
    }

    /// Whether a change of the MAC address can be followed.
    fn can_follow_mac(&self) -> bool {
        !self.is_removed && self.opened.can_follow_mac()
    }

    /// Handles changes while the future is polled.
    pub(crate) async fn keep_following(mut self, mut opener: impl Opener) -> Infallible {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            period.tick().await;
            self.step(Instant::now(), &mut opener);
        }
    }

    /// Handles the changes since the last call.
    pub(crate) fn step(&mut self, now: Instant, opener: &mut impl Opener) {
        self.read_changes(now);
        let monitor = self.monitor.as_ref();
        let is_present = monitor.is_none_or(Monitor::is_present);
        let is_usable = monitor.is_none_or(|monitor| monitor.is_usable(!self.opened.is_own()));
        self.state.change(|status| status.is_present = is_present);
        if self.is_removed && is_usable && self.retry.is_none_or(|time| now >= time) {
            self.reopen(opener, now);
        }
        let retries = self.retry.is_some_and(|time| now >= time);
        if (self.is_stale || retries) && (self.can_follow() || self.can_follow_mac()) {
            (self.is_stale, self.retry) = (false, None);
            match opener.follow() {
                Ok(current) => self.serve(current, now),
                Err(error) => tracing::warn!(
                    "interface {}: the server cannot follow its addresses: {error}; restart the \
                     server to serve the current addresses",
                    self.opened.name()
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
        let is_moved = self.note_mac(current.mac);
        let is_new = self.served.addresses != current.addresses;
        self.served = current;
        if is_new || is_moved {
            let station = Station::with_prefixes(Mac(self.mac), &self.served.addresses);
            let station = station.with_vlans(self.opened.vlans());
            for (index, outbox) in self.outboxes.iter_mut().enumerate() {
                outbox.push(NetworkChange::Station(Box::new(Renewal {
                    station: station.clone(),
                    announces: is_moved && self.opened.is_own() && index == 0,
                })));
            }
        }
        let addresses = new.iter().map(ToString::to_string).collect();
        self.state.change(|status| status.addresses = addresses);
    }

    /// Opens the interface that has taken the place of the removed one, and passes its queues to the
    /// workers.
    fn reopen(&mut self, opener: &mut impl Opener, now: Instant) {
        if self.removals.is_none() {
            return;
        }
        if self.opened.polls_queues() {
            return self.end("its workers poll the queues of the removed interface".to_owned());
        }
        let opened = match opener.reopen() {
            Ok(opened) => opened,
            Err(error) => return self.note_refusal(&error, now),
        };
        (self.retry, self.refusal) = (None, None);
        self.state.change(|status| status.not_reopened = None);
        if let Some(why) = opened.misfit(&self.opened) {
            return self.end(why);
        }
        self.is_removed = false;
        self.attach(opened, now);
        tracing::warn!("interface {} is served again", self.opened.name());
        self.tell(Removal::GoesOn);
    }

    /// Ends the server, which cannot use the interface that has returned.
    fn end(&mut self, why: String) {
        let interface = self.opened.name().to_owned();
        self.tell(Removal::Ends(Error::InterfaceBack { interface, why }));
        self.removals = None;
    }

    /// Says what happens to the server. The receiver takes each message before the next change of the
    /// interface, so there is room.
    fn tell(&self, what: Removal) {
        if let Some(removals) = &self.removals {
            drop(removals.try_send(what));
        }
    }

    fn note_refusal(&mut self, error: &Error, now: Instant) {
        self.retry = Some(now + RETRY);
        let why = error.to_string();
        if self.refusal.as_ref() != Some(&why) {
            tracing::warn!(
                "interface {} cannot be served again: {why}; the server tries again each {} s",
                self.opened.name(),
                RETRY.as_secs()
            );
        }
        self.state
            .change(|status| status.not_reopened = Some(why.clone()));
        self.refusal = Some(why);
    }

    /// Passes the queues of another interface to the workers, and its addresses.
    fn attach(&mut self, mut opened: QueueAccess, now: Instant) {
        self.mac = opened.mac();
        let station = Station::with_prefixes(Mac(self.mac), opened.addresses());
        let station = station.with_vlans(opened.vlans());
        for (outbox, index) in self.outboxes.iter_mut().zip(0..opened.queues()) {
            if let Some(queue) = opened.new_queue(index) {
                let renewal = Renewal {
                    station: station.clone(),
                    announces: opened.is_own() && index == 0,
                };
                outbox.push(NetworkChange::Attach(Box::new(Attachment {
                    queue,
                    renewal,
                })));
            }
        }
        self.is_up = self.monitor.as_ref().is_none_or(Monitor::has_link);
        // The addresses may have changed since the helper process has read them.
        self.is_stale = true;
        let current = addresses_of(&opened);
        opened.close_queues();
        self.opened = opened;
        self.serve(current, now);
    }

    /// Adopts the interface's MAC address. Returns true if it is a new one.
    fn note_mac(&mut self, mac: Option<[u8; 6]>) -> bool {
        let Some(mac) = mac.filter(|mac| *mac != self.mac) else {
            return false;
        };
        self.mac = mac;
        tracing::warn!(
            "interface {} has MAC address {} now, and the server answers to it",
            self.opened.name(),
            Mac(mac)
        );
        true
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
                self.opened.name(),
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
        let name = self.opened.name();
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
                        self.opened.name()
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
            Change::AddressAdded(_) | Change::AddressRemoved(_) => {
                self.is_stale |= self.can_follow();
            }
            Change::Mac(_) => self.is_stale |= self.can_follow_mac(),
            Change::Missed => {
                self.is_stale = true;
                self.is_up = self.monitor.as_ref().is_none_or(Monitor::has_link);
            }
            Change::Removed => {
                self.is_up = false;
                self.is_removed = true;
                (self.patience, self.retry) = (None, None);
                self.tell(Removal::Waits);
            }
            Change::Mtu(_) | Change::Renamed | Change::Returned => {}
        }
        let is_up = self.is_up;
        self.state.change(|status| status.is_up = is_up);
    }

    fn log_change(&self, change: Change) {
        let name = self.opened.name();
        let restart = if self.opened.is_own() {
            "the server still serves its own addresses"
        } else {
            "restart the server to serve the current addresses, because this device cannot follow \
             them"
        };
        match change {
            Change::Down if self.opened.hangs_while_down() => tracing::warn!(
                "interface {name} is down; netmap's calls hang until it is up, so the server neither \
                 serves nor ends; bring it up with: ip link set {name} up"
            ),
            Change::Down => tracing::warn!("interface {name} is down"),
            Change::Up => tracing::warn!("interface {name} is up"),
            Change::NoCarrier => tracing::warn!("interface {name} has no carrier"),
            Change::Carrier => tracing::warn!("interface {name} has a carrier again"),
            Change::AddressAdded(_) | Change::AddressRemoved(_)
                if self.can_follow() || self.is_removed => {}
            Change::AddressAdded(address) => {
                tracing::info!("interface {name} has a new address {address}; {restart}");
            }
            Change::AddressRemoved(address) => {
                tracing::info!("interface {name} has lost address {address}; {restart}");
            }
            // `note_mac` logs a change that the server follows.
            Change::Mac(_) if self.can_follow_mac() || self.is_removed => {}
            Change::Mac(_) if !self.opened.shares_mac() => {
                tracing::info!("interface {name} has a new MAC address; the server keeps its own");
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

/// Returns the addresses with which an interface was opened.
fn addresses_of(interface: &QueueAccess) -> CurrentAddresses {
    CurrentAddresses {
        addresses: interface.addresses().to_vec(),
        ..CurrentAddresses::default()
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
#[path = "follower_tests.rs"]
mod tests;
