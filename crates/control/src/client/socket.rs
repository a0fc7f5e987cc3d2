//! Requests to a server through its control socket.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::endpoint::default_sockets;

/// Where a server's control socket is, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
pub struct SocketArgs {
    /// The server's control socket, if the server has another than the default.
    #[arg(long, value_name = "PATH")]
    control_socket: Option<PathBuf>,
}

impl SocketArgs {
    pub(super) fn socket(&self, program: &str) -> PathBuf {
        if let Some(given) = &self.control_socket {
            return given.clone();
        }
        let mut paths = default_sockets(program);
        let found = paths.iter().position(|path| path.exists());
        paths.swap_remove(found.unwrap_or(paths.len() - 1))
    }
}

/// Maximum time until a server begins to answer. It also limits the pauses in an answer that is not
/// a trace.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a command waits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The server answers at once, and without long pauses.
    Briefly,
    /// The server begins to answer at once, and its answer may have pauses.
    ForPauses,
    /// The server works before it answers.
    AsLongAsItTakes,
}

/// What is behind the body of an answer.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) code: StatusCode,
    pub(super) trailers: HeaderMap,
    /// False if the server ended before its answer was complete.
    pub(super) is_whole: bool,
}

/// Makes the runtime of a command.
pub(super) fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot watch a socket: {error}"))
}

/// Sends a request through a control socket. Returns the status and the body of the answer.
pub(super) fn ask(
    socket: &Path,
    method: Method,
    target: &str,
    wait: Wait,
) -> Result<(StatusCode, String), String> {
    runtime()?.block_on(async {
        let mut body = Vec::new();
        let take = |bytes: &[u8]| {
            body.extend_from_slice(bytes);
            Ok(())
        };
        let ending = read(socket, method, target, wait, |_| {}, take).await?;
        if !ending.is_whole {
            return Err(cut(socket));
        }
        Ok((ending.code, String::from_utf8_lossy(&body).into_owned()))
    })
}

/// Sends a request through a control socket. Passes the fields of the answer to `begin`, and then its body
/// to `take`, piece by piece. An error of `take` ends the connection.
pub(super) async fn read(
    socket: &Path,
    method: Method,
    target: &str,
    wait: Wait,
    begin: impl FnOnce(&HeaderMap),
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<Ending, String> {
    let failed = |error: &dyn std::error::Error| {
        format!("{}: the server gave no answer: {error}", socket.display())
    };
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| unreachable(socket, &error))?;
    // The number is 0 if the process is not visible from here.
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let process = process.filter(|id| *id > 0);
    let late = || silent(socket, process);
    let shaken = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", "localhost")
        .header("te", "trailers")
        .body(Empty::new())
        .map_err(|error| failed(&error))?;
    let answered = async {
        let answer = sender.send_request(request);
        let begins_at_once = wait != Wait::AsLongAsItTakes;
        let answer = limited(begins_at_once, answer).await.ok_or_else(late)?;
        let mut answer: Response<Incoming> = answer.map_err(|_| cut(socket))?;
        begin(answer.headers());
        let mut ending = Ending {
            code: answer.status(),
            trailers: HeaderMap::new(),
            is_whole: true,
        };
        loop {
            let frame = limited(wait == Wait::Briefly, answer.body_mut().frame());
            match frame.await.ok_or_else(late)? {
                None => return Ok(ending),
                Some(Err(_)) => {
                    ending.is_whole = false;
                    return Ok(ending);
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => take(&bytes)?,
                    Err(frame) => ending
                        .trailers
                        .extend(frame.into_trailers().unwrap_or_default()),
                },
            }
        }
    };
    let driven = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answered => answer,
        never = driven => never,
    }
}

/// Waits for `future`, and at most for [`PATIENCE`] if `is_limited`.
async fn limited<T>(is_limited: bool, future: impl Future<Output = T>) -> Option<T> {
    if is_limited {
        timeout(PATIENCE, future).await.ok()
    } else {
        Some(future.await)
    }
}

/// Returns the error for a server that does not answer in time.
fn silent(socket: &Path, process: Option<i32>) -> String {
    let (named, continued) = match process {
        Some(id) => (
            format!("the server, process {id},"),
            format!("kill -CONT {id}"),
        ),
        None => ("the server".to_owned(), "kill -CONT PID".to_owned()),
    };
    format!(
        "{}: {named} has not answered for {} s; it may still load its content, or be stopped \
         ({continued} continues it), or get no CPU time",
        socket.display(),
        PATIENCE.as_secs()
    )
}

/// Returns the error for an answer that is not complete.
pub(super) fn cut(socket: &Path) -> String {
    let socket = socket.display();
    format!("{socket}: the server ended before it had answered; its log may say why")
}

/// Returns the error for an answer that cannot be understood.
pub(super) fn unknown(socket: &Path, body: &str) -> String {
    format!(
        "{}: this is no answer of a server: {body}",
        socket.display()
    )
}

/// Returns the error for a socket to which this process cannot connect.
fn unreachable(socket: &Path, error: &io::Error) -> String {
    const OTHER: &str = "--control-socket takes the path that the start block of the server has";
    let place = socket.display();
    match fs::metadata(socket).map(|found| found.file_type()) {
        Ok(found) if found.is_dir() => return format!("{place}: this is a folder; {OTHER}"),
        Ok(found) if !found.is_socket() => {
            return format!("{place}: this is a file and not a socket; {OTHER}");
        }
        _ => {}
    }
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "is the server running? --control-socket PATH names another socket"
        }
        io::ErrorKind::ConnectionRefused => "the server that made it has ended; start it again",
        io::ErrorKind::PermissionDenied => "run this command as the user who started the server",
        io::ErrorKind::WouldBlock => {
            "the server takes no connections; it may still load its content, or be stopped"
        }
        _ => OTHER,
    };
    format!("{place}: {error}; {remedy}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn refusal(path: &Path) -> String {
        ask(path, Method::GET, "/status", Wait::Briefly).unwrap_err()
    }

    #[test]
    fn each_wrong_path_has_a_message_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "").unwrap();
        drop(UnixListener::bind(path("dead")).unwrap());
        std::os::unix::fs::symlink(path("none"), path("link")).unwrap();
        for (path, why) in [
            (
                folder.path().to_owned(),
                ": this is a folder; --control-socket",
            ),
            (
                path("file"),
                ": this is a file and not a socket; --control-socket",
            ),
            (
                path("dead"),
                "; the server that made it has ended; start it again",
            ),
            (path("none"), "; is the server running? "),
            (path("link"), "; is the server running? "),
            (path("file").join("socket"), "; --control-socket"),
        ] {
            let message = refusal(&path);
            assert!(message.contains(why), "{message}");
            assert!(message.starts_with(&*path.to_string_lossy()), "{message}");
        }
        let denied = unreachable(&path("none"), &io::ErrorKind::PermissionDenied.into());
        assert!(
            denied.ends_with("as the user who started the server"),
            "{denied}"
        );
    }

    #[test]
    fn a_server_that_ends_is_told_from_one_that_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let ending = std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(refusal(&path).contains("the server ended before it had answered"));
        ending.join().unwrap();
        fs::remove_file(&path).unwrap();
        // Nobody accepts the connection, as if the server were stopped.
        let _listener = UnixListener::bind(&path).unwrap();
        let message = refusal(&path);
        let process = format!("process {}, has not answered for 5 s", std::process::id());
        assert!(message.contains(&process), "{message}");
    }
}
