//! The options for the endpoints.

use clap::Args;

use super::address::{ControlSocket, ListenAddress};

/// The options for the endpoints, for use with `#[command(flatten)]`. They are part of
/// [`ServeArgs`](crate::ServeArgs).
#[derive(Args, Clone, Debug, Default)]
pub struct EndpointArgs {
    /// Where to serve metrics, health and the status page: a PORT on 127.0.0.1, ADDRESS:PORT, or
    /// `unix:PATH`. The kernel's network stack serves this port. Without this option there are no
    /// metrics.
    #[arg(long, value_name = "LISTEN", help_heading = "Metrics")]
    pub metrics_listen: Option<ListenAddress>,

    /// Unix socket for the commands that reach a running server, such as `reload` and `status`, or
    /// `off`. Only the user who starts the server can use it. Defaults to NAME/control.sock in /run, or in the user's folder in
    /// /run/user. NAME is the program's name.
    #[arg(long, value_name = "PATH|off", help_heading = "Control")]
    pub control_socket: Option<ControlSocket>,

    /// Watch the files of the content, and read them again when they have changed. Reading begins
    /// when nothing has changed for half a second, or 5 s after the first change.
    #[arg(long, help_heading = "Control")]
    pub watch: bool,
}
