//! What a server offers to its operator through sockets of the kernel: metrics, health, a status page,
//! and control.
//!
//! All endpoints speak HTTP, so `curl` can use each of them. They run on the control thread. Any user
//! of the host may reach the metrics endpoint, so it only tells. The control socket belongs to the
//! user who started the server, so it also takes requests.

mod accept;
mod address;
mod admission;
mod args;
mod body;
mod client_stream;
mod host;
mod http;
mod listener;
mod looking;
mod page;
mod query;
mod reply;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

pub(crate) use address::default_sockets;
pub use address::{ControlSocket, ListenAddress};
pub use args::EndpointArgs;
use host::Hosts;
use http::Access;
use listener::Listener;

use crate::config::with_places;
use crate::error::Error;
use crate::observed::Observed;
use crate::report::Lines;

/// The endpoints of a server, before they are served.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    listeners: Vec<(Access, Listener)>,
    /// Lines for the start block: a label and a value.
    lines: Vec<(&'static str, String)>,
    /// Whether each of those that were asked for can be used, by label.
    states: Vec<(&'static str, bool)>,
}

/// Labels of the endpoints.
const METRICS: &str = "metrics";
const CONTROL: &str = "control";

/// Warns that an address of an endpoint cannot be used.
fn warn(args: &EndpointArgs, access: Access, error: &io::Error, by: By) {
    if let Some(warning) = warning(args, access, error, by) {
        tracing::warn!("{warning}");
    }
}

/// Returns the warning that an address of an endpoint cannot be used.
fn warning(args: &EndpointArgs, access: Access, error: &io::Error, by: By) -> Option<String> {
    let (option, value, effect) = match (access, &args.metrics_listen, &args.control_socket) {
        (Access::Look, Some(address), _) => (
            "--metrics-listen",
            address.to_string(),
            "there are no metrics; give another address",
        ),
        (Access::Control, _, Some(ControlSocket::At(path))) => (
            "--control-socket",
            path.display().to_string(),
            "the commands for a running server do not work; give another path",
        ),
        _ => return None,
    };
    let effect = match (by, error.kind()) {
        (By::Check, io::ErrorKind::PermissionDenied) => {
            "this user may not use it, but a server that another user starts may"
        }
        _ => effect,
    };
    Some(format!(
        "{} {value}: {error}; {effect}",
        with_places(option)
    ))
}

/// Who finds out that an address cannot be used.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A check, whose user may be another one than that of the server.
    Check,
    Server,
}

impl EndpointArgs {
    /// Checks the addresses. Makes no file, and no socket that listens. Warns of those that cannot be used.
    /// Returns a line about each that a running server has, because this may be the server that is meant.
    pub(crate) fn check(&self) -> Lines {
        let control = match &self.control_socket {
            Some(ControlSocket::At(path)) => Some(ListenAddress::Unix(path.clone())),
            Some(ControlSocket::Off) | None => None,
        };
        let metrics = self
            .metrics_listen
            .clone()
            .map(|at| (Access::Look, METRICS, at));
        let control = control.map(|at| (Access::Control, CONTROL, at));
        let mut lines = Lines::new();
        for (access, label, address) in metrics.into_iter().chain(control) {
            match Listener::check(&address) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let line = format!("{address} is in use; another server would do without it");
                    lines.push((label, line));
                }
                Err(error) => warn(self, access, &error, By::Check),
            }
        }
        lines
    }
}

impl Endpoints {
    /// Binds the sockets of the endpoints. Must be called before the thread drops its privileges. If
    /// an address cannot be used, a warning says why, and the server does without.
    pub(crate) fn bind(args: &EndpointArgs, program: &str) -> Self {
        let mut endpoints = Self::default();
        if let Some(address) = &args.metrics_listen {
            let bound = Listener::bind(address);
            if let Err(error) = &bound {
                warn(args, Access::Look, error, By::Server);
            }
            endpoints.add(Access::Look, METRICS, address, bound);
        }
        match &args.control_socket {
            Some(ControlSocket::Off) => {}
            Some(ControlSocket::At(path)) => {
                let address = ListenAddress::Unix(path.clone());
                let bound = Listener::bind(&address);
                if let Err(error) = &bound {
                    warn(args, Access::Control, error, By::Server);
                }
                endpoints.add(Access::Control, CONTROL, &address, bound);
            }
            // Several servers may use the default, so only the start block says that one is taken.
            None => {
                let (address, bound) = bind_first(default_sockets(program));
                endpoints.add(Access::Control, CONTROL, &address, bound);
            }
        }
        endpoints
    }

    fn add(
        &mut self,
        access: Access,
        label: &'static str,
        address: &ListenAddress,
        bound: io::Result<Listener>,
    ) {
        let line = match (&bound, address) {
            (Ok(_), ListenAddress::Tcp(address)) => format!("http://{address}/"),
            (Ok(_), ListenAddress::Unix(path)) => path.display().to_string(),
            (Err(error), _) => format!("none: {address}: {error}"),
        };
        self.lines.push((label, line));
        self.states.push((label, bound.is_ok()));
        self.listeners
            .extend(bound.ok().map(|bound| (access, bound)));
    }

    /// Returns the lines about the endpoints for the start block.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.lines.iter().cloned()
    }

    /// Serves the endpoints of `server` on `runtime`, until the set of tasks is dropped.
    ///
    /// # Errors
    /// If the runtime cannot watch a socket.
    pub(crate) fn serve(
        self,
        server: &Arc<Observed>,
        runtime: &Runtime,
    ) -> Result<JoinSet<()>, Error> {
        server.note_endpoints(self.states.into_iter());
        let _inside = runtime.enter();
        let mut tasks = JoinSet::new();
        for (access, listener) in self.listeners {
            // No browser reaches a Unix socket.
            let hosts = listener.is_loopback().then(|| Arc::new(Hosts::new()));
            let listener = listener
                .into_async()
                .map_err(Error::system("watching an endpoint"))?;
            tasks.spawn(http::serve(listener, access, hosts, Arc::clone(server)));
        }
        Ok(tasks)
    }
}

/// Binds a socket at the first of these paths that can be used. Returns the path with the socket, or
/// the last path with its error.
fn bind_first(paths: Vec<PathBuf>) -> (ListenAddress, io::Result<Listener>) {
    let mut outcome = (
        ListenAddress::Unix(PathBuf::new()),
        Err(io::ErrorKind::NotFound.into()),
    );
    for path in paths {
        let made = make_folder(&path);
        let address = ListenAddress::Unix(path);
        let bound = made.and_then(|()| Listener::bind(&address));
        outcome = (address, bound);
        if outcome.1.is_ok() {
            break;
        }
    }
    outcome
}

/// Makes the folder of a socket at its default path. Its parent must exist.
fn make_folder(socket: &Path) -> io::Result<()> {
    let Some(folder) = socket.parent() else {
        return Ok(());
    };
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_costs_only_its_endpoint() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let args = EndpointArgs {
            metrics_listen: Some(ListenAddress::Tcp(taken)),
            control_socket: Some(ControlSocket::At(socket.clone())),
            ..EndpointArgs::default()
        };
        // The first listener is gone only after this test.
        let endpoints = Endpoints::bind(&args, "test");
        let lines: Vec<_> = endpoints.lines().collect();
        assert_eq!(endpoints.listeners.len(), 1);
        let why = format!("none: {taken}: Address already in use (os error 98)");
        assert_eq!(lines[0], ("metrics", why));
        assert_eq!(lines[1], ("control", socket.display().to_string()));
        assert_eq!(endpoints.states, [("metrics", false), ("control", true)]);
    }

    #[test]
    fn a_check_by_another_user_says_that_the_server_may() {
        let args = EndpointArgs {
            metrics_listen: Some(ListenAddress::Unix("/run/metrics".into())),
            ..EndpointArgs::default()
        };
        let denied = io::ErrorKind::PermissionDenied.into();
        for (by, effect) in [
            (By::Check, "but a server that another user starts may"),
            (By::Server, "there are no metrics; give another address"),
        ] {
            let warning = warning(&args, Access::Look, &denied, by).unwrap();
            assert!(warning.ends_with(effect), "{warning}");
        }
    }

    #[test]
    fn the_first_path_that_can_be_used_gets_the_control_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).join("web").join("control.sock");
        fs::create_dir(folder.path().join("run")).unwrap();
        let (at, bound) = bind_first(vec![path("none"), path("run"), path("later")]);
        assert_eq!(at, ListenAddress::Unix(path("run")));
        assert!(bound.is_ok());
        let (at, bound) = bind_first(vec![path("run"), path("none")]);
        assert_eq!(at, ListenAddress::Unix(path("none")));
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_control_socket_can_be_switched_off() {
        let args = EndpointArgs {
            control_socket: Some(ControlSocket::Off),
            ..EndpointArgs::default()
        };
        let endpoints = Endpoints::bind(&args, "test");
        assert!(endpoints.listeners.is_empty() && endpoints.lines.is_empty());
        assert!(endpoints.states.is_empty());
    }
}
