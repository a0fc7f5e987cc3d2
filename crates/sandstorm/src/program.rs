//! Runs the web server as a `control` program.

mod choosing;
mod reloading;
mod rereading;
mod site_tallies;
mod tallies;

use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use control::{
    ContentFiles, ContentNames, Counted, Handover, Listening, Named, NewWorker, PreparedPackets,
    Program, Readers, RecordLog, Reloaded, StartError, Tally, Walk, Watched, WorkerContext, report,
    tally_tcp,
};
use nmio::device::{MemoryPlan, Transport};
use nmio::{Instant, Port};
use tcpip::{Config, CongestionControl, Cubic, SendMode};

use self::tallies::{MEANINGS, tally_disk, tally_logins, tally_sites};
use crate::access_log::{AccessLogArgs, AccessLogs};
use crate::app::{App, SiteOnly};
use crate::disk::{Chunks, Reads};
use crate::hosts::HostName;
use crate::improving::Done;
use crate::limits::Limits;
use crate::login::{Checks, Logins};
use crate::memory_budget::MemoryBudget;
use crate::part::{ProgramPart, locked};
use crate::parts::{ProgramParts, Redirecting, Served, members};
use crate::port_options::PortOptions;
use crate::prepared::Replies;
use crate::redirect_host::RedirectHost;
use crate::sending::{self, Sending};
use crate::server::{Http, PacketTotals, packets};
use crate::site::{NextSite, Site};
use crate::status::Status;
use crate::turnover::{Share, hand_over};
use crate::verdict::Sees;
use crate::web::{ANSWER_TIMEOUT, REQUEST_TIMEOUT};

/// The default port for HTTP.
const HTTP_PORT: u16 = 80;

/// Number of scratch frames for assembling packets. A few suffice, because received frames are
/// never retained.
const SCRATCH_FRAMES: u32 = 64;

/// Type of the function that creates [`SiteOnly`].
pub(crate) type MakeSiteOnly =
    fn(&mut NewWorker<()>, &mut Replies<'_>) -> Result<SiteOnly, StartError>;

impl Named for SiteOnly {
    const NAME: &'static str = "sandstorm";
    const PORT: u16 = HTTP_PORT;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// A program that serves a loaded site, with an application in each worker. Pass it to
/// [`control::serve`] or [`control::embed`](control::embed()).
#[derive(Debug)]
pub struct Sandstorm<A = SiteOnly, F = MakeSiteOnly, C = Cubic> {
    make: F,
    types: PhantomData<fn() -> (A, C)>,
    /// The folders, each with its site. They are served for different hosts, or there is only one.
    parts: ProgramParts,
    at_start: AtStart,
    site: Arc<NewestSite>,
    handover: Handover<Share>,
    /// Old replies that connections still sent when a folder was loaded last. They are freed on the
    /// reload thread, because freeing a large one takes long.
    leaving: Mutex<Vec<Arc<[u8]>>>,
    /// Reads files on the disk for the workers.
    reads: Arc<Reads>,
    /// Checks names and passwords for the workers.
    checks: Arc<Checks>,
    access_logs: AccessLogs,
    /// The TCP settings. Their ports are ignored.
    tcp: Config,
    /// Whether the mode of sending is chosen when the workers start. If not, `tcp` has the mode.
    chooses_mode: bool,
    /// How packets are sent, since the first worker has started.
    sending: OnceLock<Sending>,
    request_timeout: Duration,
    answer_timeout: Duration,
}

/// What stays as it was at the start.
#[derive(Debug, Default)]
struct AtStart {
    /// What all sites have in common, if a configuration file may add some.
    port: Option<PortOptions>,
    /// The folders with compressed forms.
    stores: Vec<PathBuf>,
}

impl Sandstorm {
    /// Creates a program that serves `site` with the TCP settings `tcp`. `folder` is the folder
    /// from which `site` was loaded. `tcp.ports` is ignored: the port comes from the command-line
    /// options, or else from [`Named::PORT`].
    pub fn new(site: Site, folder: &Path, tcp: Config) -> Self {
        Self::with_app(site, folder, tcp, |_, _| Ok(SiteOnly))
    }
}

impl<A, F> Sandstorm<A, F>
where
    A: App + Named,
    F: Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
{
    /// Same as [`new`](Sandstorm::new), but each worker has an application. `make` is called for
    /// each worker before privileges are dropped. It may open the worker's mailbox and prepare
    /// replies.
    pub fn with_app(site: Site, folder: &Path, tcp: Config, make: F) -> Self {
        let site = Arc::new(site);
        Self {
            make,
            types: PhantomData,
            at_start: AtStart {
                port: None,
                stores: store_of(&site).into_iter().collect(),
            },
            parts: ProgramParts::new(ProgramPart::new(Arc::clone(&site), folder)),
            site: Arc::new(NewestSite(Mutex::new(site))),
            handover: Handover::default(),
            leaving: Mutex::default(),
            reads: Arc::default(),
            checks: Arc::default(),
            access_logs: AccessLogs::default(),
            tcp,
            chooses_mode: false,
            sending: OnceLock::new(),
            request_timeout: REQUEST_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
        }
    }

    /// Selects the congestion control `D` instead of CUBIC.
    #[must_use]
    pub fn with_congestion<D: CongestionControl>(self) -> Sandstorm<A, F, D> {
        Sandstorm {
            make: self.make,
            types: PhantomData,
            parts: self.parts,
            at_start: self.at_start,
            site: self.site,
            handover: self.handover,
            leaving: self.leaving,
            reads: self.reads,
            checks: self.checks,
            access_logs: self.access_logs,
            tcp: self.tcp,
            chooses_mode: self.chooses_mode,
            sending: self.sending,
            request_timeout: self.request_timeout,
            answer_timeout: self.answer_timeout,
        }
    }
}

/// The newest site.
#[derive(Debug)]
struct NewestSite(Mutex<Arc<Site>>);

/// The response with a file has the name of the file. Connections that still send a response of an
/// older site show no name.
impl ContentNames for NewestSite {
    fn name_all(&self, say: &mut dyn FnMut(usize, &[u8])) {
        let site = Arc::clone(&locked(&self.0));
        for (path, reply) in site.files() {
            say(reply.bytes().as_ptr().addr(), path);
        }
    }
}

impl<C> Sandstorm<SiteOnly, MakeSiteOnly, C> {
    /// Lets [`Program::reload`] load the folder again, with these limits. With `strict`, an entry
    /// that cannot be served keeps the old site.
    #[must_use]
    pub fn with_reloads(mut self, limits: Limits, strict: bool) -> Self {
        self.parts
            .change_each(|_, part| part.allow_reloads(limits, strict));
        self
    }

    /// Notes where the options of the site come from.
    #[must_use]
    pub(crate) fn with_source(
        mut self,
        number: usize,
        memory: Option<u64>,
        port: PortOptions,
    ) -> Self {
        self.parts
            .change_each(|_, part| part.set_source(number, memory));
        self.at_start.port = Some(port);
        self
    }

    /// Serves the site only for these hosts. Requests for other hosts get status 421.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &[HostName]) -> Self {
        self.parts.change(|one| one.hosts = hosts.to_vec());
        self.set_site();
        self
    }

    /// Sends requests for these hosts elsewhere.
    #[must_use]
    pub(crate) fn with_redirect_hosts(mut self, hosts: &[RedirectHost]) -> Self {
        if !hosts.is_empty() {
            self.parts.change(|one| {
                one.redirecting = Redirecting::all(hosts, &one.part.site().fields_everywhere());
            });
            self.set_site();
        }
        self
    }

    /// Also serves the site of `other`, for its own hosts. One of the sites may have no hosts: it is
    /// served for all that the others are not served for. Everything but the folder and the hosts of
    /// `other` is ignored.
    #[must_use]
    pub fn with_site(mut self, other: Self) -> Self {
        self.parts.extend(&other.parts);
        self.at_start.stores.extend(other.at_start.stores);
        self.set_site();
        self
    }

    /// Gives another name to the site, for the operator, counts and logs. Otherwise the site is
    /// named after the folder.
    #[must_use]
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        self.parts.change_each(|_, part| part.set_name(name));
        self
    }

    fn set_site(&mut self) {
        self.site = Arc::new(NewestSite(Mutex::new(together(&self.parts))));
    }
}

impl<A, F, C> Sandstorm<A, F, C> {
    /// The newest site.
    fn site(&self) -> Arc<Site> {
        Arc::clone(&locked(&self.site.0))
    }

    /// Sets the maximum time for receiving a request and its body, measured from its first byte.
    #[must_use]
    pub fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self {
            request_timeout,
            ..self
        }
    }

    /// Sets the maximum time for a deferred answer.
    #[must_use]
    pub fn with_answer_timeout(self, answer_timeout: Duration) -> Self {
        Self {
            answer_timeout,
            ..self
        }
    }

    /// Chooses the mode of sending when the workers start, by the memory, if `chooses_mode` is set.
    #[must_use]
    pub(crate) fn with_chosen_mode(self, chooses_mode: bool) -> Self {
        Self {
            chooses_mode,
            ..self
        }
    }

    /// Opens the logs that get a line for each answered request. `args` has the options of each folder.
    /// A request for no site is in the log of the site for all other hosts, or else in the first site's
    /// log.
    pub(crate) fn with_access_logs(
        mut self,
        program: &str,
        args: &[&AccessLogArgs],
    ) -> io::Result<Self> {
        let parts = self.parts.now();
        let default = parts.iter().position(|one| one.hosts.is_empty());
        let of_none = args[default.unwrap_or(0)];
        let has_hosts = self.site().by_host().is_some();
        let name = if has_hosts { "" } else { parts[0].part.name() };
        let known = self.parts.shared_known();
        drop(parts);
        self.access_logs = AccessLogs::of_hosts(program, args, (of_none, name), known)?;
        let logs = &self.access_logs;
        self.parts
            .change_each(|index, part| part.set_log(logs.index_of(args[index])));
        *locked(&self.site.0) = together(&self.parts);
        Ok(self)
    }

    /// The names of all folders.
    pub(crate) fn name(&self) -> String {
        let parts = self.parts.now();
        let names: Vec<_> = parts.iter().map(|one| one.part.name()).collect();
        names.join(" + ")
    }

    /// Hands the next site of a part to the workers, and waits until all have it.
    fn change_part(&self, part: &ProgramPart, next: NextSite) {
        let (old, before) = (self.site(), part.site());
        part.set_site(&next.site);
        let next = if old.by_host().is_some() {
            self.parts.renew_redirecting();
            let members = members(&self.parts.now());
            old.next_by_hosts((&members, &self.parts.known()), &[(before, next)])
        } else {
            next
        };
        self.change_site(&old, next);
    }

    /// Hands a site that takes over from `old` to the workers, and waits until all have it.
    fn change_site(&self, old: &Site, next: NextSite) {
        let next = Arc::new(next);
        let change = || *locked(&self.site.0) = Arc::clone(&next.site);
        hand_over(&self.handover, &next, change);
        let replies = next.leaving.iter();
        let replies = replies.map(|index| Arc::clone(old.replies()[*index as usize].bytes()));
        let mut leaving = locked(&self.leaving);
        leaving.extend(replies);
        // A site for different hosts has the shared replies of a member twice. The last reference to bytes
        // must be the only one in the list.
        leaving.sort_unstable_by_key(|bytes| bytes.as_ptr().addr());
        leaving.dedup_by(|one, other| Arc::ptr_eq(one, other));
    }

    /// The memory of the site, if not all files have to be in memory.
    fn memory_budget(&self) -> Option<MemoryBudget> {
        let parts = self.parts.now();
        let budgets = parts.iter().map(|one| one.part.site().settings().memory);
        let bytes = budgets.map(|one| Some(one?.bytes())).sum::<Option<u64>>()?;
        Some(MemoryBudget::new(bytes))
    }

    /// Makes the cache of a worker for chunks of files on the disk.
    fn chunks(&self, context: &WorkerContext) -> Chunks {
        let used = self.site().totals().memory();
        let taken = self.sending(context).taken();
        let memory = self.memory_budget().map(|memory| memory.beside(taken));
        let capacity = memory.map_or(0, |memory| memory.for_pieces(used, context.workers));
        Chunks::new(&self.reads, capacity as usize, &context.bell)
    }

    /// Whether a site asks for passwords, or may do so after a reload.
    fn may_check_passwords(&self) -> bool {
        let parts = self.parts.now();
        let mut parts = parts.iter().map(|one| &one.part);
        parts.any(|part| part.can_reload() || !part.site().realms().is_empty())
    }

    fn packets(&self, context: &WorkerContext) -> PacketTotals {
        packets(&self.site(), &addresses(context), context.mtu)
    }
}

/// Returns the site of a single part without hosts, or a site that leads to the part for each host.
fn together(parts: &ProgramParts) -> Arc<Site> {
    match &*parts.now() {
        [one] if one.hosts.is_empty() && one.redirecting.is_empty() => one.part.site(),
        all => Arc::new(Site::by_members(&members(all), &parts.known())),
    }
}

/// Returns the folder with the compressed forms of a site, if there is one.
fn store_of(site: &Site) -> Option<PathBuf> {
    site.settings().coder.as_ref()?.folder().cloned()
}

/// The addresses on which the server answers.
fn addresses(context: &WorkerContext) -> Vec<IpAddr> {
    context.addresses.iter().map(|one| one.address).collect()
}

impl<A, F, C> Program for Sandstorm<A, F, C>
where
    A: App + Named,
    C: CongestionControl,
    F: Fn(&mut NewWorker<A::Message>, &mut Replies<'_>) -> Result<A, StartError> + Sync,
{
    const NAME: &'static str = A::NAME;
    const VERSION: &'static str = A::VERSION;
    const DEFAULT_PORT: u16 = A::PORT;
    type Transports<P: Port> = Http<A, C>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Tcp, port)]
    }

    fn content_name(&self) -> Option<String> {
        Some(self.name())
    }

    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        MemoryPlan {
            resident_frames: self.sending(context).residents,
            scratch_frames: SCRATCH_FRAMES,
        }
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Http<A, C>, StartError> {
        let config = Config {
            ports: vec![context.port],
            mode: self.sending(context).mode,
            ..self.tcp.clone()
        };
        control::check_reserved(&config, <Http<A, C>>::reserved_bytes(&config))?;
        let secret = context.secret.words();
        let (site, handover) = if self.can_reload() {
            let (site, mailbox) = self.handover.open(&context.bell, || self.site());
            (site, Some(mailbox))
        } else {
            (self.site(), None)
        };
        let mut worker = NewWorker::new(context);
        let make = |replies: &mut Replies<'_>| (self.make)(&mut worker, replies);
        let addresses = addresses(context);
        let server: Http<A, C> =
            Http::load(site, make, &addresses, &config, port, secret, Instant::ZERO)?;
        let server = server
            .with_request_timeout(self.request_timeout)
            .with_answer_timeout(self.answer_timeout)
            .with_access_log(self.access_logs.senders());
        let server = match worker.into_mailbox() {
            Some(mailbox) => server.with_mailbox(mailbox),
            None => server,
        };
        let server = match handover {
            Some(mailbox) => server.with_handover(mailbox),
            None => server,
        };
        let server = server
            .with_chunks(self.chunks(context))
            .with_shared_reports(context.index == 0);
        let server = if self.may_check_passwords() {
            server.with_logins(Logins::new(&self.checks, &context.bell))
        } else {
            server
        };
        let packets = server.packets();
        let residents = server.stack().contents().totals().residents;
        if config.mode == SendMode::PreCopy && residents < packets.count {
            tracing::warn!(
                "worker {}: {} of {} packets live in the port's memory; the others, those of the \
                 largest files, are copied when they are sent",
                context.index,
                report::count(residents),
                report::count(packets.count),
            );
        }
        Ok(server)
    }

    fn prepared<P: Port>(&self, http: &Http<A, C>) -> PreparedPackets {
        PreparedPackets {
            packets: http.packets().count,
            bytes: http.packets().bytes,
        }
    }

    fn read_paths(&self) -> Vec<PathBuf> {
        let parts = self.parts.now();
        let paths = parts.iter().flat_map(|one| one.part.read_paths());
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        // A folder contains those below it.
        paths.dedup_by(|path, above| path.starts_with(above));
        paths
    }

    fn files(&self) -> ContentFiles {
        let mut files = ContentFiles::default();
        for one in self.parts.now().iter() {
            files.add(one.part.files());
        }
        files
    }

    fn watched(&self) -> Vec<Watched> {
        let parts = self.parts.all().into_iter();
        parts.flat_map(|one| one.part.watched()).collect()
    }

    fn readers(&self) -> Vec<&dyn Readers> {
        let has_files = self.site().totals().disk_files > 0;
        self.reads.expect_files(has_files);
        let reads = (has_files || self.can_reload()).then_some(&*self.reads as _);
        let checks = self.may_check_passwords().then_some(&*self.checks as _);
        reads.into_iter().chain(checks).collect()
    }

    fn logs(&self) -> Vec<&RecordLog> {
        self.access_logs.iter().collect()
    }

    fn can_reload(&self) -> bool {
        self.parts.now().iter().any(|one| one.part.can_reload())
    }

    /// A site has the name of its folder.
    fn has_content(&self, name: &str) -> bool {
        self.parts.now().iter().any(|one| one.part.is_named(name))
    }

    fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        self.reload_all(only)
    }

    /// Frees the bytes of responses that no connection sends any more. A worker must not wait while the
    /// system takes memory back, so the last reference is always dropped here.
    fn free_unused(&self) -> bool {
        let mut leaving = locked(&self.leaving);
        leaving.retain(|bytes| Arc::strong_count(bytes) > 1);
        !leaving.is_empty()
    }

    fn prepare_more(&self, say: &mut dyn FnMut(&'static str, String)) -> bool {
        let mut has_more = false;
        for Served { part, .. } in &*self.parts.now() {
            let done = part.compress();
            has_more |= !matches!(done, Done::Nothing);
            if let Done::Site(next) = done {
                let (coded, left) = (next.site.totals().coded, next.site.uncoded().len() as u64);
                self.change_part(part, *next);
                let coded = report::counted(coded, "response");
                let left = match left {
                    0 => String::new(),
                    left => format!("; {} to go", report::counted(left, "file")),
                };
                say("compressed", format!("{coded} of {}{left}", part.name()));
            }
            let tagged = part.tag();
            has_more |= !matches!(tagged, Done::Nothing);
            if let Done::Site(next) = tagged {
                self.change_part(part, *next);
            }
        }
        has_more
    }

    fn stored_paths(&self) -> Vec<PathBuf> {
        self.at_start.stores.clone()
    }

    fn loaded(&self) -> Vec<(&'static str, String)> {
        let site = self.site();
        let totals = site.totals();
        let parts = self.parts.now();
        let files = parts.iter().map(|one| ("files", one.describe()));
        let responses = format!(
            "{}, {} of memory, shared by all workers",
            report::count(totals.replies),
            report::bytes(totals.reply_bytes)
        );
        let skipped = match totals.skipped {
            0 => "none".to_owned(),
            n => format!(
                "{}; the log says why, and --strict would refuse to start",
                report::count(n)
            ),
        };
        let memory = self
            .memory_budget()
            .map(|budget| ("memory", budget.describe(totals)));
        let known = self.sending.get();
        let mode = known.map_or_else(
            || sending::describe(self.tcp.mode).to_owned(),
            Sending::describe,
        );
        let others = [
            ("left out", skipped),
            ("responses", responses),
            ("mode", mode),
            ("congestion", C::NAME.to_owned()),
        ];
        let redirects = parts.iter().flat_map(|one| &one.redirecting);
        let redirects = redirects.map(|one| ("redirects", one.host.describe()));
        let logins = parts.iter().flat_map(|one| one.part.logins());
        let logins = logins.map(|login| ("passwords", login));
        files
            .chain(redirects)
            .chain(logins)
            .chain(memory)
            .chain(others)
            .collect()
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let path = self.site().some_path();
        let parts = self.parts.now();
        let host = parts[0].hosts.first().map_or_else(String::new, |host| {
            format!("-H 'Host: {}' ", host.example())
        });
        at.authority(HTTP_PORT)
            .map(|authority| format!("curl {host}http://{authority}{path}"))
            .into_iter()
            .collect()
    }

    fn counted<P: Port>(&self, http: &Http<A, C>) -> Counted {
        let tcp = http.stack().counters();
        Counted {
            partial_checksums: tcp.partial_checksum,
            evicted: tcp.evicted,
            ..Counted::default()
        }
    }

    fn tally<P: Port>(&self, http: &Http<A, C>, tally: &mut Tally) {
        tally.describe(MEANINGS);
        let stack = http.stack();
        let (tcp, web) = (stack.counters(), stack.app().counters());
        let known = stack.app().site().known();
        if known.len() > 1 {
            tally_sites(tally, web, (&known, stack.app().hosted_counters()));
        } else {
            tally.event("requests", web.requests);
            for status in Status::ALL {
                tally.event_of("answers", ("status", status.digits()), web.of(status));
            }
        }
        if A::SEES != Sees::Nothing {
            for (class, count) in ["2xx", "3xx", "4xx", "5xx"].into_iter().zip(web.of_app) {
                tally.event_of("answers", ("status", class), count);
            }
        }
        if let Some(log) = stack.app().access_log() {
            tally.event("access log lines lost", log.lost());
        }
        tally.event("requests too slow", tcp.deadlines_missed);
        if http.reports_shared() {
            self.tally_memory(tally, stack.app().site());
        }
        if let Some((chunks, gave_way)) = stack.app().disk_counts() {
            tally_disk(tally, chunks, gave_way);
        }
        if let Some(counts) = stack.app().login_counts() {
            tally_logins(tally, counts);
        }
        tally.measured("request", stack.app().request_times());
        tally_tcp(tally, tcp, stack.states());
    }

    fn walk<P: Port>(&self, http: &mut Http<A, C>, now: Instant, walk: &mut Walk) {
        walk.visit(A::NAME, http.stack_mut(), now);
    }

    fn content_names(&self) -> Vec<Arc<dyn ContentNames>> {
        vec![Arc::<NewestSite>::clone(&self.site)]
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
