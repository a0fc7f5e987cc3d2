//! Ctrl-C, SIGTERM and SIGHUP set a flag, so that destructors can clean up before the process
//! exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

pub(crate) fn install() -> Result<()> {
    let flag = SEEN.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("watching for Ctrl-C")?;
    }
    Ok(())
}

pub(crate) fn seen() -> bool {
    SEEN.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Returns an error if Ctrl-C, SIGTERM or SIGHUP has arrived.
pub(crate) fn check() -> Result<()> {
    ensure!(!seen(), "interrupted");
    Ok(())
}

/// Interval between two polls of [`wait_for`].
const TICK: Duration = Duration::from_millis(10);

/// Polls `found` until it returns a value. Returns `None` after `limit`, and an error after Ctrl-C,
/// SIGTERM or SIGHUP.
pub(crate) fn wait_for<T>(
    limit: Duration,
    mut found: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = found()? {
            return Ok(Some(value));
        }
        check()?;
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(TICK);
    }
}
