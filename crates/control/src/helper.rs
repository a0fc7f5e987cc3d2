//! The helper process: it makes the interface ready, keeps it so, and removes
//! what was made.
//!
//! Threads share memory, so a thread that keeps rights is no boundary; a
//! process is one. The helper is forked before there is any thread or content.
//! It knows the command line, answers the [`Request`]s below and nothing else,
//! and is never given a byte from the network.
//!
//! ```text
//!   server                              helper
//!   start ── fork ────────────────────▶ waits, still with all rights
//!   load the content
//!   open ── Request::Open ────────────▶ opens the interface, gives up its rights
//!        ◀── facts and descriptors ────
//!   open queues, give up all rights
//!   serve                               waits
//!   end ── close the socket ──────────▶ detaches, removes, ends
//! ```
//!
//! However the server ends, its end of the socket closes. However the helper
//! ends, the lifeline closes, and the server ends too.

mod message;
mod process;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nmio::device::{Interface, QueueAccess, Transport};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::thread::set_name;
use serde::{Deserialize, Serialize};

use crate::args::ServeArgs;
use crate::error::Error;
use crate::rights::{Kind, Plan, Table};
use process::Side;

/// All that the server may ask for.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Make the interface of the command line ready to serve these ports.
    Open { services: Vec<(Transport, u16)> },
}

/// What the helper says; descriptors follow in messages of their own.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// A [`QueueAccess`] in parts.
    Opened { facts: String, descriptors: usize },
    /// A message for a person.
    Refused(String),
}

/// The server's end. Dropping it lets the helper remove what was made, and
/// waits for that.
pub(crate) struct Helper {
    socket: OwnedFd,
    /// Carries nothing and closes when the helper has ended.
    lifeline: UnixStream,
}

impl Helper {
    /// Starts the helper process, which knows `args`.
    ///
    /// # Errors
    /// When the process has a thread already, or the system refuses another
    /// process.
    pub(crate) fn start(
        args: &ServeArgs,
        program: &'static str,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let failed = |source| Error::System {
            what: "starting the helper process",
            source,
        };
        let (server, helper) = socket_pair().map_err(failed)?;
        let (lifeline, its_lifeline) = UnixStream::pair().map_err(failed)?;
        match process::split().map_err(failed)? {
            Side::Server => Ok(Self {
                socket: server,
                lifeline,
            }),
            Side::Helper => {
                drop((server, lifeline));
                let outcome = assist(helper.as_fd(), args, program, plan);
                if let Err(error) = &outcome {
                    tracing::error!("the helper process: {error}");
                }
                drop(its_lifeline);
                std::process::exit(i32::from(outcome.is_err()))
            }
        }
    }

    /// Has the interface of the command line made ready to serve `services`.
    ///
    /// # Errors
    /// The message of the helper's own error, or that it is gone.
    pub(crate) fn open(&self, services: Vec<(Transport, u16)>) -> Result<QueueAccess, Error> {
        let gone = |source: io::Error| Error::HelperGone(source.to_string());
        let socket = self.socket.as_fd();
        message::send(socket, &Request::Open { services }).map_err(gone)?;
        match message::receive(socket).map_err(gone)? {
            Some(Answer::Opened { facts, descriptors }) => {
                message::receive_descriptors(socket, descriptors)
                    .and_then(|descriptors| QueueAccess::from_parts(&facts, descriptors))
                    .map_err(gone)
            }
            Some(Answer::Refused(why)) => Err(Error::Refused(why)),
            None => Err(Error::HelperGone("it has ended".to_owned())),
        }
    }

    /// The helper's life, for the watch on a runtime.
    pub(crate) fn life(&self) -> io::Result<Life> {
        let lifeline = self.lifeline.try_clone()?;
        lifeline.set_nonblocking(true)?;
        Ok(Life(tokio::net::UnixStream::from_std(lifeline)?))
    }
}

/// See [`Helper::life`].
pub(crate) struct Life(tokio::net::UnixStream);

impl Life {
    /// Waits for the end of the helper process.
    pub(crate) async fn end(&self) -> Error {
        let why = match self.0.readable().await {
            Ok(()) => "it has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        Error::HelperGone(why)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // An error means that it has ended, which is what this waits for. An
        // answer that nobody has read may still stand before that.
        if shutdown(&self.socket, Shutdown::Write).is_ok() {
            message::drain(self.socket.as_fd());
        }
    }
}

/// Two ends that keep messages whole and close with the processes.
fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The helper process, from its start until the server's end of the socket
/// closes.
fn assist(
    socket: BorrowedFd<'_>,
    args: &ServeArgs,
    program: &'static str,
    plan: &Plan,
) -> Result<(), Error> {
    let failed = |source| Error::System {
        what: "talking to the server",
        source,
    };
    process::block_signals().map_err(failed)?;
    // So that tools which look for the server by name find the server.
    let name = CString::new(format!("{program}-dev")).unwrap_or_default();
    set_name(&name).map_err(|errno| failed(errno.into()))?;
    let mut opened: Option<Interface> = None;
    while let Some(request) = message::receive(socket).map_err(failed)? {
        let Request::Open { services } = request;
        if opened.is_some() {
            // Only a server that is no longer itself asks twice.
            break;
        }
        let interface = Interface::open(&args.interface(program, services));
        // What it cannot give up the server cannot either, and says so.
        let confined = interface
            .map_err(|error| error.to_string())
            .and_then(|interface| {
                let table = Table::for_helper(interface.needs_removal());
                let given_up = plan
                    .rights(table)
                    .and_then(|rights| rights.give_up(Kind::Helper));
                given_up.map_err(|error| error.to_string())?;
                Ok(interface)
            });
        match confined {
            Ok(interface) => {
                let (facts, descriptors) = interface.to_parts().map_err(failed)?;
                let answer = Answer::Opened {
                    facts,
                    descriptors: descriptors.len(),
                };
                message::send(socket, &answer).map_err(failed)?;
                message::send_descriptors(socket, &descriptors).map_err(failed)?;
                drop(descriptors);
                opened = Some(interface);
            }
            Err(why) => message::send(socket, &Answer::Refused(why)).map_err(failed)?,
        }
    }
    Ok(())
}
