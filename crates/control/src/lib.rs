//! What every server on these libraries shares off the data path: the command
//! line, logs, workers, signals, the start block and the summary.
//!
//! A server implements [`Program`] and flattens [`ServeArgs`] into its own
//! command line; [`serve`] does the rest. Nothing here is called for a packet:
//! a worker runs `nmio`'s loop over its own port and handler, generic over
//! both, and meets this crate again only when it ends. `tokio` lives here and
//! nowhere below.

pub mod args;
mod connections;
mod crew;
mod error;
mod helper;
pub mod log;
mod memory;
mod news;
pub mod program;
pub mod report;
mod rights;
mod run;
mod secret;
mod signals;
mod worker;

pub use args::ServeArgs;
pub use connections::{ConnectionArgs, check_reserved};
pub use error::Error;
pub use program::{Counted, Listening, Prepared, Program, StartError, Tally, WorkerContext};
pub use rights::{Sandbox, UserSpec};
pub use run::serve;
pub use secret::Secret;
