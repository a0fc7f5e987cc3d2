//! Runs the lines with `set`, which change settings of the stack by name.

use std::time::Duration;

use crate::{Config, SynCookies, WhenFull};

use super::language::parse_seconds;

/// The TCP options that our SYN-ACK may contain in addition to the MSS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switches {
    pub(crate) scale: bool,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
}

impl Switches {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            scale: config.window_scaling,
            sack: config.sack,
            timestamps: config.timestamps,
        }
    }
}

/// Sets the setting `name` to `value`.
///
/// # Errors
///
/// Fails if the name is unknown or the value is invalid.
pub(crate) fn set(
    config: &mut Config,
    mtu: &mut usize,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let number = || {
        value
            .parse::<u32>()
            .map_err(|_| format!("{value} is not a number"))
    };
    let small = || {
        value
            .parse::<u8>()
            .map_err(|_| format!("{value} is not a number up to 255"))
    };
    let time = || -> Result<Duration, String> { parse_seconds(value) };
    let switch = || match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{value} is neither on nor off")),
    };
    match name {
        "mtu" => *mtu = number()? as usize,
        "max_connections" => config.max_connections = number()?,
        "max_half_open" => config.max_half_open = number()?,
        "max_time_wait" => config.max_time_wait = number()?,
        "recv_buffer" => config.recv_buffer = number()? as usize,
        "max_recv_buffers" => config.max_recv_buffers = number()?,
        "max_write_buffers" => config.max_write_buffers = number()?,
        "max_entry_lists" => config.max_entry_lists = number()?,
        "class_budget" => config.class_budget = number()? as usize,
        "syn_ack_retries" => config.syn_ack_retries = small()?,
        "retries" => config.retries = small()?,
        "probes" => config.probes = small()?,
        "time_wait" => config.time_wait = time()?,
        "fin_wait" => config.fin_wait = time()?,
        "idle_timeout" => config.idle_timeout = time()?,
        "keep_alive" => config.keep_alive = Some(time()?),
        "user_timeout" => config.user_timeout = Some(time()?),
        "min_rto" => config.min_rto = time()?,
        "quick_min_rto" => config.quick_min_rto = time()?,
        "window_scaling" => config.window_scaling = switch()?,
        "sack" => config.sack = switch()?,
        "timestamps" => config.timestamps = switch()?,
        "ecn" => config.ecn = switch()?,
        "pacing" => config.pacing = switch()?,
        "max_per_address" => config.max_per_address = Some(number()?),
        "when_full" => {
            config.when_full = match value {
                "refuse" => WhenFull::Refuse,
                "evict" => WhenFull::Evict,
                _ => return Err(format!("{value} is neither refuse nor evict")),
            }
        }
        "syn_cookies" => {
            config.syn_cookies = match value {
                "auto" => SynCookies::Auto,
                "always" => SynCookies::Always,
                "never" => SynCookies::Never,
                _ => return Err(format!("{value} is neither auto, always nor never")),
            }
        }
        "reset_unknown" => config.reset_unknown = switch()?,
        other => return Err(format!("nothing called {other} can be set")),
    }
    Ok(())
}

/// Returns the number after `name:` in the `Debug` form of a structure.
pub(crate) fn field(fields: &str, name: &str) -> Option<u32> {
    let mut rest = fields;
    loop {
        let at = rest.find(name)?;
        let before = rest[..at].chars().next_back();
        let after = &rest[at + name.len()..];
        if let Some(value) = after.strip_prefix(": ")
            && before.is_some_and(|c| !c.is_alphanumeric() && c != '_')
        {
            let end = value
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(value.len());
            return value[..end].parse().ok();
        }
        rest = after;
    }
}
