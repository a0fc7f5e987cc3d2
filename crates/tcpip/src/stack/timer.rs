//! The purposes of per-connection deadlines, and an application's own timers.

/// What an application waits for when it sets a [deadline](crate::Connection::set_deadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deadline {
    /// The remaining bytes of a request whose first byte has arrived, or the application's answer to
    /// it.
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
    /// Number of timers that an application can use.
    pub const COUNT: usize = 4;

    /// Returns the timer with this number, counted from 0.
    ///
    /// # Panics
    ///
    /// If `number` is not below [`COUNT`](Self::COUNT). In a constant this is a compile error.
    pub const fn new(number: usize) -> Self {
        assert!(number < Self::COUNT, "an application has four timers");
        Self(number as u8)
    }

    /// Returns the timer's number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}
