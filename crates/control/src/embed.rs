//! A server inside a program that has a `main`, and maybe a runtime, of its own.

mod handle;
mod owner;
mod server;

use std::thread;

use crate::args::ServeArgs;
use crate::error::Error;
use crate::program::Program;
pub use handle::Handle;
use owner::Owner;
pub use server::{Server, Starting};

/// Serves `program` inside the calling program, by `args`.
///
/// It begins at once, on threads of its own: one that opens the device, watches the
/// workers, and removes at the end what it made; and the workers. The result is a
/// future for any runtime, or [`Starting::wait`] for a thread without one. There is
/// no runtime of its own. Several servers may run in one process, at the same time on
/// different devices.
///
/// ```no_run
/// # async fn embed(program: impl control::Program + Send + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let mut args = control::ServeArgs::on("auto".parse()?);
/// args.port = Some(7);
/// let server = control::embed(args, program).await?;
/// for (label, value) in server.facts().lines() {
///     println!("{label}: {value}"); // What the device really does, and much more.
/// }
/// let handle = server.handle(); // For any thread.
/// println!("{} frames", handle.snapshot().port().rx_frames);
/// handle.stop();
/// let summary = server.await?;
/// println!("{} frames in all", summary.port().rx_frames);
/// # Ok(())
/// # }
/// ```
///
/// # What it leaves alone
/// It catches no signal, prints nothing and installs no log. Its threads block all
/// signals, so that your signal handlers run on your threads. Ask for what you want:
/// [`facts`](Server::facts) and [`Summary::block`](crate::Summary::block) can be printed,
/// [`log::init`](crate::log::init) sends logs to standard error. Without that, log events go
/// to the process's own `tracing` subscriber, if there is one, and [`ServeArgs::log`]
/// means nothing. Your panic hook tells of panics.
///
/// # Rights
/// Each worker gives up its rights before the first packet, as with
/// [`serve`](crate::serve). A worker of root becomes the user with the program's name, or
/// else nobody, without capabilities and in the
/// [sandbox](crate#what-a-callback-may-do-in-the-sandbox). [`ServeArgs::user`] and
/// [`ServeArgs::with_sandbox`] choose otherwise. All other threads keep what they have.
/// As threads share memory, that protects less than `serve`, which leaves no thread a
/// right.
///
/// The whole process feels some of it:
/// - A worker that does what the sandbox forbids ends the process by SIGSYS. This holds
///   for a `tracing` subscriber and a panic hook on a worker's thread, too: let them
///   write to open files, or hand on what they get.
/// - Do not call `setuid`, `setgid` or `setgroups` of the C library while a server
///   runs. They change all threads at once, which ends the process.
/// - With another user on one of its threads the process is not dumpable: the kernel
///   writes no core, and its `/proc` files belong to root.
/// - AF_XDP lifts the limit on locked memory, where that is allowed.
///
/// # The end
/// A server ends by [`Handle::stop`], by an error, or when its future is dropped. The
/// workers notice it within 100 ms and take leave of their clients, for a second at
/// most, as at SIGTERM. When the future gives its result, the device is detached, and
/// what was made for it is removed. Dropping a future does not wait for that.
///
/// There is no helper process. When the process is killed, the kernel removes the
/// steering program, reserved ports and tap devices at once, and the veth pair of device
/// `auto` a moment later. Nothing else was changed on an interface that existed before.
///
/// # Errors
/// The futures give an [`Error`] when the server cannot start, and when it ends by itself.
/// With `panic = "unwind"` a panic in a worker's callback is [`Error::Panicked`]. With
/// `abort` it ends the process.
pub fn embed<P: Program + Send + 'static>(args: ServeArgs, program: P) -> Starting {
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
