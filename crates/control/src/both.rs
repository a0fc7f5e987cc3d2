//! Several programs in one process, on one interface.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use nmio::device::{MemoryPlan, Transport};
use nmio::{Instant, Port};

use crate::args::{ServeArgs, with_usage};
use crate::content_files::ContentFiles;
use crate::named::Named;
use crate::place::Place;
use crate::port_args::{PortArgs, long_option, port_arg, port_of};
use crate::port_owner::PORT_OPTION;
use crate::program::{
    ContentList, ContentNames, Counted, Listening, PortOwner, PreparedPackets, Program, Reloaded,
    StartError, Tally, Watched, WorkerContext,
};
use crate::readers::Readers;
use crate::records::RecordLog;
use crate::run::serve_loaded;
use crate::table::walk::Walk;

/// Combines two programs into one program, which is named `N`. Both serve the same addresses, each
/// on its own ports. To combine more than two programs, use a `Both` as one of them.
///
/// `--port` sets the port of the first program. The second program serves its default port, unless
/// [`with_second_port`](Self::with_second_port) or the option `--NAME-port` sets another. In this
/// example, the option is `--clock-port`:
///
/// ```no_run
/// use control::{Both, Named, NewWorker, Tcp, Udp};
/// # struct Web; struct Clock;
/// # impl tcpip::Application for Web {
/// #     type State = ();
/// #     type Message = ();
/// #     fn on_receive(&mut self, _: &mut tcpip::Connection<'_, ()>, data: &[u8]) -> usize { data.len() }
/// # }
/// # impl udpip::Service for Clock {
/// #     type Message = ();
/// #     fn on_datagram<P: nmio::Port>(&mut self, _: udpip::Datagram<'_, P>, _: nmio::Instant) {}
/// # }
/// # impl Named for Web { const NAME: &'static str = "web"; const PORT: u16 = 80; }
/// # impl Named for Clock { const NAME: &'static str = "clock"; const PORT: u16 = 123; }
///
/// struct WebAndClock;
///
/// impl Named for WebAndClock {
///     const NAME: &'static str = "webclock";
///     const PORT: u16 = 80;
/// }
///
/// fn main() -> std::process::ExitCode {
///     let web = Tcp::new(|_: &mut NewWorker<()>, _: &mut tcpip::Contents| Ok(Web));
///     let clock = Udp::new(|_: &mut NewWorker<()>| Ok(Clock));
///     Both::<WebAndClock, _, _>::new(web, clock).serve()
/// }
/// ```
///
/// A command line of your own takes the second port with [`PortArgs`], and passes it to
/// [`with_port_args`](Self::with_port_args).
pub struct Both<N, A, B> {
    first: A,
    second: B,
    second_port: u16,
    /// The option that sets the second port. Messages about the port name this option.
    second_option: String,
    name: PhantomData<fn() -> N>,
}

impl<N, A: Program, B: Program> Both<N, A, B> {
    /// Creates a program that serves both programs.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            second_port: B::DEFAULT_PORT,
            second_option: long_option(B::NAME),
            name: PhantomData,
        }
    }

    /// Sets the port of the second program.
    #[must_use]
    pub fn with_second_port(self, second_port: u16) -> Self {
        Self {
            second_port,
            ..self
        }
    }

    /// Sets the port of the second program to the port in `args`. Messages about this port then
    /// name the option that `args` defines.
    #[must_use]
    pub fn with_port_args<T: Named>(self, args: &PortArgs<T>) -> Self {
        Self {
            second_port: args.port(),
            second_option: long_option(T::NAME),
            ..self
        }
    }

    /// Returns both programs.
    pub fn programs(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }

    /// Returns the worker's context for the second program, with that program's port.
    fn second_context(&self, context: &WorkerContext) -> WorkerContext {
        WorkerContext {
            port: self.second_port,
            ..context.clone()
        }
    }
}

impl<N: Named, A: Program, B: Program> Both<N, A, B> {
    /// Serves until Ctrl-C. The command line has the options of [`ServeArgs`], and `--NAME-port`
    /// for the second program's port, where `NAME` is that program's name.
    ///
    /// A program that loads files calls [`serve`](crate::serve()) instead, and loads the files in
    /// the function `load` that it passes.
    pub fn serve(self) -> ExitCode {
        let matches = self.command().get_matches();
        let args = ServeArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        serve_loaded(&args, self.with_port_of(&matches))
    }

    fn command(&self) -> Command {
        with_usage(ServeArgs::augment_args(Command::new(N::NAME)))
            .about("Serves on its own network stack until Ctrl-C")
            .arg(port_arg(B::NAME, self.second_port))
    }

    fn with_port_of(self, matches: &ArgMatches) -> Self {
        let port = port_of(B::NAME, matches).unwrap_or(self.second_port);
        self.with_second_port(port)
    }
}

impl<N: Named, A: Program, B: Program> Program for Both<N, A, B> {
    const NAME: &'static str = N::NAME;
    const VERSION: &'static str = N::VERSION;
    const DEFAULT_PORT: u16 = N::PORT;
    type Transports<P: Port> = ip::Both<A::Transports<P>, B::Transports<P>>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        let second = self.second.services(self.second_port);
        [self.first.services(port), second].concat()
    }

    fn port_owners(&self, port: u16) -> Vec<PortOwner> {
        let mut owners = self.first.port_owners(port);
        let second = self.second.port_owners(self.second_port);
        owners.extend(second.into_iter().map(|owner| match &*owner.option {
            PORT_OPTION => PortOwner {
                option: self.second_option.clone(),
                ..owner
            },
            _ => owner,
        }));
        owners
    }

    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        let second = self.second.memory(&self.second_context(context));
        self.first.memory(context) + second
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Transports<P>, StartError> {
        let first = self.first.transports(port, context)?;
        let context = &self.second_context(context);
        Ok(ip::Both(first, self.second.transports(port, context)?))
    }

    fn prepared<P: Port>(&self, transports: &Self::Transports<P>) -> PreparedPackets {
        self.first.prepared(&transports.0) + self.second.prepared(&transports.1)
    }

    fn read_paths(&self) -> Vec<PathBuf> {
        [self.first.read_paths(), self.second.read_paths()].concat()
    }

    fn files(&self) -> ContentFiles {
        let mut files = self.first.files();
        files.add(self.second.files());
        files
    }

    fn can_reload(&self) -> bool {
        self.first.can_reload() || self.second.can_reload()
    }

    fn check_addresses(&self, own: &[IpAddr]) -> Result<(), StartError> {
        self.first.check_addresses(own)?;
        self.second.check_addresses(own)
    }

    fn free_unused(&self) -> bool {
        // Both must be asked.
        self.first.free_unused() | self.second.free_unused()
    }

    fn prepare_more(&self, say: &mut dyn FnMut(&'static str, String)) -> bool {
        // Both take turns.
        self.first.prepare_more(say) | self.second.prepare_more(say)
    }

    fn stored_paths(&self) -> Vec<PathBuf> {
        [self.first.stored_paths(), self.second.stored_paths()].concat()
    }

    fn has_content(&self, name: &str) -> bool {
        self.first.has_content(name) || self.second.has_content(name)
    }

    /// Reloads both programs, or the first one that has content named `only`.
    fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        if let Some(name) = only {
            return if self.first.has_content(name) {
                self.first.reload(only)
            } else {
                self.second.reload(only)
            };
        }
        let first = self
            .first
            .can_reload()
            .then(|| (A::NAME, self.first.reload(None)));
        let second = self
            .second
            .can_reload()
            .then(|| (B::NAME, self.second.reload(None)));
        Reloaded::of_all(first.into_iter().chain(second))
    }

    fn watched(&self) -> Vec<Watched> {
        [self.first.watched(), self.second.watched()].concat()
    }

    fn places(&self, port: u16) -> Vec<Place> {
        let second = self.second.places(self.second_port);
        [self.first.places(port), second].concat()
    }

    fn readers(&self) -> Vec<&dyn Readers> {
        [self.first.readers(), self.second.readers()].concat()
    }

    fn logs(&self) -> Vec<&RecordLog> {
        [self.first.logs(), self.second.logs()].concat()
    }

    /// Puts a line with each program's name and version before the lines of that program.
    fn loaded(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![(A::NAME, A::VERSION.to_owned())];
        lines.extend(self.first.loaded());
        lines.push((B::NAME, B::VERSION.to_owned()));
        lines.extend(self.second.loaded());
        lines
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let second = Listening {
            port: self.second_port,
            ..at.clone()
        };
        let second = self.second.try_commands(&second);
        [self.first.try_commands(at), second].concat()
    }

    fn counted<P: Port>(&self, transports: &Self::Transports<P>) -> Counted {
        self.first.counted(&transports.0) + self.second.counted(&transports.1)
    }

    fn tally<P: Port>(&self, transports: &Self::Transports<P>, tally: &mut Tally) {
        tally.for_program(A::NAME, |tally| self.first.tally(&transports.0, tally));
        tally.for_program(B::NAME, |tally| self.second.tally(&transports.1, tally));
    }

    fn walk<P: Port>(&self, transports: &mut Self::Transports<P>, now: Instant, walk: &mut Walk) {
        self.first.walk(&mut transports.0, now, walk);
        self.second.walk(&mut transports.1, now, walk);
    }

    fn content_names(&self) -> Vec<Arc<dyn ContentNames>> {
        [self.first.content_names(), self.second.content_names()].concat()
    }

    fn content_lists(&self) -> Vec<Arc<dyn ContentList>> {
        [self.first.content_lists(), self.second.content_lists()].concat()
    }
}

impl<N: Named, A, B> fmt::Debug for Both<N, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Both")
            .field("name", &N::NAME)
            .field("second_port", &self.second_port)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nmio::sim::Sink;
    use udpip::{Datagram, Service};

    use super::*;
    use crate::launch::services;
    use crate::{CountKind, Error, NewWorker, Udp};

    struct One;
    struct Other;
    struct Pair;

    macro_rules! named {
        ($program:ty, $name:literal, $port:literal) => {
            impl Named for $program {
                const NAME: &'static str = $name;
                const PORT: u16 = $port;
                const VERSION: &'static str = "1.2";
            }
        };
    }
    named!(One, "one", 7);
    named!(Other, "other", 8);
    named!(Pair, "pair", 7);

    impl Service for One {
        type Message = ();
        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: Instant) {}
    }

    impl Service for Other {
        type Message = ();
        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: Instant) {}
    }

    fn pair() -> Both<Pair, impl Program, impl Program> {
        Both::new(
            Udp::new(|_: &mut NewWorker<()>| Ok(One)),
            Udp::new(|_: &mut NewWorker<()>| Ok(Other)),
        )
    }

    #[test]
    fn each_program_has_its_own_port() {
        let udp = |port| (Transport::Udp, port);
        assert_eq!(services(&pair(), None).unwrap(), [udp(7), udp(8)]);
        assert_eq!(services(&pair(), Some(9)).unwrap(), [udp(9), udp(8)]);
        let moved = pair().with_second_port(10);
        assert_eq!(services(&moved, Some(8)).unwrap(), [udp(8), udp(10)]);
    }

    #[test]
    fn two_programs_on_one_port_are_refused() {
        let error = services(&pair(), Some(8)).unwrap_err();
        assert!(matches!(error, Error::PortTwice { port: 8, .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "one (--port) and other (--other-port) both have UDP port 8; give one of them another \
             port"
        );
        assert_eq!(error.exit_status(), 2, "the command line is wrong");
    }

    #[test]
    fn the_error_names_the_option_of_a_program_among_three() {
        let three = |port| Both::<Pair, _, _>::new(pair(), pair().with_second_port(port));
        let conflict = |port, first| {
            let error = services(&three(port), first).unwrap_err().to_string();
            error.split(" both").next().unwrap().to_owned()
        };
        let (one, other) = ("one (--port)", "other (--other-port)");
        assert_eq!(conflict(9, None), format!("{one} and one (--pair-port)"));
        assert_eq!(conflict(8, Some(1)), format!("{other} and {other}"));
        let cli = Command::new("three");
        let matches = PortArgs::<Other>::augment_args(cli).get_matches_from(["three"]);
        let args = PortArgs::<Other>::from_arg_matches(&matches).unwrap();
        let renamed = Both::<Pair, _, _>::new(pair(), pair()).with_port_args(&args);
        let error = services(&renamed, Some(1)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{other} and one (--other-port)")),
            "{error}"
        );
    }

    #[test]
    fn port_0_is_refused_with_the_option_that_sets_it() {
        let of = |error: Error| (error.to_string(), error.exit_status());
        let message =
            |option| format!("port 0 cannot be served; give {option} a number from 1 to 65535");
        let error = services(&pair(), Some(0)).unwrap_err();
        assert_eq!(of(error), (message("--port"), 2));
        let error = services(&pair().with_second_port(0), None).unwrap_err();
        assert_eq!(of(error), (message("--other-port"), 2));
    }

    #[test]
    fn the_second_port_has_an_option_named_after_the_second_program() {
        let services = |line: &str| {
            let program = pair().with_second_port(10);
            program.command().debug_assert();
            let matches = program.command().try_get_matches_from(line.split(' '));
            let matches = matches.unwrap();
            let args = ServeArgs::from_arg_matches(&matches).unwrap();
            services(&program.with_port_of(&matches), args.port).unwrap()
        };
        let udp = |port| (Transport::Udp, port);
        assert_eq!(services("pair"), [udp(7), udp(10)]);
        assert_eq!(services("pair --port 1 --other-port 2"), [udp(1), udp(2)]);
        let help = pair().command().render_help().to_string();
        assert!(help.contains("Port of other. Defaults to 8"), "{help}");
    }

    #[test]
    fn the_start_block_names_the_program_of_each_line() {
        let version = |name| (name, "1.2".to_owned());
        assert_eq!(pair().loaded(), [version("one"), version("other")]);
        let at = Listening::new(vec!["192.0.2.1".parse().unwrap()], 7);
        let commands = ["nc -u 192.0.2.1 7", "nc -u 192.0.2.1 8"];
        assert_eq!(pair().try_commands(&at), commands);
    }

    #[test]
    fn counts_are_prefixed_with_the_name_of_their_program() {
        let program = pair();
        let mut port = Sink::new(1500, 64, 0);
        let transports = program
            .transports(&mut port, &WorkerContext::example(0, 1))
            .unwrap();
        let mut tally = Tally::default();
        Program::tally::<Sink>(&program, &transports, &mut tally);
        // Details are in metrics only.
        let events = tally.events().iter();
        let events = events.filter(|one| one.kind == CountKind::Total);
        let events: Vec<_> = events.map(ToString::to_string).collect();
        let expected = [
            "one: datagrams 0",
            "one: answered 0",
            "other: datagrams 0",
            "other: answered 0",
        ];
        assert_eq!(events, expected);
    }
}
