//! An interface that can be opened again after its removal, and the queues whose ports wait for this.

use std::sync::{Arc, Mutex, PoisonError};

use nmio::device::{
    CurrentAddresses, DeviceError, Interface, InterfaceConfig, PacketMemory, QueueAccess,
    QueueSource,
};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::follower::{Follower, Opener, Removal};
use crate::interface_state::InterfaceState;

/// Allows one thread at a time to open an interface. Opening chooses free names and addresses, and
/// temporarily disables libbpf's messages for the whole process.
static OPENING: Mutex<()> = Mutex::new(());

/// Number of messages about removals that may wait. The control thread takes them at once.
const REMOVALS: usize = 64;

/// An interface, with what is needed to open it again after its removal. Dropping this value closes
/// the interface.
pub(crate) struct ReturningInterface {
    config: InterfaceConfig,
    /// `None` before the first opening, and after one that failed.
    opened: Option<Interface>,
    /// The packet memory of the workers whose ports wait for the return of the interface.
    memory: Vec<PacketMemory>,
}

impl ReturningInterface {
    /// Returns a value for the interface of this configuration, which is not open yet.
    pub(crate) fn new(config: InterfaceConfig) -> Self {
        Self {
            config,
            opened: None,
            memory: Vec::new(),
        }
    }

    /// Opens the interface for the first time.
    ///
    /// # Errors
    /// If the interface cannot be opened.
    pub(crate) fn open(&mut self) -> Result<&Interface, DeviceError> {
        let interface = open(&self.config)?;
        Ok(self.opened.insert(interface))
    }

    /// Keeps the packet memory of the workers, to register it for the queues of another interface. The
    /// workers cannot register it, because they have dropped the capability that this may need.
    pub(crate) fn keep(&mut self, memory: Vec<PacketMemory>) {
        self.memory = memory;
    }

    /// Makes the steering program and the reserved ports follow the addresses of the interface. Returns
    /// `None` if it is not open, or cannot do so.
    pub(crate) fn follow_addresses(&mut self) -> Option<Result<CurrentAddresses, DeviceError>> {
        self.opened.as_mut()?.follow_addresses()
    }

    /// Opens the interface that has taken the place of the removed one, and registers the packet memory
    /// of the workers for its queues.
    ///
    /// # Errors
    /// If the interface cannot be opened, or [`Error::Refused`] if the kernel refuses the memory.
    pub(crate) fn open_again(&mut self) -> Result<&Interface, Error> {
        // What was attached to the removed interface is released first.
        drop(self.opened.take());
        let interface = open(&self.config)?;
        // If the number of queues has changed, the server ends.
        for (queue, memory) in (0..interface.queues()).zip(&self.memory) {
            let registered = interface.register_memory(queue, memory);
            registered.map_err(|error| {
                Error::Refused(format!("the packet memory cannot be registered: {error}"))
            })?;
        }
        Ok(self.opened.insert(interface))
    }
}

impl Opener for ReturningInterface {
    fn follow(&mut self) -> Result<CurrentAddresses, Error> {
        match self.follow_addresses() {
            Some(outcome) => Ok(outcome?),
            None => Ok(CurrentAddresses::default()),
        }
    }

    fn reopen(&mut self) -> Result<QueueAccess, Error> {
        self.open_again()
            .map(|interface| QueueAccess::clone(interface))
    }
}

fn open(config: &InterfaceConfig) -> Result<Interface, DeviceError> {
    let _guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    Interface::open(config)
}

/// The queues of an interface for the workers, and what follows its changes.
pub(crate) struct Queues {
    /// One for each worker.
    pub(crate) sources: Vec<QueueSource>,
    pub(crate) follower: Follower,
    /// The interface, for the endpoints.
    pub(crate) state: Arc<InterfaceState>,
    /// News of removals, if the ports wait for the return of the interface.
    pub(crate) removals: mpsc::Receiver<Removal>,
}

impl Queues {
    /// Takes the queues of the interface, and starts to watch it. Must be called before the thread
    /// drops its privileges.
    ///
    /// # Errors
    /// If the kernel cannot report changes to the interface.
    pub(crate) fn take(interface: &mut QueueAccess) -> Result<Self, Error> {
        let state = Arc::new(InterfaceState::of(interface));
        let follower = Follower::new(interface, &state);
        let mut follower = follower.map_err(Error::system("watching the interface"))?;
        let (removals_in, removals) = mpsc::channel(REMOVALS);
        let sources = (0..interface.queues()).map(|index| interface.queue(index));
        let sources = if interface.may_return() {
            follower.wait_for_return(removals_in);
            sources.map(QueueSource::wait_for_return).collect()
        } else {
            sources.collect()
        };
        // A queue of a removed interface is freed when no descriptor is left.
        interface.close_queues();
        Ok(Self {
            sources,
            follower,
            state,
            removals,
        })
    }
}
