//! The helper process opens the interface, keeps it ready, and at the end removes what it created.
//!
//! Threads share memory, so only a process is a privilege boundary. The helper is forked before any
//! thread starts or content is loaded. Its only input is the command line and the server's
//! [`Request`]s. No byte from the network ever reaches the helper.
//!
//! ```text
//!   server                              helper
//!   start ── fork ────────────────────▶ waits, still with all privileges
//!   load the content
//!   open ── Request::Open ────────────▶ opens the interface, drops its privileges
//!        ◀── facts and descriptors ────
//!   open queues, drop all privileges
//!   serve                               waits
//!   an address changes ── Follow ─────▶ changes the steering program, reserves ports
//!        ◀── the addresses ────────────
//!   the interface returns ── Reopen ──▶ opens it, with the privileges that it has kept for this
//!        ◀── facts and descriptors ────
//!   end ── close the socket ──────────▶ detaches, removes, ends
//! ```
//!
//! When the server exits for any reason, its side of the socket closes, and the helper cleans up.
//! When the helper exits for any reason, a second socket (the lifeline) closes, and the server
//! exits, too.

mod message;
mod process;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nmio::device::{
    CurrentAddresses, Interface, MemoryFacts, PacketMemory, QueueAccess, Transport,
};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::args::ServeArgs;
use crate::error::Error;
use crate::follower::Opener;
use crate::privileges::{HelperTasks, Kind, Plan, Table};
use crate::returning::ReturningInterface;
use crate::system::set_process_name;
use process::Side;

/// Maximum time for which an exit waits until the helper has removed what it created.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// A request from the server to the helper.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Open the interface named on the command line, and prepare it to serve the ports in
    /// `services`.
    Open { services: Vec<(Transport, u16)> },
    /// Make the steering program and the reserved ports follow the interface's addresses.
    Follow,
    /// Keep the packet memory of the workers, for [`Reopen`](Self::Reopen). The descriptors follow in
    /// separate messages. There is no answer.
    Keep { memory: Vec<MemoryFacts> },
    /// Open the interface again, for the same services. It was removed, and has returned.
    Reopen,
}

/// An answer from the helper to the server.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The interface is open. `facts` describes a [`QueueAccess`]. `descriptors` is the number of
    /// its descriptors, which follow in separate messages.
    Opened { facts: String, descriptors: usize },
    /// The addresses that are served now.
    Follows(CurrentAddresses),
    /// The interface cannot be opened or followed, or the helper cannot drop its privileges. The
    /// text is an error message for the operator.
    Refused(String),
}

/// The server's connection to the helper. Dropping this value tells the helper to remove what it
/// created, and waits until the helper has done so.
pub(crate) struct Helper {
    socket: OwnedFd,
    /// A socket that carries no data. Its other side closes when the helper exits.
    lifeline: UnixStream,
}

impl Helper {
    /// Starts the helper process, which gets a copy of `args`.
    ///
    /// # Errors
    /// If this process already has other threads, or if the system refuses another process.
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

    /// Makes the helper open the interface named on the command line and prepare it for `services`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the helper's message, or [`Error::HelperGone`].
    pub(crate) fn open(&self, services: Vec<(Transport, u16)>) -> Result<QueueAccess, Error> {
        self.ask_to_open(&Request::Open { services })
    }

    fn ask_to_open(&self, request: &Request) -> Result<QueueAccess, Error> {
        let helper_gone = |source: io::Error| Error::HelperGone(source.to_string());
        let socket = self.socket.as_fd();
        message::send(socket, request).map_err(helper_gone)?;
        match message::receive(socket).map_err(helper_gone)? {
            Some(Answer::Opened { facts, descriptors }) => {
                message::receive_descriptors(socket, descriptors)
                    .and_then(|descriptors| QueueAccess::from_parts(&facts, descriptors))
                    .map_err(helper_gone)
            }
            Some(Answer::Refused(why)) => Err(Error::Refused(why)),
            Some(Answer::Follows(_)) => Err(Error::HelperGone(UNEXPECTED.to_owned())),
            None => Err(Error::HelperGone("it has ended".to_owned())),
        }
    }

    fn ask_to_follow(&self) -> Result<CurrentAddresses, Error> {
        let helper_gone = |source: io::Error| Error::HelperGone(source.to_string());
        let socket = self.socket.as_fd();
        message::send(socket, &Request::Follow).map_err(helper_gone)?;
        match message::receive(socket).map_err(helper_gone)? {
            Some(Answer::Follows(current)) => Ok(current),
            Some(Answer::Refused(why)) => Err(Error::Refused(why)),
            Some(Answer::Opened { .. }) => Err(Error::HelperGone(UNEXPECTED.to_owned())),
            None => Err(Error::HelperGone("it has ended".to_owned())),
        }
    }

    /// Makes the helper keep the packet memory of the workers. It registers the memory when it opens the
    /// interface again, because the workers have dropped the capability that this may need.
    ///
    /// # Errors
    /// [`Error::HelperGone`].
    pub(crate) fn keep(&self, memory: &[&PacketMemory]) -> Result<(), Error> {
        let (socket, files) = (self.socket.as_fd(), memory.iter().map(|one| one.file()));
        let request = Request::Keep {
            memory: memory.iter().map(|one| one.facts()).collect(),
        };
        message::send(socket, &request)
            .and_then(|()| message::send_descriptors(socket, &files.collect::<Vec<_>>()))
            .map_err(|source| Error::HelperGone(source.to_string()))
    }

    /// Returns a [`Life`], which waits on `runtime` until the helper process exits.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub(crate) fn life(&self, runtime: &Runtime) -> Result<Life, Error> {
        let _inside = runtime.enter();
        let watched = self.lifeline.try_clone().and_then(|lifeline| {
            lifeline.set_nonblocking(true)?;
            Ok(Life(tokio::net::UnixStream::from_std(lifeline)?))
        });
        watched.map_err(Error::system("watching the helper process"))
    }
}

impl Opener for &Helper {
    /// Makes the helper's steering program and reserved ports follow the interface's addresses.
    /// Returns the addresses that are served now.
    ///
    /// # Errors
    /// [`Error::Refused`] with the helper's message, or [`Error::HelperGone`].
    fn follow(&mut self) -> Result<CurrentAddresses, Error> {
        self.ask_to_follow()
    }

    /// Makes the helper open the interface again.
    ///
    /// # Errors
    /// [`Error::Refused`] with the helper's message, or [`Error::HelperGone`].
    fn reopen(&mut self) -> Result<QueueAccess, Error> {
        self.ask_to_open(&Request::Reopen)
    }
}

/// Notices when the helper process exits. [`Helper::life`] creates this value.
pub(crate) struct Life(tokio::net::UnixStream);

impl Life {
    /// Waits until the helper process exits. Returns the error to report.
    pub(crate) async fn end(&self) -> Error {
        let why = match self.0.readable().await {
            Ok(()) => "it has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        Error::HelperGone(why)
    }
}

impl Helper {
    /// Does the same as a drop, but waits for a limited time. A process that exits calls this first. If it
    /// is the first process of a container, the kernel kills the helper with it.
    pub(crate) fn end(&self) {
        self.end_within(Some(LAST_TASKS));
    }

    fn end_within(&self, limit: Option<Duration>) {
        // If `shutdown` fails, the helper has already exited. Otherwise, `drain` waits until the
        // helper closes its side of the socket, and discards any unread answer.
        if shutdown(&self.socket, Shutdown::Write).is_ok() {
            message::drain(
                self.socket.as_fd(),
                limit.map(|limit| Instant::now() + limit),
            );
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end_within(None);
    }
}

/// Creates two connected sockets that preserve message boundaries. A socket closes when its process
/// ends.
fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

const UNEXPECTED: &str = "it gave another answer than was asked for";

/// Runs the helper process until the server's side of the socket closes.
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
    // The helper uses a different name, so that tools that look for the server by name do not find
    // the helper.
    let name = CString::new(format!("{program}-dev")).unwrap_or_default();
    set_process_name(&name).map_err(failed)?;
    let mut device: Option<ReturningInterface> = None;
    while let Some(request) = message::receive(socket).map_err(failed)? {
        // Only a compromised server sends a request that is not in its place, so the helper stops
        // there.
        let result = match (request, &mut device) {
            (Request::Open { services }, None) => {
                let ports = services.iter().map(|(_, port)| *port).collect();
                let config = args.interface(program, services);
                open(device.insert(ReturningInterface::new(config)), ports, plan)
            }
            (Request::Reopen, Some(device)) => device.open_again(),
            (Request::Keep { memory }, Some(device)) => {
                device.keep(receive_memory(socket, &memory).map_err(failed)?);
                continue;
            }
            (Request::Follow, Some(device)) => {
                let Some(outcome) = device.follow_addresses() else {
                    break;
                };
                let answer = outcome
                    .map_or_else(|error| Answer::Refused(error.to_string()), Answer::Follows);
                message::send(socket, &answer).map_err(failed)?;
                continue;
            }
            (Request::Open { .. }, Some(_)) | (_, None) => break,
        };
        match result {
            Ok(interface) => send_interface(socket, interface).map_err(failed)?,
            Err(error) => {
                let answer = Answer::Refused(error.to_string());
                message::send(socket, &answer).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Opens the interface for services on these ports, and drops the helper's privileges. If the helper
/// cannot drop its privileges, the server does not start, and prints why.
fn open<'d>(
    device: &'d mut ReturningInterface,
    ports: Vec<u16>,
    plan: &Plan,
) -> Result<&'d Interface, Error> {
    let interface = device.open()?;
    let reserves = interface.can_follow_addresses();
    let follows = reserves || interface.can_follow_mac();
    let reopens = interface.may_return() && !interface.polls_queues();
    let tasks = HelperTasks {
        removes_interface: interface.needs_removal(),
        follows,
        reopens,
        ports: if reserves { ports } else { Vec::new() },
    };
    let kind = match (reopens, follows) {
        (true, _) => Kind::ReopeningHelper,
        (false, true) => Kind::FollowingHelper,
        (false, false) => Kind::Helper,
    };
    let privileges = plan.privileges(Table::for_helper(tasks))?;
    privileges.drop_all(kind)?;
    Ok(interface)
}

/// Receives the files of packet memory.
fn receive_memory(socket: BorrowedFd<'_>, facts: &[MemoryFacts]) -> io::Result<Vec<PacketMemory>> {
    let files = message::receive_descriptors(socket, facts.len())?;
    let parts = facts.iter().zip(files);
    Ok(parts
        .map(|(facts, file)| PacketMemory::from_parts(*facts, file))
        .collect())
}

/// Sends what the server needs to open the queues of the interface.
fn send_interface(socket: BorrowedFd<'_>, interface: &Interface) -> io::Result<()> {
    let (facts, descriptors) = interface.to_parts()?;
    let answer = Answer::Opened {
        facts,
        descriptors: descriptors.len(),
    };
    message::send(socket, &answer)?;
    message::send_descriptors(socket, &descriptors)
}
