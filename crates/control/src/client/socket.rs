//! Requests to a server through its control socket.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::endpoint::default_sockets;

/// Where a server's control socket is.
#[derive(Args, Clone, Debug)]
pub(super) struct SocketArgs {
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

/// Makes the runtime of a command.
pub(super) fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_current_thread().enable_io().build();
    runtime.map_err(|error| format!("cannot watch a socket: {error}"))
}

/// Sends a request through a control socket. Returns the status and the body of the answer.
pub(super) fn ask(
    socket: &Path,
    method: Method,
    target: &str,
) -> Result<(StatusCode, String), String> {
    runtime()?.block_on(async {
        let mut body = Vec::new();
        let take = |bytes: &[u8]| {
            body.extend_from_slice(bytes);
            Ok(())
        };
        let (code, _) = read(socket, method, target, take).await?;
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    })
}

/// Sends a request through a control socket, and passes the body of the answer to `take`, piece by
/// piece. Returns the status and the trailers of the answer. An error of `take` ends the connection.
pub(super) async fn read(
    socket: &Path,
    method: Method,
    target: &str,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(StatusCode, HeaderMap), String> {
    let failed = |error: &dyn std::error::Error| {
        format!("{}: the server gave no answer: {error}", socket.display())
    };
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| unreachable(socket, &error))?;
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
        let answer = sender.send_request(request).await;
        let mut answer: Response<Incoming> = answer.map_err(|error| failed(&error))?;
        let mut trailers = HeaderMap::new();
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.map_err(|error| failed(&error))?;
            match frame.into_data() {
                Ok(bytes) => take(&bytes)?,
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        Ok((answer.status(), trailers))
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

/// Returns the error for an answer that cannot be understood.
pub(super) fn unknown(socket: &Path, body: &str) -> String {
    format!(
        "{}: this is no answer of a server: {body}",
        socket.display()
    )
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
