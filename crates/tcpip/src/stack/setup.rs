//! A stack is made, loaded and looked at.

use std::collections::VecDeque;
use std::convert::Infallible;

use nmio::{Capabilities, Instant, Mailbox, TimerWheel};

use super::{Asked, Connections, Flood, Pace, Stack, Standing};
use crate::config::Config;
use crate::congestion::CongestionControl;
use crate::connection::{Context, Record};
use crate::content::{Contents, Family};
use crate::counters::Counters;
use crate::emit::Render;
use crate::pools::Pool;
use crate::stack::Application;
use crate::table::{Keys, Table};
use crate::wire::TIMESTAMPS_LEN;
use crate::writes::Writes;

/// What the timer wheel takes for each connection.
const TIMER_LEN: usize = 16;

impl<A: Application, C> Stack<A, C> {
    /// Bytes of the tables that [`new`](Self::new) reserves for
    /// [`Config::max_connections`]. They are touched as connections are first
    /// used.
    pub fn reserved_bytes(config: &Config) -> usize {
        let most = config.clamped().max_connections;
        // `free` and `blocked`.
        let indices = 2 * size_of::<u32>();
        let records = size_of::<A::State>() + size_of::<Standing>() + size_of::<Record<C>>();
        let each = records + TIMER_LEN + indices;
        most as usize * each + Table::bytes(most) + Context::<C>::reserved_bytes(most)
    }
}

impl<A: Application> Stack<A> {
    /// A stack with [`Cubic`](crate::Cubic). `capabilities` are those of the port that it will
    /// be used with; `secret` keys the hash of the connection table and the
    /// initial sequence numbers, and must be random and unknown to others.
    ///
    /// Where the system refuses [`reserved_bytes`](Stack::reserved_bytes) of
    /// memory, the process aborts, as with all allocations that fail.
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
    /// A stack with the congestion control `C`; otherwise as
    /// [`new`](Stack::new).
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

    /// A stack with the congestion control `C`, and an application that `make` makes
    /// when it has added its contents; otherwise as [`new`](Stack::new).
    ///
    /// # Errors
    /// That of `make`.
    pub fn load<E>(
        config: &Config,
        make: impl FnOnce(&mut Contents) -> Result<A, E>,
        capabilities: &Capabilities,
        secret: [u64; 4],
        now: Instant,
    ) -> Result<Self, E> {
        let config = config.clamped();
        let mut cx = Context::new(&config, capabilities.mtu);
        let most = config.max_connections;
        let own_mss = cx.own_mss;
        let mut contents = Contents::new(
            config.mode,
            own_mss.of(Family::V4) - TIMESTAMPS_LEN as u16,
            own_mss.of(Family::V6) - TIMESTAMPS_LEN as u16,
            config.class_budget,
        );
        let mut app = make(&mut contents)?;
        let mut writes = Writes::new(Pool::WriteBuffers, config.max_write_buffers);
        let mut asked = Asked::default();
        app.on_start(&mut Connections {
            states: &mut [],
            standings: &mut [],
            records: &mut [],
            contents: &mut contents,
            writes: &mut writes,
            cx: &mut cx,
            asked: &mut asked,
            reached: &mut Vec::new(),
            now,
        });
        Ok(Self {
            app,
            // Reserved, so that nothing moves or is allocated later; the
            // memory is touched as the number of connections grows.
            states: Vec::with_capacity(most as usize),
            standings: Vec::with_capacity(most as usize),
            records: Vec::with_capacity(most as usize),
            free: Vec::with_capacity(most as usize),
            table: Table::new(most),
            keys: Keys::new(secret),
            wheel: TimerWheel::new(most, now),
            contents,
            writes,
            asked,
            mailbox: None,
            cx,
            pace: Pace::of(config.min_rate),
            config,
            half_open: 0,
            time_waits: 0,
            opened: 0,
            reached: Vec::new(),
            flood: Flood::default(),
            samplers: Default::default(),
            blocked: VecDeque::with_capacity(most as usize),
            hung_up: 0,
            trim_at: now,
            now,
            #[cfg(any(test, fuzzing))]
            flights: Vec::new(),
        })
    }

    /// Gives the application the messages that come by `mailbox`:
    /// [`Application::on_message`]. The loop must know its
    /// [bell](ip::Server::with_bell).
    pub fn set_mailbox(&mut self, mailbox: Mailbox<A::Message>) {
        self.mailbox = Some(mailbox);
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application, to be changed.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// All contents.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// All contents, to be loaded and removed.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// The application and all contents: for loading what the application
    /// then refers to.
    pub fn parts_mut(&mut self) -> (&mut A, &mut Contents) {
        (&mut self.app, &mut self.contents)
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// Connections now, half-open ones and those in TIME-WAIT included.
    pub fn connections(&self) -> u32 {
        (self.records.len() - self.free.len()) as u32
    }

    /// Whether connections are accepted on `port`.
    #[inline]
    pub fn serves(&self, port: u16) -> bool {
        self.config.ports.contains(&port)
    }
}

impl<A: Application> Render for A {
    #[inline(always)]
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        Application::render(self, params, slot);
    }
}
