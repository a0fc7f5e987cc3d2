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
/// signals, so that handlers run on other threads. What it does print
/// is asked for: [`print`](crate::report::Block::print), [`log::init`](crate::log::init). Log events go to
/// the process's own `tracing` subscriber, if there is one. [`ServeArgs::log`] means
/// nothing here. A panic of a worker is told by the process's panic hook, as any.
///
/// # Rights
/// Each worker gives up its rights before the first packet, as with
/// [`serve`](crate::serve): started by root it becomes the user with the program's
/// name, or else nobody, without capabilities and in the
/// [sandbox](crate#what-a-callback-may-do-in-the-sandbox).
/// [`ServeArgs::user`] and [`ServeArgs::with_sandbox`] choose otherwise. All other
/// threads keep what they have; threads share memory, so that protects less than
/// `serve`, which leaves no thread a right.
///
/// - A worker that does what the sandbox forbids ends the whole process by SIGSYS. A
///   `tracing` subscriber runs on a worker's thread, seldom: it must write to open
///   files only.
/// - Call no `setuid`, `setgid` or `setgroups` of the C library while a server runs. They
///   change all threads at once, and that ends the process.
/// - With other users on its threads the kernel makes a process not dumpable: it
///   writes no core, and its `/proc` files belong to root.
/// - Opening AF_XDP lifts the process's limit on locked memory, where that is allowed.
///
/// # The end
/// A server ends by [`Handle::stop`], by an error, or when its future is dropped. Each
/// time the workers take leave of their clients first, as at SIGTERM: 100 ms to
/// notice it and a second more, at most. When a future has given its result, the device is
/// detached, and what was made for it is removed. Dropping a future does not wait for
/// that.
///
/// There is no helper process. When the process is killed, the kernel removes what
/// belongs to it: the steering program, reserved ports, tap devices, and a veth
/// pair, that one a moment later. On an interface that existed before,
/// nothing else was changed, so that nothing stays.
///
/// # Errors
/// The futures give [`Error`], when it could not start and when it ended by itself.
/// With `panic = "unwind"` a panic in a worker's callback is
/// [`Error::Panicked`]; with `abort` it ends the process.
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
