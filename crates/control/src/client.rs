//! The commands that talk to a running server through its control socket.

mod connections;
mod lines;
mod socket;
mod trace;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use connections::ConnectionsArgs;
pub use lines::ListLine;
pub use socket::SocketArgs;
use socket::{Wait, ask, unknown};
use trace::TraceArgs;

use crate::config::print;
use crate::log::tell;
use crate::status::{LastReload, ReloadResult, Status};
use crate::terminal;

/// The commands that control a running server, for use with `#[command(flatten)]` among the
/// program's subcommands.
#[derive(Subcommand, Clone, Debug)]
pub enum ControlCommand {
    /// Make a running server read its content again, and wait for the result.
    ///
    /// The exit status is 1 if new content cannot be served. The server then keeps the old content of
    /// the part that has an error, such as a site or the zones.
    Reload(ReloadArgs),
    /// Show the state, the counts and the rates of a running server.
    ///
    /// On a terminal this is a page that is refreshed each second, until q is pressed. Elsewhere,
    /// and with --once, it is printed once.
    Status(StatusArgs),
    /// Show the TCP connections of a running server, as `ss -tin` would.
    ///
    /// Each connection has a line with its state, the server's address and the client's, and a line
    /// with its counts. Times have units, and all other numbers are bytes, segments or retries.
    Connections(ConnectionsArgs),
    /// Capture the packets of one client, for tcpdump and Wireshark.
    ///
    /// On AF_XDP, captures on the interface do not show the packets of the server. This command shows
    /// the frames that the server receives and sends, in the format pcapng. Ctrl-C ends the trace.
    Trace(TraceArgs),
}

/// The options of `reload`.
#[derive(Args, Clone, Debug)]
pub struct ReloadArgs {
    /// Read only this content again: the folder of a site, or the name of a zone. Without it, all
    /// content is read.
    name: Option<String>,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: SocketArgs,
}

/// The options of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Print once, also on a terminal.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    at: SocketArgs,
}

impl ControlCommand {
    /// Runs the command for the program with this name. Returns the exit status.
    pub fn run(&self, program: &str) -> ExitCode {
        let outcome = match self {
            Self::Reload(args) => args.run(program),
            Self::Status(args) => args.run(program),
            Self::Connections(args) => args.run(program),
            Self::Trace(args) => args.run(program),
        };
        outcome.unwrap_or_else(|message| {
            tell(format_args!("{program}: {message}"));
            ExitCode::FAILURE
        })
    }
}

impl ReloadArgs {
    fn run(&self, program: &str) -> Result<ExitCode, String> {
        let query = match &self.name {
            None => String::new(),
            Some(name) => {
                let name = absolute(name);
                format!("?only={}", utf8_percent_encode(&name, NON_ALPHANUMERIC))
            }
        };
        let socket = self.at.socket(program);
        // A reload may take long, so only another question shows whether the server answers at all.
        ask(&socket, Method::GET, "/health", Wait::Briefly)?;
        let target = format!("/reload{query}");
        let (_, body) = ask(&socket, Method::POST, &target, Wait::AsLongAsItTakes)?;
        let Ok(outcome) = serde_json::from_str::<LastReload>(&body) else {
            return Err(format!("{}: {}", socket.display(), body.trim_end()));
        };
        if self.json {
            let printed = print(program, &format!("{}\n", body.trim_end()));
            return Ok(match outcome.result {
                ReloadResult::Succeeded => printed,
                ReloadResult::Partial | ReloadResult::Failed => ExitCode::FAILURE,
            });
        }
        match outcome.result {
            ReloadResult::Succeeded => {
                Ok(print(program, &format!("reloaded {}\n", outcome.message)))
            }
            ReloadResult::Partial => Err(format!(
                "only a part is reloaded, other content stays old: {}",
                outcome.message
            )),
            ReloadResult::Failed => Err(format!(
                "not reloaded, the old content stays: {}",
                outcome.message
            )),
        }
    }
}

/// Makes the path of a folder absolute, because the server may have another current folder. A zone's
/// name has no slash.
fn absolute(name: &str) -> String {
    if !name.contains('/') {
        return name.to_owned();
    }
    match Path::new(name).canonicalize() {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => name.to_owned(),
    }
}

impl StatusArgs {
    fn run(&self, program: &str) -> Result<ExitCode, String> {
        let socket = self.at.socket(program);
        if self.json {
            let body = ask_status(&socket)?;
            return Ok(print(program, &body));
        }
        let status = read_status(&socket)?;
        if self.once || !io::stdout().is_terminal() {
            return Ok(print(program, &status.block().to_string()));
        }
        terminal::run(status, move || read_status(&socket))
            .map_err(|error| format!("cannot use the terminal: {error}; --once needs none"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read_status(socket: &Path) -> Result<Status, String> {
    let body = ask_status(socket)?;
    serde_json::from_str(&body).map_err(|_| unknown(socket, &body))
}

/// Returns a server's status as JSON.
fn ask_status(socket: &Path) -> Result<String, String> {
    match ask(socket, Method::GET, "/status", Wait::Briefly)? {
        (StatusCode::OK, body) => Ok(body),
        (_, body) => Err(unknown(socket, &body)),
    }
}
