//! The commands that talk to a running server through its control socket.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use crate::config::print;
use crate::endpoint::default_sockets;
use crate::status::{LastReload, Status};
use crate::terminal;

/// The commands that control a running server, for use with `#[command(flatten)]` among the
/// program's subcommands.
#[derive(Subcommand, Clone, Debug)]
pub enum ControlCommand {
    /// Make a running server read its content again, and wait for the result.
    ///
    /// The exit status is 1 if the new content cannot be served. The server then keeps the old
    /// content.
    Reload(ReloadArgs),
    /// Show the state, the counts and the rates of a running server.
    ///
    /// On a terminal this is a page that is refreshed each second, until q is pressed. Elsewhere,
    /// and with --once, it is printed once.
    Status(StatusArgs),
}

/// The options of `reload`.
#[derive(Args, Clone, Debug)]
pub struct ReloadArgs {
    /// Read only this content again: the folder of a site, or the name of a zone. Without it, all
    /// content is read.
    name: Option<String>,

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

/// Where a server's control socket is.
#[derive(Args, Clone, Debug)]
struct SocketArgs {
    /// The server's control socket, if the server has another than the default.
    #[arg(long, value_name = "PATH")]
    control_socket: Option<PathBuf>,
}

impl ControlCommand {
    /// Runs the command for the program with this name. Returns the exit status.
    pub fn run(&self, program: &str) -> ExitCode {
        let outcome = match self {
            Self::Reload(args) => args.run(program),
            Self::Status(args) => args.run(program),
        };
        outcome.unwrap_or_else(|message| {
            eprintln!("{program}: {message}");
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
        let (code, body) = ask(&socket, Method::POST, &format!("/reload{query}"))?;
        let Ok(outcome) = serde_json::from_str::<LastReload>(&body) else {
            return Err(format!("{}: {}", socket.display(), body.trim_end()));
        };
        if code != StatusCode::OK {
            return Err(format!(
                "not reloaded, the old content stays: {}",
                outcome.message
            ));
        }
        Ok(print(program, &format!("reloaded {}\n", outcome.message)))
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
            return Ok(print(program, &(body + "\n")));
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
    match ask(socket, Method::GET, "/status")? {
        (StatusCode::OK, body) => Ok(body),
        (_, body) => Err(unknown(socket, &body)),
    }
}

fn unknown(socket: &Path, body: &str) -> String {
    format!(
        "{}: this is no answer of a server: {body}",
        socket.display()
    )
}

impl SocketArgs {
    fn socket(&self, program: &str) -> PathBuf {
        if let Some(given) = &self.control_socket {
            return given.clone();
        }
        let mut paths = default_sockets(program);
        let found = paths.iter().position(|path| path.exists());
        paths.swap_remove(found.unwrap_or(paths.len() - 1))
    }
}

/// Sends a request through a control socket. Returns the status and the body of the answer.
fn ask(socket: &Path, method: Method, target: &str) -> Result<(StatusCode, String), String> {
    let runtime = Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(|error| format!("cannot watch a socket: {error}"))?;
    runtime.block_on(async {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| unreachable(socket, &error))?;
        let failed = |error: &dyn std::error::Error| {
            format!("{}: the server gave no answer: {error}", socket.display())
        };
        let shaken = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", "localhost")
            .body(Empty::new())
            .map_err(|error| failed(&error))?;
        let answered = async {
            let answer = sender.send_request(request).await?;
            let code = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((code, String::from_utf8_lossy(&body).into_owned()))
        };
        let driven = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            answer = answered => answer.map_err(|error| failed(&error)),
            never = driven => never,
        }
    })
}

fn unreachable(socket: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "; is the server running? --control-socket PATH names another socket"
        }
        io::ErrorKind::ConnectionRefused => "; the server that made it has ended",
        io::ErrorKind::PermissionDenied => "; run this command as the user who started the server",
        _ => "",
    };
    format!("{}: {error}{remedy}", socket.display())
}
