//! The log on standard error, and blocks of lines on standard output. The data path logs nothing.

mod stream;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _, Write, stderr, stdout};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use serde::Serialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use crate::report::{Block, counted};
use stream::Stream;
pub(crate) use stream::limit_waits;

/// Whether the log is JSON. Like the subscriber of log events, this belongs to the whole process.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether a spinner is in the last line of the terminal. A line of the log then replaces it.
static SHARES_LINE: AtomicBool = AtomicBool::new(false);

/// Moves the cursor to the start of the terminal's line, and empties the line (ECMA-48, `CR` and `EL`).
pub(crate) const CLEAR_LINE: &str = "\r\x1b[2K";

/// Values of `--log`: the lowest severity that is logged.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Log nothing.
    Off,
    /// Errors that end the program.
    Error,
    /// Problems that need attention.
    Warn,
    /// Events outside of packet processing.
    Info,
    /// Details for developers of the program.
    Debug,
    /// Everything.
    Trace,
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

/// Values of `--log-format`: the form of the log, the start block and the summary.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object for each event, on a line of its own.
    Json,
}

/// Writes log lines of `level` and above to standard error. Only the first call of a process has an
/// effect.
pub fn init(level: LogLevel, format: LogFormat) {
    for (stream, is_terminal) in [
        (&STDERR, stderr().is_terminal()),
        (&STDOUT, stdout().is_terminal()),
    ] {
        if is_terminal {
            stream.set_terminal();
        }
    }
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(|| Stderr)
        // A message about such an error would go to the same place, and fail too.
        .log_internal_errors(false)
        .with_target(false);
    // An error means that the process already has a subscriber, for example in a test. The existing
    // subscriber stays in use.
    match format {
        LogFormat::Text => {
            let subscriber = builder.with_ansi(stderr().is_terminal()).finish();
            let _ = tracing::subscriber::set_global_default(subscriber);
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true);
            let subscriber = builder.with_current_span(false).with_span_list(false);
            if tracing::subscriber::set_global_default(subscriber.finish()).is_ok() {
                IS_JSON.store(true, Ordering::Relaxed);
                log_panics();
            }
        }
    }
}

/// Same as [`init`], for a command `check`. Some of what it finds are warnings, so it logs them at any level.
pub fn init_for_check(level: LogLevel, format: LogFormat) {
    init(level.max(LogLevel::Warn), format);
}

/// Writes a message to standard error, whatever the level of the log is. It explains why a command
/// fails, so it must not be lost. In text, the program's name stands in front of the message.
pub fn error(program: &str, message: impl Display) {
    let message = message.to_string();
    if is_json() {
        write_json(&mut Stderr, Level::Error, &message, None);
    } else {
        for line in message.lines() {
            if line.starts_with(' ') {
                tell(line);
            } else {
                tell(format_args!("{program}: {line}"));
            }
        }
    }
}

/// Writes a text and a line feed to standard error. Unlike with `eprintln`, it is no error if standard error
/// cannot be written: there is no better place for the text. One write for each text keeps those of
/// several threads apart.
pub fn tell(text: impl Display) {
    // This write never fails.
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

/// Writes findings about the content to standard error, whatever the level of the log is. Each line
/// is an event.
pub fn finding(message: &str) {
    for line in message.lines() {
        if is_json() {
            write_json(&mut Stderr, Level::Warn, line, None);
        } else {
            tell(line);
        }
    }
}

/// Prints a block to standard output. As JSON, it is one event with this message. A block is lost if
/// standard output is closed, or if its reader is stuck.
pub(crate) fn print(message: &str, block: &Block) {
    let mut text = Vec::new();
    if is_json() {
        write_json(&mut text, Level::Info, message, Some(block));
    } else {
        text = block.to_string().into_bytes();
    }
    STDOUT.write(stdout().as_fd(), &text, |blocks| {
        let blocks = counted(blocks, "block");
        let message = format!("standard output took nothing, so it has lost {blocks}");
        warning(&message, "lost:")
    });
}

/// Writes a line about the progress of a load, unless the log's level is `off` or `error`.
pub(crate) fn note(message: &str) {
    if !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    if is_json() {
        write_json(&mut Stderr, Level::Info, message, None);
    } else {
        tell(message);
    }
}

/// Says whether a spinner is in the last line of the terminal.
pub(crate) fn share_line(has_spinner: bool) {
    SHARES_LINE.store(has_spinner, Ordering::Relaxed);
}

/// Draws on the terminal at standard error. A drawing that finds no room is lost, and the next one takes its
/// place.
pub(crate) fn draw(drawing: &str) {
    STDERR.draw(stderr().as_fd(), drawing.as_bytes());
}

/// Standard error. Each write is a whole line, and it replaces a spinner's line, which is then
/// drawn again. A write never fails, and a server's write soon ends: lines that are lost are counted, and
/// told later.
struct Stderr;

static STDERR: Stream = Stream::new();
static STDOUT: Stream = Stream::new();

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if SHARES_LINE.load(Ordering::Relaxed) {
            STDERR.write(
                stderr().as_fd(),
                &[CLEAR_LINE.as_bytes(), line].concat(),
                lost,
            );
        } else {
            STDERR.write(stderr().as_fd(), line, lost);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the line of the log about so many lost ones.
fn lost(lines: u64) -> Vec<u8> {
    let lines = counted(lines, "line");
    let message = format!("standard error took nothing, so the log has lost {lines}");
    warning(&message, format_args!("{}  WARN", now()))
}

/// Returns a line with a warning: an event of JSON, or text behind `label`.
fn warning(message: &str, label: impl Display) -> Vec<u8> {
    let mut line = Vec::new();
    if is_json() {
        write_json(&mut line, Level::Warn, message, None);
    } else {
        line = format!("{label} {message}\n").into_bytes();
    }
    line
}

fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Logs panics of this process from now on. The standard library would write them as text, and would wait
/// for a reader that is stuck.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(log_panic));
}

/// Logs a panic as one event.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    let message = match backtrace.status() {
        BacktraceStatus::Captured => format!("thread {name}: {panic}\n{backtrace}"),
        _ => format!("thread {name}: {panic}"),
    };
    if is_json() {
        write_json(&mut Stderr, Level::Error, &message, None);
    } else {
        tell(message);
    }
}

/// The severities of events that this module writes itself, as `tracing` names them.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Level {
    Error,
    Warn,
    Info,
}

/// Returns the present time, in the form in which `tracing` writes it.
fn now() -> String {
    let mut timestamp = String::new();
    // Writing to a string cannot fail.
    let _: fmt::Result = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    timestamp
}

/// An event, in the form in which `tracing` writes events as JSON.
#[derive(Serialize)]
struct Event<'a> {
    timestamp: &'a str,
    level: Level,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<&'a Block>,
}

/// Writes an event as one line, in one call, so that lines of several threads do not mix.
fn write_json(out: &mut impl Write, level: Level, message: &str, block: Option<&Block>) {
    let event = Event {
        timestamp: &now(),
        level,
        message,
        block,
    };
    if let Ok(mut line) = serde_json::to_vec(&event) {
        line.push(b'\n');
        // If the stream cannot be written, there is no better place for the event.
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_event_is_one_line_of_json() {
        let mut block = Block::default();
        block.line("listening", "192.0.2.1");
        block.line("try", "curl \"a\"");
        block.line("try", "dig\nb");
        let mut line = Vec::new();
        write_json(&mut line, Level::Info, "ready", Some(&block));
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line.lines().count(), 1);
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["level"], "INFO");
        assert_eq!(event["message"], "ready");
        assert!(event["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(event["block"]["listening"], "192.0.2.1");
        assert_eq!(event["block"]["try"][0], "curl \"a\"");
        assert_eq!(event["block"]["try"][1], "dig\nb");
    }
}
