//! What an application is told of by the time that passes: the deadline that each
//! connection has, and the few timers that are the application's own.

/// What an application waits for until a
/// [deadline](crate::Connection::set_deadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deadline {
    /// The whole of a request whose first byte has arrived.
    Request,
}

/// One of the application's own timers: see
/// [`Connections::set_timer`](crate::Connections::set_timer).
///
/// ```
/// use tcpip::Timer;
///
/// const TICK: Timer = Timer::new(0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timer(u8);

impl Timer {
    /// How many timers an application has.
    pub const COUNT: usize = 4;

    /// The timer with this number, from 0.
    ///
    /// # Panics
    /// When there are not so many; a constant does not compile then.
    pub const fn new(number: usize) -> Self {
        assert!(number < Self::COUNT, "an application has four timers");
        Self(number as u8)
    }

    /// Its number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}
