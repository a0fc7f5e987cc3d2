//! What every server on these libraries shares off the data path: the command
//! line, logs, workers, signals, the start block and the summary.
//!
//! [`tcp()`] and [`udp()`] make a whole program of one application or service. A server
//! with options and content of its own implements [`Program`] and flattens
//! [`ServeArgs`] into its command line; [`serve`] does the rest.
//!
//! Nothing here is called for a packet: a worker runs `nmio`'s loop over its own
//! port and handler, generic over both, and meets this crate again only when it
//! ends. `tokio` lives here and nowhere below.
//!
//! # What a callback may do in the sandbox
//!
//! Before the first packet every thread becomes the server's user, loses all
//! capabilities and enters the sandbox ([`Sandbox`]). [`Program`] says which of
//! its hooks run after that; all callbacks of a handler do.
//!
//! Inside, code may allocate memory, take locks, read the clock, sleep, ask for
//! random bytes, and write to the log, to standard output and to standard error.
//! It must not do these:
//!
//! | attempt | outcome |
//! |---|---|
//! | opening a file for reading, also below [`Program::read_paths`] | an error: permission denied |
//! | opening a file for writing, or making, renaming or removing one | the process ends by SIGSYS |
//! | asking whether a file exists, or for its size | the process ends by SIGSYS |
//! | a new socket, thread or process | the process ends by SIGSYS |
//!
//! So a program opens its files and starts its threads in the `load` of
//! [`serve`]. Threads that it starts itself keep their rights: the sandbox holds
//! only those of this crate.
//!
//! When a server ends by SIGSYS, the kernel's log names the thread and the number
//! of the call (`type=1326`). `--no-sandbox` lifts the limits on files and calls
//! for a trial; user and capabilities are given up all the same.
//!
//! With `RUST_BACKTRACE=1` a panic in the sandbox shows its backtrace.

pub mod args;
mod connections;
mod crew;
mod embed;
mod error;
mod helper;
mod launch;
mod live;
pub mod log;
mod memory;
mod new_worker;
mod news;
pub mod program;
mod publisher;
pub mod report;
mod rights;
mod run;
mod secret;
mod signals;
mod simple;
mod summary;
mod worker;

pub use args::ServeArgs;
pub use connections::{ConnectionArgs, check_reserved};
pub use embed::{Handle, Server, Starting, embed};
pub use error::Error;
pub use live::{Snapshot, WorkerSnapshot};
pub use new_worker::NewWorker;
pub use program::{Counted, Listening, Prepared, Program, StartError, Tally, WorkerContext};
pub use rights::{Sandbox, UserSpec};
pub use run::serve;
pub use secret::Secret;
pub use simple::{Named, TcpWorker, tcp, udp};
pub use summary::Summary;
