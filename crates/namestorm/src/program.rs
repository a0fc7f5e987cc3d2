//! The program that `control` runs: the prepared zones, and the reports about them.

mod reloading;
mod rereading;
mod source;
mod tallies;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use control::report::{bytes, count, counted};
use control::{
    ContentFiles, ContentList, Counted, Handover, Listening, Named, NewWorker, PreparedPackets,
    Program, Readers, RecordLog, Reloaded, StartError, Tally, Walk, Watched, WorkerContext,
    progress, tally_tcp, tally_udp,
};
use nmio::Port;
use nmio::device::{Device, MemoryPlan, Transport};
use tcpip::Stack;

pub use self::source::NextZones;
use self::source::{Given, Source, locked};
use self::tallies::{MEANINGS, tally_limits, tally_proofs};
use crate::answers::Answers;
use crate::compile::compile;
use crate::defence::{Defence, DefenceArgs};
use crate::hook::{Hook, NoHook};
use crate::identity::{Identity, IdentityArgs};
use crate::inventory::{Inventory, REPLIES_BY_ZONE, TRANSFERS_BY_ZONE};
use crate::key::{Form, Hashing};
use crate::load::ZoneSpec;
use crate::name::Name;
use crate::notify::Notifier;
use crate::query_log::{QueryLog, QueryLogArgs};
use crate::secret_source::NeededKeys;
use crate::server::UdpAndTcp;
use crate::service::{Dns, ReplyMode};
use crate::tcp::{DnsOverTcp, TcpSettings};
use crate::transfer::TransferClients;
use crate::turnover::NewAnswers;
use crate::zone::Zone;
use crate::zone_args::{NoZones, ZoneArgs};
use crate::zone_files::{ZoneFiles, example, has_www, summary};
use crate::zone_folders::{RealPaths, ZoneFolders};
use crate::zones::Zones;

/// Maximum number of resident packets per worker in pre-copy mode. At 2 or 4 KiB per packet, they
/// take 32 or 64 MiB of packet memory. Answers that get no resident packet are copied.
pub const MAX_RESIDENT_PACKETS: u32 = 16_384;
/// Number of resident packets to plan for each answer: two for IPv4 and two for IPv6. While one of
/// the two is in the TX ring, the other can be sent.
const COPIES: usize = 4;

/// The reason why the zones cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Some zones are not served, but the user requires all of them.
    #[error(
        "{lost} of {all} zones cannot be loaded, which strict loading does not allow: correct the \
         errors above, or leave --strict out (storm: --dns-strict)"
    )]
    Strict {
        /// Number of given zones that have errors or are given twice.
        lost: usize,
        /// Number of zones on the command line.
        all: usize,
    },
    /// No zone could be loaded.
    #[error("no zone can be loaded: correct the errors above")]
    Nothing,
    /// The answers exceed the 32 GiB that the index can address.
    #[error("the answers take more than 32 GiB; serve fewer zones")]
    TooLarge,
    /// The defence against abuse cannot be set up.
    #[error(transparent)]
    Defence(#[from] StartError),
}

/// The type of the function that creates each worker's hook, in a server without a hook.
type MakeNoHook = fn(&mut NewWorker<()>) -> Result<NoHook, StartError>;

impl Named for NoHook {
    const NAME: &'static str = "namestorm";
    const PORT: u16 = 53;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// The prepared zones of one server, and the function that creates each worker's hook. Pass this
/// value to [`control::serve`].
#[derive(Debug)]
pub struct Namestorm<H = NoHook, F = MakeNoHook> {
    make: F,
    hook: PhantomData<fn() -> H>,
    /// The newest answers.
    answers: Mutex<Arc<Answers>>,
    handover: Handover<NewAnswers>,
    mode: ReplyMode,
    /// Summary of the zones that are not served, with reasons. It is `None` if all zones are
    /// served.
    unserved: Option<String>,
    tcp: TcpSettings,
    query_log: Option<QueryLog>,
    identity: Arc<Identity>,
    defence: Defence,
    transfer_clients: TransferClients,
    /// Tells secondary servers of changes, if there are any.
    notifier: Option<Notifier>,
    /// Name and type of an example query, which is shown to the user.
    example: String,
    load_time: Duration,
    /// The files that the zones were read from.
    files: Vec<PathBuf>,
    /// Where the zones come from, if they can be reloaded.
    source: Option<Source>,
    /// The zones as the command `zones` lists them. It is `None` if they do not come from files.
    inventory: Option<Arc<Inventory>>,
}

impl Namestorm {
    /// Same as [`load`](Self::load), for the zones that `zones` names. They can be reloaded: SIGHUP
    /// looks for the files of patterns again, and reads all zones.
    ///
    /// # Errors
    ///
    /// See [`NoZones`](crate::NoZones) and [`LoadError`].
    pub fn load_from(
        zones: ZoneArgs,
        form: Form,
        strict: bool,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, StartError> {
        let found = zones.found();
        Self::load_found((zones, found), form, strict, say)
    }

    /// Same as [`load_from`](Self::load_from), with what [`ZoneArgs::found`] has returned.
    pub(crate) fn load_found(
        (zones, (specs, wrong)): (ZoneArgs, (Vec<ZoneSpec>, Vec<NoZones>)),
        form: Form,
        strict: bool,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, StartError> {
        let transfer_clients = zones.transfer_clients()?;
        let keeps_records = !transfer_clients.is_empty();
        let notifier = Notifier::open(&zones.secondaries()?)?;
        let loaded = Self::load_noting(&specs, (form, keeps_records), strict, say);
        NoZones::tell(wrong, say)?;
        let (this, files) = loaded?;
        if let Some(notifier) = &notifier {
            notifier.note_change(&files, &files.without_zones());
        }
        let folders = ZoneFolders::of(specs.iter().map(|spec| &*spec.file));
        let zones = Arc::new(zones);
        let given = Given { zones, strict };
        let source = Source::new(given, files, folders);
        Ok(Self {
            source: Some(source),
            transfer_clients,
            notifier,
            ..this
        })
    }

    /// Reads the zones of `specs` and prepares their answers. Passes warnings and errors to
    /// `say`. Queries for zones that cannot be loaded get SERVFAIL, or REFUSED if the
    /// zone's name is unknown. At least one zone must load. If `strict` is set, all zones must
    /// load, and none may be given twice.
    ///
    /// # Errors
    ///
    /// See [`LoadError`].
    pub fn load(
        specs: &[ZoneSpec],
        form: Form,
        strict: bool,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, LoadError> {
        Ok(Self::load_noting(specs, (form, false), strict, say)?.0)
    }

    /// Same as [`load`](Self::load), but also returns the zones as they were read. `keeps_records` is
    /// whether zones can be transferred.
    fn load_noting(
        specs: &[ZoneSpec],
        (form, keeps_records): (Form, bool),
        strict: bool,
        say: &mut dyn FnMut(String),
    ) -> Result<(Self, ZoneFiles), LoadError> {
        let start = Instant::now();
        let files = ZoneFiles::new(Hashing::new(form, random_seed()));
        let files = files.keeping_records(keeps_records);
        let files = files.read(specs, all_cores(), say);
        let unserved = files.unserved();
        if files.good() == 0 {
            return Err(LoadError::Nothing);
        }
        if strict && !unserved.is_empty() {
            // Broken zones have already been reported, with their errors. Only the zones given
            // twice are reported here.
            for duplicate in unserved.iter().filter(|file| file.is_duplicate()) {
                say(duplicate.to_string());
            }
            return Err(LoadError::Strict {
                lost: unserved.len(),
                all: specs.len(),
            });
        }
        for file in unserved.iter() {
            say(file.to_string());
        }
        let answers = files.answers();
        files.warn_of_missing_delegations(&answers, say);
        let no_hook: MakeNoHook = |_| Ok(NoHook);
        let inventory = Arc::new(Inventory::default());
        inventory.note_served(&files, &answers);
        let this = Self {
            inventory: Some(inventory),
            unserved: (!unserved.is_empty()).then(|| summary(unserved)),
            files: specs.iter().map(|spec| spec.file.clone()).collect(),
            ..Self::serving(answers, files.example(), start, no_hook)?
        };
        Ok((this, files))
    }
}

impl<H, F> Namestorm<H, F>
where
    H: Hook + Named,
    F: Fn(&mut NewWorker<H::Message>) -> Result<H, StartError> + Sync,
{
    /// Prepares the answers of `zones` for a server with a hook in each worker. The hook answers
    /// for the [registered](Zones::hook) names. `make` is called once for each worker, before the
    /// process drops its privileges. `make` may open the worker's mailbox.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::TooLarge`] if the answers exceed 32 GiB.
    pub fn with_hook(zones: &Zones, make: F) -> Result<Self, LoadError> {
        let start = Instant::now();
        let answers = compile(zones, Form::default(), random_seed(), &mut |names| {
            progress::say(|| format!("{} names prepared", count(names as u64)));
        })
        .map_err(|_| LoadError::TooLarge)?;
        let good = zones.iter().next();
        let example_of = |zone: &Zone| example(zone.apex(), has_www(zone));
        let broken = zones.broken().next();
        let broken = broken.map(|apex| example(apex, false));
        let example = good.map(example_of).or(broken);
        Self::serving(answers, example, start, make)
    }

    /// Serves `answers`. `example` is the name and type of an example query. The load time is
    /// measured from `start`.
    fn serving(
        answers: Answers,
        example: Option<String>,
        start: Instant,
        make: F,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            make,
            hook: PhantomData,
            answers: Mutex::new(Arc::new(answers)),
            handover: Handover::default(),
            mode: ReplyMode::default(),
            tcp: TcpSettings::default(),
            unserved: None,
            query_log: None,
            identity: Arc::default(),
            defence: Defence::from_args(
                &DefenceArgs::default(),
                &Device::Auto,
                NeededKeys::default(),
            )?,
            transfer_clients: TransferClients::default(),
            notifier: None,
            example: example.unwrap_or_default(),
            load_time: start.elapsed(),
            files: Vec::new(),
            source: None,
            inventory: None,
        })
    }

    /// Calls `note` with the zones as the command `zones` lists them.
    fn note(&self, note: impl FnOnce(&Inventory)) {
        if let Some(inventory) = &self.inventory {
            note(inventory);
        }
    }

    /// The newest answers.
    fn answers(&self) -> Arc<Answers> {
        Arc::clone(&locked(&self.answers))
    }

    /// Sets the mode in which UDP replies are sent.
    #[must_use]
    pub fn with_mode(self, mode: ReplyMode) -> Self {
        Self { mode, ..self }
    }

    /// Opens the query log and dnstap, as far as the options name them.
    ///
    /// # Errors
    /// If the log cannot be opened, or if there are options of a log without the log.
    pub fn with_query_log(self, args: &QueryLogArgs) -> Result<Self, StartError>
    where
        H: Named,
    {
        let query_log = QueryLog::open(args, H::NAME, H::VERSION)?;
        Ok(Self { query_log, ..self })
    }

    /// Sets what the server says about itself.
    #[must_use]
    pub fn with_identity(self, args: &IdentityArgs) -> Self {
        Self {
            identity: Arc::new(Identity::from_args(args)),
            ..self
        }
    }

    /// Returns lines about the zones for the operator.
    pub(crate) fn loaded_zones(&self) -> Vec<(&'static str, String)> {
        let answers = self.answers();
        let size = answers.size();
        let n = |number: usize| count(number as u64);
        let per_name = size.memory / size.names.max(1);
        let mut lines = vec![("zones", n(size.zones))];
        lines.extend(
            self.unserved
                .clone()
                .map(|zones| ("zones not loaded", zones)),
        );
        lines.extend([
            ("names", n(size.names)),
            ("records", n(size.records)),
            (
                "loaded",
                format!(
                    "in {:.2} s, {}, {per_name} B per name",
                    self.load_time.as_secs_f64(),
                    bytes(size.memory as u64)
                ),
            ),
            ("hash, mode", format!("{}, {}", answers.form(), self.mode)),
        ]);
        lines
    }

    /// Sets the defence against abuse of a server on this device. Without it, cookies have a random
    /// secret, no client has a key, and replies have no limit.
    ///
    /// # Errors
    /// If a file of the options cannot be read or lacks a key, or if they have too many networks.
    pub fn with_defence(self, args: &DefenceArgs, device: &Device) -> Result<Self, StartError> {
        let secondaries = self.notifier.iter().flat_map(Notifier::keys);
        let needed = NeededKeys::new(self.transfer_clients.keys(), secondaries);
        let defence = Defence::from_args(args, device, needed)?;
        let this = Self { defence, ..self };
        this.give_keys();
        Ok(this)
    }

    /// Sets the clients that may ask for transfers. The zones must [keep](Zones::keep_records) their
    /// records. Call this before [`with_defence`](Self::with_defence), which looks for the clients' keys.
    #[must_use]
    pub fn with_transfers(self, clients: TransferClients) -> Self {
        Self {
            transfer_clients: clients,
            ..self
        }
    }

    /// Sets the settings for TCP.
    #[must_use]
    pub fn with_tcp(self, tcp: TcpSettings) -> Self {
        Self { tcp, ..self }
    }
}

/// Returns the number of errors that a worker's hook has returned, over UDP and TCP.
fn hook_errors<H: Hook>(server: &UdpAndTcp<H>) -> u64 {
    let (udp, tcp) = (server.dns().counters(), server.tcp().app().counters());
    udp.hook_errors + tcp.hook_errors
}

/// Returns the number of threads that read zones at the start.
pub(crate) fn all_cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns random numbers, derived from the random keys of the standard library's hash tables.
pub(crate) fn random_seed() -> [u64; 4] {
    std::array::from_fn(|_| RandomState::new().build_hasher().finish())
}

impl<H, F> Program for Namestorm<H, F>
where
    H: Hook + Named,
    F: Fn(&mut NewWorker<H::Message>) -> Result<H, StartError> + Sync,
{
    const NAME: &'static str = H::NAME;
    const VERSION: &'static str = H::VERSION;
    const DEFAULT_PORT: u16 = H::PORT;

    type Transports<P: Port> = UdpAndTcp<H>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        vec![(Transport::Udp, port), (Transport::Tcp, port)]
    }

    fn memory(&self, _context: &WorkerContext) -> MemoryPlan {
        let frames = match self.mode {
            ReplyMode::PreCopy => COPIES * self.answers().size().answers,
            ReplyMode::MemCopy | ReplyMode::Turnaround => 0,
        };
        MemoryPlan {
            resident_frames: frames.min(MAX_RESIDENT_PACKETS as usize) as u32,
            scratch_frames: 0,
        }
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<UdpAndTcp<H>, StartError> {
        let tcp = &self.tcp.stack;
        control::check_reserved(tcp, Stack::<DnsOverTcp<H>>::reserved_bytes(tcp))?;
        let mut worker = NewWorker::new(context);
        let hook = (self.make)(&mut worker)?;
        let (answers, handover) = if self.source.is_some() {
            let (answers, mailbox) = self.handover.open(&context.bell, || self.answers());
            (answers, Some(mailbox))
        } else {
            (self.answers(), None)
        };
        if let Some(notifier) = &self.notifier {
            notifier.find_addresses();
        }
        let capabilities = port.capabilities();
        let mut dns = Dns::new(Arc::clone(&answers), self.mode);
        let mut over_tcp = DnsOverTcp::with_hook(answers, self.tcp.request_timeout, hook);
        if let Some(limit) = self.defence.rate_limit() {
            dns.set_rate_limit(limit, context.secret.words());
        }
        over_tcp.set_transfer_clients(self.transfer_clients.clone());
        if let Some(log) = &self.query_log {
            dns.set_query_log(Some(log.sender(false)));
            over_tcp.set_query_log(Some(log.sender(true)));
        }
        let mut server = UdpAndTcp::with_hook(
            context.port,
            dns,
            over_tcp,
            tcp,
            &capabilities,
            context.secret.words(),
        );
        server.set_identity(&self.identity);
        let udp_sizes = self.defence.udp_sizes().fitting(capabilities.mtu);
        server.set_udp_sizes(&Arc::new(udp_sizes));
        let (secrets, new_secrets) = self.defence.secrets().start(&context.bell);
        server.set_secrets(secrets);
        server.set_new_secrets(new_secrets);
        server.reports_answers = context.index == 0;
        if let Some(mailbox) = handover {
            server.set_handover(mailbox);
        }
        if let Some(mailbox) = worker.into_mailbox() {
            server.set_mailbox(mailbox);
        }
        Ok(server)
    }

    fn prepared<P: Port>(&self, server: &UdpAndTcp<H>) -> PreparedPackets {
        if !server.reports_answers {
            return PreparedPackets::default();
        }
        PreparedPackets {
            packets: self.answers().size().answers as u64,
            bytes: self.answers().size().memory as u64,
        }
    }

    /// Returns the folders of the files, not the files, because an editor may replace a file
    /// by a new one. A reload also looks for new files below the folders of patterns.
    fn read_paths(&self) -> Vec<PathBuf> {
        let mut real = RealPaths::default();
        let folder = |file: &PathBuf| Some(real.of(file)?.parent()?.to_owned());
        let secrets: Vec<_> = self.defence.secrets().files().map(PathBuf::from).collect();
        let files = self.files.iter().chain(&secrets);
        let source = self.source.iter();
        let searched = source.flat_map(|source| source.given().zones.folders());
        let searched = searched.filter_map(|folder| folder.canonicalize().ok());
        let mut folders: Vec<_> = files.filter_map(folder).chain(searched).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    fn files(&self) -> ContentFiles {
        let secrets = self.defence.secrets().files();
        ContentFiles {
            served: self.files.clone(),
            to_reload: secrets.map(PathBuf::from).collect(),
        }
    }

    fn watched(&self) -> Vec<Watched> {
        let mut files = self.files.clone();
        let newest = self.source.as_ref().map(Source::newest);
        if let Some(source) = &self.source {
            files.extend(locked(&source.files).files().map(PathBuf::from));
        }
        files.extend(newest.iter().flat_map(|given| given.zones.files()));
        files.sort();
        files.dedup();
        let mut real = RealPaths::default();
        let real = |file: PathBuf| {
            let other = real.of(&file).filter(|real| *real != file);
            [Some(file), other].into_iter().flatten()
        };
        let secrets = self.defence.secrets().files().map(PathBuf::from);
        let files = files.into_iter().flat_map(real).chain(secrets);
        let files: Vec<_> = files.map(Watched::Entry).collect();
        let patterns = newest.iter().flat_map(|given| given.zones.watched());
        files.into_iter().chain(patterns).collect()
    }

    fn logs(&self) -> Vec<&RecordLog> {
        self.query_log.iter().flat_map(QueryLog::logs).collect()
    }

    fn readers(&self) -> Vec<&dyn Readers> {
        let reader = |notifier| notifier as &dyn Readers;
        self.notifier.iter().map(reader).collect()
    }

    fn can_reload(&self) -> bool {
        self.source.is_some()
    }

    /// Any domain name may be the name of a zone, because a reload finds new zones. A name with a
    /// slash is rather meant as a path.
    fn has_content(&self, name: &str) -> bool {
        self.can_reload() && !name.contains('/') && name.parse::<Name>().is_ok()
    }

    /// Reads the zone named `only` again, or else all zones that have changed, and what defends the
    /// server.
    fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        match only {
            Some(_) => self.reload_zones(only),
            None => self.reload_all(),
        }
    }

    fn loaded(&self) -> Vec<(&'static str, String)> {
        let mut lines = self.loaded_zones();
        let networks = self.transfer_clients.len() as u64;
        if networks > 0 {
            lines.push(("transfers", format!("to {}", counted(networks, "network"))));
        }
        let notifier = self.notifier.as_ref();
        lines.extend(notifier.map(|notifier| ("notify", notifier.describe())));
        lines.extend(self.defence.loaded());
        lines
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let port = if at.port == Self::DEFAULT_PORT {
            String::new()
        } else {
            format!(" -p {}", at.port)
        };
        at.command(|host, _| format!("dig @{host}{port} {}", self.example))
    }

    fn counted<P: Port>(&self, server: &UdpAndTcp<H>) -> Counted {
        let (udp, tcp) = (server.udp().counters(), server.tcp().counters());
        Counted {
            partial_checksums: udp.partial_checksum + tcp.partial_checksum,
            evicted: tcp.evicted,
            app_errors: hook_errors(server),
        }
    }

    fn tally<P: Port>(&self, server: &UdpAndTcp<H>, tally: &mut Tally) {
        tally.describe(MEANINGS);
        let (udp, tcp) = (server.dns().counters(), server.tcp().app().counters());
        tally.event_of("queries", ("transport", "udp"), udp.queries);
        tally.event_of("queries", ("transport", "tcp"), tcp.queries);
        tally.event("queries with EDNS", udp.edns + tcp.edns);
        for (transport, counters) in [("udp", udp), ("tcp", tcp)] {
            for (rcode, count) in counters.by_rcode() {
                let labels = [("transport", transport), ("rcode", rcode)];
                tally.event_of("replies", labels, count);
            }
        }
        let over_udp = server.dns().by_type().map(|one| ("udp", one));
        let over_tcp = server.tcp().app().by_type().map(|one| ("tcp", one));
        for (transport, (qtype, rcode, count)) in over_udp.chain(over_tcp) {
            let labels = [("type", qtype), ("transport", transport), ("rcode", rcode)];
            tally.detail("replies by type", labels, count);
        }
        let over_udp = server.dns().by_group().map(|one| ("udp", one));
        let over_tcp = server.tcp().app().by_group().map(|one| ("tcp", one));
        for (transport, (zones, rcode, count)) in over_udp.chain(over_tcp) {
            let labels = [("zones", zones), ("transport", transport), ("rcode", rcode)];
            tally.detail(REPLIES_BY_ZONE, labels, count);
        }
        let over_tcp = server.tcp().app();
        if !self.transfer_clients.is_empty() {
            tally.event("transfers", over_tcp.transfers());
        }
        for (zones, count) in over_tcp.transfers_by_group() {
            tally.detail(TRANSFERS_BY_ZONE, ("zones", zones), count);
        }
        if let Some(notifier) = self.notifier.as_ref().filter(|_| server.reports_answers) {
            notifier.tally(tally);
        }
        if let Some(inventory) = self.inventory.as_ref().filter(|_| server.reports_answers) {
            for (state, count) in inventory.by_state() {
                tally.level_detail("zones", ("state", state), count);
            }
            for (state, count) in inventory.by_signatures() {
                tally.level_detail("signed zones", ("signatures", state), count);
            }
        }
        tally_proofs(udp, tcp, tally);
        tally.event("truncated", udp.truncated);
        tally_limits(udp, tcp, tally);
        tally.event("assembled", udp.assembled + tcp.assembled);
        if server.answers().has_hooked() {
            tally.event("answered by the hook", udp.hooked + tcp.hooked);
            tally.event("hook errors", hook_errors(server));
        }
        let loggers = [server.dns().query_log(), server.tcp().app().query_log()];
        for logger in loggers.into_iter().flatten() {
            for (event, lost) in [
                ("query log lines lost", logger.lost_lines()),
                ("dnstap messages lost", logger.lost_messages()),
            ] {
                if let Some(lost) = lost {
                    tally.event(event, lost);
                }
            }
        }
        let over_tcp = server.tcp().counters();
        tally.event("queries too slow", over_tcp.deadlines_missed);
        tally_tcp(tally, over_tcp, server.tcp().states());
        tally_udp(tally, server.udp().counters());
        for (reason, dropped) in udp.drops().into_iter().chain(tcp.drops()) {
            tally.drop(reason, dropped);
        }
        tally.drop("query over TCP too long", server.tcp().app().too_long());
    }

    fn content_lists(&self) -> Vec<Arc<dyn ContentList>> {
        let list = |inventory: &Arc<Inventory>| Arc::clone(inventory) as Arc<dyn ContentList>;
        self.inventory.iter().map(list).collect()
    }

    fn walk<P: Port>(&self, server: &mut UdpAndTcp<H>, now: nmio::Instant, walk: &mut Walk) {
        walk.visit(Self::NAME, server.tcp_mut(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_of_all_seeds_differ() {
        let mut words = [random_seed(), random_seed()].concat();
        words.push(0);
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 9);
    }
}
