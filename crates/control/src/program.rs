//! The interface between a server and the code that starts it, runs it and reports its counts.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use glob::Pattern;
use ip::Transports;
use nmio::device::{AddressPrefix, MemoryPlan, Transport};
use nmio::{Bell, Instant, Port};

use crate::content_files::ContentFiles;
pub use crate::error::StartError;
use crate::place::Place;
use crate::port_owner::PORT_OPTION;
pub use crate::port_owner::PortOwner;
use crate::readers::Readers;
use crate::records::RecordLog;
use crate::secret::Secret;
use crate::table::walk::Walk;
pub use crate::tally::{Count, CountKind, Counted, Labels, Meanings, MeasuredTimes, Tally};

/// Maximum length of [`Program::NAME`] in bytes. The name of a thread or an interface has up to 15 bytes,
/// and begins with the program's name.
const MAX_NAME_LEN: usize = 12;

/// Refuses to compile a program whose name is too long.
///
/// ```compile_fail
/// use control::{Named, NewWorker};
/// struct Service;
/// impl udpip::Service for Service {
///     type Message = ();
///     fn on_datagram<P: nmio::Port>(&mut self, _: udpip::Datagram<'_, P>, _: nmio::Instant) {}
/// }
/// impl Named for Service {
///     const NAME: &'static str = "thirteen-long";
///     const PORT: u16 = 9;
/// }
/// control::udp(|_: &mut NewWorker<()>| Ok(Service));
/// ```
pub(crate) const fn check_name<P: Program>() {
    const {
        assert!(
            P::NAME.len() <= MAX_NAME_LEN,
            "the name of a program has at most 12 bytes"
        );
    }
}

/// A server program whose content is loaded. Workers serve it on their ports.
///
/// # Calling contract
/// Each worker thread calls [`memory`](Program::memory), opens its port with that memory, and
/// creates its transports with [`transports`](Program::transports). When all workers are ready,
/// [`loaded`](Program::loaded) and [`try_commands`](Program::try_commands) become part of the start
/// block, and the workers begin to serve. [`tally`](Program::tally) collects a worker's counts when
/// it is ready, while it serves, and after it has ended.
///
/// # Privileges
/// Some hooks run before privileges are dropped, as the user who started the server (usually root).
/// All other hooks run as the server's user in the
/// [sandbox](crate#what-a-callback-may-do-in-the-sandbox).
///
/// | hook | thread | privileges |
/// |---|---|---|
/// | `load` of [`serve`](crate::serve), [`read_paths`](Program::read_paths), [`files`](Program::files), [`services`](Program::services), [`port_owners`](Program::port_owners), [`places`](Program::places), [`content_name`](Program::content_name), [`logs`](Program::logs), [`readers`](Program::readers), [`watched`](Program::watched), [`content_names`](Program::content_names), [`content_lists`](Program::content_lists), [`stored_paths`](Program::stored_paths), [`can_reload`](Program::can_reload), [`check_addresses`](Program::check_addresses) | control | as started |
/// | [`memory`](Program::memory), [`transports`](Program::transports) | worker | as started |
/// | [`prepared`](Program::prepared) | worker | dropped |
/// | [`has_content`](Program::has_content), [`reload`](Program::reload), [`free_unused`](Program::free_unused), [`prepare_more`](Program::prepare_more), [`places`](Program::places) and [`content_name`](Program::content_name) again | one of its own | dropped |
/// | [`loaded`](Program::loaded), [`try_commands`](Program::try_commands), [`services`](Program::services) and [`places`](Program::places) again | control | dropped |
/// | the callbacks of the transports after [`transports`](Program::transports) has returned, [`counted`](Program::counted), [`tally`](Program::tally), [`walk`](Program::walk) | worker | dropped |
///
/// [`embed`](crate::embed()) takes no `load`: the calling program reads its content first. `embed`
/// calls neither [`read_paths`](Program::read_paths) and [`files`](Program::files) nor the hooks for
/// reloads. The control thread keeps its privileges, and the workers drop theirs.
pub trait Program: Sync {
    /// The program's name, such as `sandstorm`. It has at most 12 bytes, because worker threads are
    /// named after it. A program with a longer name does not compile.
    const NAME: &'static str;

    /// The program's version.
    const VERSION: &'static str;

    /// The port that is served without `--port`.
    const DEFAULT_PORT: u16;

    /// The worker's implementation of TCP, UDP or both, on a port of type `P`.
    type Transports<P: Port>: Transports<P>;

    /// Returns the services that the program offers when it serves `port`. Their packets are
    /// steered to the rings. Called before privileges are dropped, and again for the start block.
    fn services(&self, port: u16) -> Vec<(Transport, u16)>;

    /// Returns the same services as [`services`](Self::services), grouped by program. Messages
    /// about ports name the program and the option that sets its port. Only a program that combines
    /// several programs implements this method. Called before privileges are dropped.
    fn port_owners(&self, port: u16) -> Vec<PortOwner> {
        vec![PortOwner {
            program: Self::NAME,
            option: PORT_OPTION.to_owned(),
            services: self.services(port),
        }]
    }

    /// Returns where each part of the program is served if it serves `port`. The default is one place
    /// for all services.
    fn places(&self, port: u16) -> Vec<Place> {
        vec![Place {
            program: Self::NAME,
            site: None,
            addresses: Vec::new(),
            services: self.services(port),
        }]
    }

    /// Returns the name of the content, if a reload can change it. Otherwise the content has the name that it was
    /// given in [`Many`](crate::Many). Called before privileges are dropped, and on the reload thread.
    fn content_name(&self) -> Option<String> {
        None
    }

    /// Returns the numbers of resident packets and scratch frames that one worker needs, both 0 by
    /// default. The port adds the frames for its rings. Called before privileges are dropped.
    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        let _ = context;
        MemoryPlan::default()
    }

    /// Creates the transports of one worker, and prepares all packets in `port`'s memory. Called on
    /// the worker's own thread, before it drops its privileges.
    ///
    /// # Errors
    /// If the program cannot serve on this port. The server then does not start.
    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Transports<P>, StartError>;

    /// Returns the number and size of the prepared packets, for the start block. The default is no
    /// packets, and then there is no such line. Called after privileges are dropped.
    fn prepared<P: Port>(&self, transports: &Self::Transports<P>) -> PreparedPackets {
        let _ = transports;
        PreparedPackets::default()
    }

    /// Returns the folders and files that the content was read from. Called before privileges are
    /// dropped. Landlock lets the thread of [`reload`](Self::reload) read only below these paths, and below
    /// the folder of the configuration file. A new file may take the place of a file, because the thread may
    /// also read below the folder that contains it. The root folder is an exception. A new *folder* may take
    /// the place of another one only if this method returns a folder above it. On FreeBSD, Capsicum lets no
    /// thread open files, so nothing can be reloaded.
    fn read_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the files that the content was read from. Warnings at start say which of them the
    /// server's user cannot read: some are served anyway, and others make each reload fail. Called before
    /// privileges are dropped.
    fn files(&self) -> ContentFiles {
        ContentFiles::default()
    }

    /// Returns true if [`reload`](Self::reload) can read the content again. It is false by default.
    fn can_reload(&self) -> bool {
        false
    }

    /// Returns the folders that are watched with `--watch`. If something changes there,
    /// [`reload`](Self::reload) is called. Called before privileges are dropped, and on the reload
    /// thread after each reload, because other files may be content then.
    fn watched(&self) -> Vec<Watched> {
        Vec::new()
    }

    /// Returns true if a part of the content may have this name, such as the folder of a site, or
    /// the name of a zone. [`reload`](Self::reload) gets only such names. Called on the reload
    /// thread.
    fn has_content(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Reads the content again, and hands it to the workers, for example through a
    /// [`Handover`](crate::Handover). Parts of the content that depend on nothing else may keep
    /// their old content because of an error, while others change. Called on a thread of its own,
    /// after privileges are dropped. This thread may read files below
    /// [`read_paths`](Self::read_paths), as the server's user.
    ///
    /// `only` names the part of the content that must be read again. `None` stands for all content.
    ///
    /// # Errors
    /// If no new content can be served. All old content must then stay in use.
    fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let _ = only;
        Err("this program cannot reload its content; restart it".into())
    }

    /// Frees old content that is no longer in use. Returns true if some of it is still in use, for
    /// example because a client has not received all of it. Called after a [`reload`](Self::reload),
    /// and then once a second until it returns false. The thread is the same.
    fn free_unused(&self) -> bool {
        false
    }

    /// Does a piece of work that improves the content, such as compressing a file. The pieces should
    /// be short, because a reload waits for one. Called when no reload is asked for, until it
    /// returns false, and again after each [`reload`](Self::reload). The thread is the same. What it
    /// passes to `say`, a label and a text, becomes a line for the operator.
    fn prepare_more(&self, say: &mut dyn FnMut(&'static str, String)) -> bool {
        let _ = say;
        false
    }

    /// Returns the folders in which [`prepare_more`](Self::prepare_more) and
    /// [`reload`](Self::reload) may make, replace and remove files. Called before privileges are
    /// dropped.
    fn stored_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the threads that read files for the workers, or datagrams of other servers. They are
    /// started before the workers, and end after them. Called before privileges are dropped.
    fn readers(&self) -> Vec<&dyn Readers> {
        Vec::new()
    }

    /// Returns the logs to which the workers send records. A thread of its own writes each log.
    /// Called before privileges are dropped.
    fn logs(&self) -> Vec<&RecordLog> {
        Vec::new()
    }

    /// Checks that the content can be served on the server's own addresses. Called before a worker begins.
    ///
    /// # Errors
    /// If a part of the content needs another address.
    fn check_addresses(&self, own: &[IpAddr]) -> Result<(), StartError> {
        let _ = own;
        Ok(())
    }

    /// Returns lines about the loaded content for the start block. Each line is a label and a
    /// value. Called after privileges are dropped.
    fn loaded(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns shell commands with which the operator can try the server. Scripts use the first
    /// command. Called after privileges are dropped.
    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let _ = at;
        Vec::new()
    }

    /// Returns the counts that the log reports. Called together with [`tally`](Self::tally), after
    /// privileges are dropped. The default counts nothing. The log then does not warn that packets with
    /// partial checksums were dropped, or that requests have failed. Nor does it tell of evicted connections.
    fn counted<P: Port>(&self, transports: &Self::Transports<P>) -> Counted {
        let _ = transports;
        Counted::default()
    }

    /// Adds the counts of a worker's transports to `tally`. Called after privileges are dropped:
    /// when the worker is ready, then up to ten times a second for [live
    /// counters](crate::Snapshot), and when the worker ends. A call delays the next batch of
    /// packets, so the implementation should only copy numbers.
    fn tally<P: Port>(&self, transports: &Self::Transports<P>, tally: &mut Tally) {
        let _ = (transports, tally);
    }

    /// Passes each TCP stack of a worker to [`Walk::visit`], for a list of the connections. The order
    /// is always the same. Called between two batches of packets, after privileges are dropped, and
    /// only while somebody asks for the list.
    fn walk<P: Port>(&self, transports: &mut Self::Transports<P>, now: Instant, walk: &mut Walk) {
        let _ = (transports, now, walk);
    }

    /// Returns the names of the content that connections send, for a list of the connections. Called
    /// before privileges are dropped.
    fn content_names(&self) -> Vec<Arc<dyn ContentNames>> {
        Vec::new()
    }

    /// Returns the lists of content that an operator may ask for, such as the list of zones. Called
    /// before privileges are dropped.
    fn content_lists(&self) -> Vec<Arc<dyn ContentList>> {
        Vec::new()
    }
}

/// A list of parts of the content, such as the zones, for an operator. The control thread uses it,
/// after privileges are dropped.
pub trait ContentList: Send + Sync {
    /// The list's name, such as `zones`. The control socket has the list at the path `/NAME`.
    fn name(&self) -> &'static str;

    /// Begins a list of the parts with these names, or of all parts if there are no names. `counts` has
    /// the counts of all workers.
    ///
    /// Each item is a line of JSON without a line feed. The control thread sends some lines, does
    /// other work, and continues later. Therefore the iterator must hold no lock, and a line should
    /// cost little.
    fn lines(&self, names: Vec<String>, counts: &Tally) -> Box<dyn Iterator<Item = String> + Send>;

    /// Notices what the passing of time changes, such as signatures that expire, and logs it. Called once a
    /// minute while the workers serve. The default does nothing.
    fn notice(&self, now: SystemTime) {
        let _ = now;
    }
}

/// Names the content that connections send. The control thread uses it, after privileges are dropped.
pub trait ContentNames: Send + Sync {
    /// Calls `say` for each content that has a name. The first argument identifies the content like
    /// [`Sending::content`](tcpip::Sending::content), and the second is the name.
    fn name_all(&self, say: &mut dyn FnMut(usize, &[u8]));
}

/// What [`Program::reload`] has read. A description alone stands for content that is new as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Describes the new content in words that fit behind `reloaded in 0.13 s,`.
    pub done: String,
    /// The parts that keep their old content, and why. `None` if there are no such parts.
    pub kept: Option<String>,
}

impl From<String> for Reloaded {
    fn from(done: String) -> Self {
        Self { done, kept: None }
    }
}

impl Reloaded {
    /// Combines what several programs have read. Each of them has a name.
    ///
    /// # Errors
    /// If all have failed.
    pub fn of_all<N: Display>(
        parts: impl IntoIterator<Item = (N, Result<Self, StartError>)>,
    ) -> Result<Self, StartError> {
        let (mut done, mut kept) = (Vec::new(), Vec::new());
        for (name, outcome) in parts {
            match outcome {
                Ok(part) => {
                    done.push(format!("{name}: {}", part.done));
                    kept.extend(part.kept.map(|why| format!("{name}: {why}")));
                }
                Err(error) => kept.push(format!("{name}: {error}")),
            }
        }
        let kept = (!kept.is_empty()).then(|| kept.join("; "));
        match kept {
            Some(why) if done.is_empty() => Err(why.into()),
            kept => Ok(Self {
                done: done.join("; "),
                kept,
            }),
        }
    }
}

/// Files whose changes cause a reload. A change of a symbolic link beside them causes one too, because
/// they may lead through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A file or a folder, which need not exist. What a folder contains does not count.
    Entry(PathBuf),
    /// Files whose names match a pattern.
    Matching {
        /// The folder of the files.
        folder: PathBuf,
        /// The pattern of the names, such as `*.zone`.
        names: Pattern,
        /// Whether files in folders below count as well.
        below: bool,
    },
    /// The folder and everything below it.
    Tree(PathBuf),
}

/// What a worker knows when it is created.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// Number of this worker, from 0.
    pub index: u32,
    /// Number of workers of the server.
    pub workers: u32,
    /// The interface's link-layer address.
    pub mac: [u8; 6],
    /// The served addresses, with the prefixes of their networks.
    pub addresses: Vec<AddressPrefix>,
    /// VLANs whose frames are served, in addition to untagged frames.
    pub vlans: Vec<u16>,
    /// Whether only the server uses the addresses. If so, the server answers ARP, NDP and echo
    /// requests. Otherwise, the kernel does.
    pub own: bool,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: usize,
    /// Memory that a resident packet takes, in bytes. A reason instead means that there should be
    /// resident packets only if the operator asks for them.
    pub resident_len: Result<usize, &'static str>,
    /// The served port.
    pub port: u16,
    /// The random keys of this worker.
    pub secret: Secret,
    /// The bell that wakes this worker when a message arrives in one of the bell's
    /// [mailboxes](Bell::mailbox).
    pub bell: Bell,
}

impl WorkerContext {
    /// Creates the context of worker `index` of `workers`, for tests.
    #[cfg(test)]
    pub(crate) fn example(index: u32, workers: u32) -> Self {
        Self {
            index,
            workers,
            mac: [2, 0, 0, 0, 0, 1],
            addresses: Vec::new(),
            vlans: Vec::new(),
            own: true,
            mtu: 1500,
            resident_len: Ok(2048),
            port: 7,
            secret: Secret::random().expect("random bytes"),
            bell: Bell::new().expect("an eventfd"),
        }
    }
}

/// The number and size of the packets that are prepared for sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreparedPackets {
    /// Number of packets.
    pub packets: u64,
    /// Size of these packets in bytes, headers included.
    pub bytes: u64,
}

impl Add for PreparedPackets {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The addresses and the port of a server.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Addresses, ordered by how easy they are to try: IPv4, then global IPv6, then link-local
    /// IPv6.
    pub addresses: Vec<IpAddr>,
    /// The served port.
    pub port: u16,
}

impl Listening {
    pub(crate) fn new(mut addresses: Vec<IpAddr>, port: u16) -> Self {
        addresses.sort_by_key(|address| match address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        });
        Self { addresses, port }
    }

    /// Returns the command that `format` forms from the first address and the port, or no command
    /// if there is no address. [`Program::try_commands`] can return this list.
    pub fn command(&self, format: impl FnOnce(&str, u16) -> String) -> Vec<String> {
        let command = self.host().map(|host| format(&host, self.port));
        command.into_iter().collect()
    }

    /// Returns the first address, or `None` if there is no address. A link-local address needs the
    /// client's interface (RFC 4007, section 11), so the word `IFACE` stands for it: `fe80::1%IFACE`.
    pub fn host(&self) -> Option<String> {
        let first = self.addresses.first()?;
        Some(match first {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => format!("{v6}%IFACE"),
            _ => first.to_string(),
        })
    }

    /// Returns the first address in the form used in URLs, or `None` if there is no address. In it,
    /// `%25` stands for the `%` of a link-local address (RFC 6874). Appends the port, unless it is
    /// `default_port`.
    pub fn authority(&self, default_port: u16) -> Option<String> {
        let host = self.host()?;
        let host = match self.addresses.first()? {
            IpAddr::V4(_) => host,
            IpAddr::V6(_) => format!("[{}]", host.replace('%', "%25")),
        };
        Some(if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_try_prefer_an_ipv4_address() {
        let addresses = ["fe80::1", "2001:db8::1", "192.0.2.1"].map(|a| a.parse().unwrap());
        let at = Listening::new(addresses.to_vec(), 80);
        assert_eq!(at.authority(80).unwrap(), "192.0.2.1");
        let at = Listening::new(addresses[..2].to_vec(), 8080);
        assert_eq!(at.authority(80).unwrap(), "[2001:db8::1]:8080");
        assert_eq!(
            at.command(|ip, port| format!("nc {ip} {port}")),
            ["nc 2001:db8::1 8080"]
        );
        let local = Listening::new(addresses[..1].to_vec(), 80);
        assert_eq!(local.host().unwrap(), "fe80::1%IFACE");
        assert_eq!(local.authority(80).unwrap(), "[fe80::1%25IFACE]");
        let nowhere = Listening::new(vec![], 80);
        assert_eq!(nowhere.authority(80), None);
        assert!(nowhere.command(|_, _| unreachable!()).is_empty());
    }

    #[test]
    fn a_part_with_an_error_keeps_no_other_part_from_changing() {
        let done = |what: &str| Ok(Reloaded::from(what.to_owned()));
        let failed = |why: &str| Err::<Reloaded, _>(StartError::from(why));
        let combine = |parts: Vec<_>| Reloaded::of_all(parts);
        let all = combine(vec![("a", done("1 file")), ("b", done("1 zone"))]).unwrap();
        assert_eq!(all, "a: 1 file; b: 1 zone".to_owned().into());
        let some = combine(vec![("a", done("1 file")), ("b", failed("bad"))]).unwrap();
        let (what, kept) = ("a: 1 file".to_owned(), Some("b: bad".to_owned()));
        assert_eq!(some, Reloaded { done: what, kept });
        let nested = combine(vec![("web", Ok(some)), ("dns", done("1 zone"))]).unwrap();
        assert_eq!(nested.done, "web: a: 1 file; dns: 1 zone");
        assert_eq!(nested.kept.unwrap(), "web: b: bad");
        let none = combine(vec![("a", failed("worse")), ("b", failed("bad"))]);
        assert_eq!(none.unwrap_err().to_string(), "a: worse; b: bad");
    }
}
