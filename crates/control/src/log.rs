//! The log, on standard error. The data path logs nothing.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;

use crate::args::LogLevel;

/// Writes log lines of `level` and above to standard error. Only the first call of a process has an
/// effect.
pub fn init(level: LogLevel) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .finish();
    // An error means that the process already has a subscriber, for example in a test. The existing
    // subscriber stays in use.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
