//! Construction of a stack, and access to its parts.

use std::collections::VecDeque;
use std::convert::Infallible;

use nmio::{Capabilities, Instant, Mailbox, TimerWheel};

use super::overview::History;
use super::{ConnectionTable, Connections, Flood, Housekeeping, Requests, Sources, Stack, pace_of};
use crate::config::Config;
use crate::congestion::CongestionControl;
use crate::connection::StateCounts;
use crate::connection::conn::{Context, Record};
use crate::content::{Contents, Family};
use crate::counters::Counters;
use crate::emit::Render;
use crate::pools::{LendingPool, Pool};
use crate::stack::Application;
use crate::table::{Keys, Table};
use crate::wire::TIMESTAMPS_LEN;

/// Number of bytes that the timer wheel needs for each connection.
const TIMER_LEN: usize = 16;

impl<A: Application, C> Stack<A, C> {
    /// Returns the size in bytes of the tables that [`new`](Self::new) reserves for
    /// [`Config::max_connections`]. Physical memory is used only when connections are opened.
    pub fn reserved_bytes(config: &Config) -> usize {
        let max_connections = config.clamped().max_connections;
        // `blocked` has room for one index per connection.
        max_connections as usize * (TIMER_LEN + size_of::<u32>())
            + ConnectionTable::<A::State, C>::reserved_bytes(max_connections)
            + Context::<C>::reserved_bytes(max_connections)
    }
}

impl<S, C> ConnectionTable<S, C> {
    /// Returns the size in bytes of what [`new`](Self::new) reserves.
    fn reserved_bytes(connections: u32) -> usize {
        let cold = size_of::<Housekeeping>() + size_of::<History>();
        let each = size_of::<Record<C>>() + size_of::<S>() + cold + size_of::<u32>();
        connections as usize * each + Table::bytes(connections)
    }

    /// Creates an empty table with the full capacity, so that its vectors never reallocate. Physical
    /// memory is used only as the number of connections grows.
    fn new(connections: u32) -> Self {
        let capacity = connections as usize;
        Self {
            records: Vec::with_capacity(capacity),
            states: Vec::with_capacity(capacity),
            housekeeping: Vec::with_capacity(capacity),
            histories: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            index: Table::new(connections),
            opened: 0,
        }
    }
}

impl<A: Application> Stack<A> {
    /// Creates a stack with [`Cubic`](crate::Cubic) congestion control. `capabilities` describe the
    /// stack's port. `secret` is the key for the hash tables, the initial sequence numbers and the
    /// SYN cookies, so it must be random and secret.
    ///
    /// If the system refuses [`reserved_bytes`](Stack::reserved_bytes) bytes of memory, the process
    /// aborts, as after any failed allocation.
    pub fn new(
        config: &Config,
        app: A,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Self {
        Self::with_congestion_control(config, app, capabilities, secret, now)
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Creates a stack with the congestion control `C`. Otherwise works like [`new`](Stack::new).
    pub fn with_congestion_control(
        config: &Config,
        app: A,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Self {
        let make = |_: &mut Contents| Ok::<_, Infallible>(app);
        let Ok(stack) = Self::load(config, make, capabilities, secret, now);
        stack
    }

    /// Creates a stack with the congestion control `C`. `make` adds the application's contents and
    /// returns the application. Otherwise works like [`new`](Stack::new).
    ///
    /// # Errors
    ///
    /// Returns the error of `make`.
    pub fn load<E>(
        config: &Config,
        make: impl FnOnce(&mut Contents) -> Result<A, E>,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Result<Self, E> {
        let config = config.clamped();
        let mut cx = Context::new(&config, capabilities.mtu);
        let max_connections = config.max_connections;
        let own_mss = cx.own_mss;
        let mut contents = Contents::new(
            config.mode,
            own_mss.of(Family::V4) - TIMESTAMPS_LEN as u16,
            own_mss.of(Family::V6) - TIMESTAMPS_LEN as u16,
            config.class_budget,
        );
        let mut app = make(&mut contents)?;
        let writes = LendingPool::new(Pool::WriteBuffers, config.max_write_buffers);
        let mut sources = Sources { contents, writes };
        let mut table = ConnectionTable::new(max_connections);
        let mut requests = Requests::default();
        app.on_start(&mut Connections {
            table: &mut table,
            sources: &mut sources,
            cx: &mut cx,
            requests: &mut requests,
            now,
        });
        Ok(Self {
            app,
            table,
            keys: Keys::new(secret),
            wheel: TimerWheel::new(max_connections, now),
            sources,
            join_buffers: Vec::new(),
            requests,
            mailbox: None,
            cx,
            pace: pace_of(config.min_rate.max(1)),
            config,
            flood: Flood::default(),
            samplers: Default::default(),
            blocked: VecDeque::with_capacity(max_connections as usize),
            draining: None,
            shut_down_tcbs: 0,
            trim_at: now,
            now,
            #[cfg(any(test, feature = "fuzzing"))]
            flights: Vec::new(),
        })
    }

    /// Sets the mailbox whose messages the stack passes to [`Application::on_message`]. Also pass
    /// the mailbox's bell to [`with_bell`](ip::Server::with_bell), so that messages wake the event
    /// loop.
    pub fn set_mailbox(&mut self, mailbox: Mailbox<A::Message>) {
        self.mailbox = Some(mailbox);
    }

    /// Returns the application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Returns the application mutably.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Returns the contents.
    pub fn contents(&self) -> &Contents {
        &self.sources.contents
    }

    /// Returns the contents mutably, so that the caller can add or remove content items.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.sources.contents
    }

    /// Returns the application and the contents mutably, so that the application can add content
    /// items and store their ids.
    pub fn parts_mut(&mut self) -> (&mut A, &mut Contents) {
        (&mut self.app, &mut self.sources.contents)
    }

    /// Returns the counters since the stack was created.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// Returns the current number of connections, including half-open ones and those in TIME-WAIT.
    pub fn connections(&self) -> u32 {
        self.table.len() - self.table.free.len() as u32
    }

    /// Returns the current number of connections, excluding half-open ones and those in TIME-WAIT.
    pub fn open_connections(&self) -> u32 {
        self.cx.states.open()
    }

    /// Returns the current number of connections in each state.
    pub fn states(&self) -> &StateCounts {
        &self.cx.states
    }

    /// Returns true if the stack accepts connections on `port`.
    #[inline]
    #[expect(
        clippy::manual_contains,
        reason = "`contains` calls a function for long slices"
    )]
    pub fn serves(&self, port: u16) -> bool {
        self.config.ports.iter().any(|own| *own == port)
    }
}

impl<A: Application> Render for A {
    #[inline(always)]
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        Application::render(self, params, slot);
    }
}
