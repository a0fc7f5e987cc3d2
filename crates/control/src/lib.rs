//! Complete servers around an application: command line, workers, sandbox, signals, log, live
//! counters, start block and summary.
//!
//! ```no_run
//! use tcpip::{Application, Connection};
//!
//! struct Echo;
//!
//! impl Application for Echo {
//!     type State = ();
//!     type Message = ();
//!
//!     fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
//!         // If there is no room, the bytes are offered again later.
//!         conn.write_bytes(data).map_or(0, |()| data.len())
//!     }
//! }
//!
//! impl control::Named for Echo {
//!     const NAME: &'static str = "echo";
//!     const PORT: u16 = 7;
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     control::tcp(|_, _| Ok(Echo))
//! }
//! ```
//!
//! | you have | you call |
//! |---|---|
//! | an application on TCP, a service on UDP | [`tcp()`], [`udp()`]: one call is a complete `main` |
//! | options of your own | [`serve_loaded`] with [`Tcp`] or [`Udp`], or [`serve`] with another [`Program`], and [`ServeArgs`] in your command line |
//! | the same, also from a file | [`config::parse`] instead of clap's `parse`, and [`ConfigArgs`](config::ConfigArgs) |
//! | a file that is read again at reloads | [`serve_rereading`] |
//! | content that changes while it is served | [`serve`] with a [`Program`] that [can reload](Program::can_reload), and a [`Handover`] |
//! | the commands `status`, `reload`, `connections` and `trace` | [`ControlCommand`] among your subcommands |
//! | several applications or services | the same, with [`Both`]: one process on one interface |
//! | a program with a `main`, and maybe a runtime, of its own | [`embed()`], with a [`Program`]: a future, a [`Handle`], a [`Snapshot`] |
//!
//! This crate does not process packets. A worker runs `nmio`'s loop, which is generic over the port
//! and the server. About ten times a second, the worker publishes its counts through this crate. No
//! other crate of the stack uses `tokio`.
//!
//! # What a callback may do in the sandbox
//!
//! Before the first packet, all threads of [`serve`] and all workers of [`embed()`] drop their
//! privileges. They become the server's user, lose all capabilities, and enter the sandbox
//! ([`Sandbox`]). All callbacks of applications and services run in the sandbox, except
//! [`on_start`](tcpip::Application::on_start), which runs earlier. [`Program`] says which of its
//! hooks also run there.
//!
//! In the sandbox, code may allocate memory, take locks, read the clock, sleep, and ask for random
//! bytes. It may also write to the log, to standard output and to standard error. It must not
//! attempt the following:
//!
//! | attempt | outcome |
//! |---|---|
//! | opening a file for reading, also below [`Program::read_paths`] | an error: permission denied |
//! | opening a file for writing, or creating, renaming or removing a file | SIGSYS kills the process |
//! | asking whether a file exists, or for its size | SIGSYS kills the process |
//! | creating a socket, thread or process | SIGSYS kills the process |
//!
//! A program must therefore open its files before it enters the sandbox, for example in the `load`
//! of [`serve`].
//!
//! When SIGSYS kills a server, the kernel's log names the thread and the number of the system call
//! (`type=1326`). To test without the limits on files and system calls, use `--sandbox off`. The
//! threads still change their user and drop their capabilities.
//!
//! On FreeBSD, the process changes its user, and enters Capsicum's capability mode. Then no file can
//! be named, and no socket bound or connected: the attempt fails with an error. [`embed()`] leaves
//! the user and the sandbox of its workers to the program.
//!
//! With `RUST_BACKTRACE=1`, a panic in the sandbox prints a backtrace. The symbols for it take some 60 MB of
//! memory in each of the two processes, so leave the variable out in service.
//!
//! # Threads of your own
//!
//! A callback must not wait, so slow work belongs on other threads. A callback passes work to such
//! a thread through a bounded channel, without waiting for room in the channel. The thread answers
//! through the worker's mailbox. This crate confines only its own threads. Any other thread keeps
//! the privileges that it inherits from the thread that starts it.
//!
//! | program | start threads in | privileges of these threads |
//! |---|---|---|
//! | [`serve`] | `load`, which passes the sending end of their channel to the [`Program`]; `serve` refuses to start if threads already exist | those with which the server was started |
//! | [`tcp()`], [`udp()`] | `make`, once for all workers ([`OnceLock`](std::sync::OnceLock)) | those with which the server was started; on device `auto`, the threads are in the server's network namespace and cannot use this host's network |
//! | [`embed()`] | any place, at any time; a runtime's tasks work as well | unchanged |
//!
//! Such a thread should exit when its channel is closed. The [`Program`] holds the sending end of
//! the channel, and is dropped when the workers have ended.

pub mod args;
mod both;
mod client;
pub mod config;
mod confined;
mod connections;
mod content_files;
mod embed;
mod endpoint;
mod error;
mod file_read;
mod file_version;
mod follower;
mod handover;
mod helper;
mod interface_state;
mod latency;
mod launch;
mod live;
pub mod log;
mod many;
mod memory;
mod metric_help;
mod metrics;
mod mistakes;
mod named;
mod new_worker;
mod notices;
mod observed;
mod ordinary_file;
mod peers;
mod place;
mod port_args;
mod port_conflicts;
mod port_owner;
mod prefix;
mod privileges;
mod program;
pub mod progress;
mod publisher;
mod questions;
mod readers;
mod ready;
mod records;
mod reload;
pub mod report;
mod returning;
mod run;
mod secret;
mod signals;
mod simple;
pub mod status;
mod status_log;
mod summary;
mod supervisor;
mod system;
mod table;
mod tally;
mod tcp;
mod tcp_counts;
mod terminal;
mod trace;
mod transitions;
mod udp;
pub mod units;
mod watch;
mod worker;
mod workers;
mod writable;

pub use args::{ServeArgs, network_args};
pub use both::Both;
pub use client::{ControlCommand, ListLine, SocketArgs};
pub use connections::{ConnectionArgs, TcpArgs, check_reserved};
pub use content_files::ContentFiles;
pub use embed::{Answer, ConnectionList, Handle, Server, Starting, TraceError, embed};
pub use endpoint::{ControlSocket, EndpointArgs, ListenAddress};
pub use error::{Error, OptionError};
pub use file_read::{ALIGNMENT, FileRead};
pub use file_version::{FileVersion, FileVersions};
pub use glob::Pattern;
pub use handover::{Handover, Turn};
pub use live::{Snapshot, WorkerSnapshot};
pub use many::{Many, NotOfServer};
pub use metrics::MetricsFormat;
pub use mistakes::Mistakes;
pub use named::Named;
pub use new_worker::NewWorker;
pub use nmio::WrongWords;
pub use ordinary_file::open_ordinary;
pub use peers::{Mailboxes, Peers};
pub use place::Place;
pub use port_args::PortArgs;
pub use prefix::Prefix;
pub use privileges::{Sandbox, UserSpec};
pub use program::{
    ContentList, ContentNames, Count, CountKind, Counted, Labels, Listening, Meanings,
    MeasuredTimes, PortOwner, PreparedPackets, Program, Reloaded, StartError, Tally, Watched,
    WorkerContext,
};
pub use publisher::take_snapshot;
pub use readers::{Readers, Source};
pub use records::{
    CLIENT_LEN, FrameDestination, LogDestination, LogName, RecordLog, RecordSender,
    client_from_bytes, client_to_bytes,
};
pub use run::{serve, serve_loaded, serve_rereading};
pub use secret::Secret;
pub use simple::{tcp, udp};
pub use summary::Summary;
pub use system::{CONFINES_EACH_THREAD, FileHints, free_memory};
pub use table::filter::ConnectionFilter;
pub use table::line::{ConnectionStatus, ListSummary, SendingStatus};
pub use table::walk::Walk;
pub use tcp::Tcp;
pub use tcp_counts::tally_tcp;
pub use trace::session::{TraceRequest, TraceSummary};
pub use udp::{Udp, tally_udp};
