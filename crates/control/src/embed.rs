//! Runs a server inside a program that has its own `main`, and possibly its own runtime.

mod answer;
mod handle;
mod looking;
mod owner;
mod server;
mod signals;
mod watch;

use std::thread;

use crate::args::ServeArgs;
use crate::error::Error;
use crate::program::{Program, check_name};
pub use answer::Answer;
pub use handle::Handle;
pub use looking::{ConnectionList, TraceError};
use owner::Owner;
pub use server::{Server, Starting};

/// Starts to serve `program` inside the calling program.
///
/// The server starts immediately, on its own threads. One thread opens the device, watches the
/// workers, and at the end removes what it created. The other threads are the workers. The result
/// is a future for any runtime. A thread without a runtime calls [`Starting::wait`] instead.
/// Several servers may run at the same time, on different devices.
///
/// ```no_run
/// # async fn embed(program: impl control::Program + Send + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let mut args = control::ServeArgs::on("auto".parse()?);
/// args.port = Some(7);
/// let server = control::embed(args, program).await?;
/// for (label, value) in server.facts().lines() {
///     println!("{label}: {value}"); // For instance, what the device really does.
/// }
/// let handle = server.handle(); // For any thread.
/// println!("{} frames", handle.snapshot().port().rx_frames);
/// handle.stop();
/// let summary = server.await?;
/// println!("{} frames in total", summary.port().rx_frames);
/// # Ok(())
/// # }
/// ```
///
/// # Signals, output and logs
/// An embedded server catches no signals, prints nothing and installs no log. The server's threads
/// block all signals except faults such as SIGSEGV, so that your other signal handlers run on your
/// own threads. You can print [`facts`](Server::facts) and
/// [`Summary::block`](crate::Summary::block). [`log::init`](crate::log::init) writes logs to
/// standard error. Without it, log events go to the `tracing` subscriber of the process, if there
/// is one. [`ServeArgs::log`] has no effect. A panic calls your panic hook.
///
/// # The interface
/// The server follows its interface as [`serve`](crate::serve) does. If an interface that the server did
/// not make is removed, the server waits. [`Status::phase`](crate::status::Status::phase) is then
/// [`Phase::Waiting`](crate::status::Phase::Waiting). When an interface of this name returns, the server
/// opens it and continues, with its connections. If it cannot use this interface, it ends with
/// [`Error::InterfaceBack`], and a new call of this function can serve it. A server that is stopped
/// while it waits ends without a drain.
///
/// # What is missing
/// An embedded server has no logs of requests, no metrics address, no control socket, and does not
/// watch its content. Options that ask for these are refused ([`Error::NotEmbedded`]). The [`Handle`] has
/// the rest for the program: [`Handle::metrics`], [`Handle::status`], [`Handle::connections`] and
/// [`Handle::trace`].
///
/// # New content
/// No hook for reloads is called. The calling program reads new content itself, and sends it to each
/// worker at any time. For a [`Tcp`](crate::Tcp) or a [`Udp`](crate::Udp), `make` [opens a
/// mailbox](crate::NewWorker::open_mailbox) and keeps its sender. The worker gets the content in
/// `on_message`. Another [`Program`] can share a [`Handover`](crate::Handover) with the calling program.
///
/// # Privileges
/// Each worker drops its privileges before the first packet, as with [`serve`](crate::serve). If
/// the process runs as root, a worker becomes the user with the program's name, or `nobody` if
/// there is none. The worker loses all capabilities and enters the
/// [sandbox](crate#what-a-callback-may-do-in-the-sandbox). [`ServeArgs::user`] and
/// [`ServeArgs::sandbox`] change these defaults. All other threads keep their privileges.
/// Threads share memory, so this protects less than `serve`, where every thread drops its
/// privileges.
///
/// Some of these measures affect the whole process:
/// - If a worker breaks a rule of the sandbox, SIGSYS usually kills the process. The rules also
///   apply to a `tracing` subscriber and a panic hook that run on a worker's thread. Both may write
///   to open files, or pass their data to another thread.
/// - Do not call `setuid`, `setgid` or `setgroups` of the C library while a server runs. These
///   functions change all threads, including those in the sandbox, which kills the process.
/// - A process whose threads run as different users is not dumpable: the kernel writes no core
///   dump, and the process's `/proc` files belong to root.
/// - AF_XDP raises the process's limit on locked memory, if the process has the right to do so.
///
/// # The end
/// A server stops after a call of [`Handle::stop`], after an error, or when its future is dropped.
/// The workers notice the stop within 100 ms. They then refuse new connections, and let open ones
/// finish for at most [`ServeArgs::drain`] seconds. Finally they close the rest, which takes at
/// most a second, as after SIGTERM. After an error, or after [`Handle::stop_at_once`], there is no
/// drain. The future completes when the device is detached and everything
/// created for the server is removed. Dropping the future does not wait for this cleanup.
///
/// An embedded server has no helper process. If the process is killed, the kernel immediately
/// removes the steering program, reserved ports and TAP devices. The veth pair of device `auto` is
/// removed a moment later. The server changes nothing else on an existing interface.
///
/// # Errors
/// The futures return an [`Error`] if the server cannot start, or if it ends without a request to
/// stop. With `panic = "unwind"`, a panic in a worker's callback is reported as
/// [`Error::Panicked`]. With `abort`, a panic ends the process.
pub fn embed<P: Program + Send + 'static>(args: ServeArgs, program: P) -> Starting {
    check_name::<P>();
    crate::log::limit_waits();
    let (owner, starting) = Owner::new(args, program);
    let spawned = thread::Builder::new()
        .name(format!("{}-run", P::NAME))
        .spawn(move || owner.run());
    match spawned {
        Ok(_) => starting,
        Err(source) => Starting::failed(Error::system("starting a thread")(source)),
    }
}

#[cfg(test)]
mod tests;
