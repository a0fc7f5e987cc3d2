//! Several programs in one process, on one interface.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use nmio::Port;
use nmio::device::{MemoryPlan, Transport};

use crate::named::Named;
use crate::program::{Counted, Listening, Prepared, Program, StartError, Tally, WorkerContext};

/// Two programs as one, with the name `N`: each serves ports of its own on the same
/// addresses. Either may be such a pair itself.
///
/// `--port` is the first one's. The second serves its own default, or what
/// [`with_second_port`](Self::with_second_port) says.
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
/// struct House;
///
/// impl Named for House {
///     const NAME: &'static str = "house";
///     const PORT: u16 = 80;
/// }
///
/// fn main() -> std::process::ExitCode {
///     let web = Tcp::new(|_: &mut NewWorker<()>, _: &mut tcpip::Contents| Ok(Web));
///     let clock = Udp::new(|_: &mut NewWorker<()>| Ok(Clock));
///     let args = control::network_args(House::NAME);
///     control::serve(&args, || Ok::<_, control::StartError>(Both::<House, _, _>::new(web, clock)))
/// }
/// ```
pub struct Both<N, A, B> {
    first: A,
    second: B,
    second_port: u16,
    name: PhantomData<fn() -> N>,
}

impl<N, A: Program, B: Program> Both<N, A, B> {
    /// Serves both.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            second_port: B::DEFAULT_PORT,
            name: PhantomData,
        }
    }

    /// The same, with another port for the second.
    #[must_use]
    pub fn with_second_port(self, second_port: u16) -> Self {
        Self {
            second_port,
            ..self
        }
    }

    /// What the second is told of its worker.
    fn second_context(&self, context: &WorkerContext) -> WorkerContext {
        WorkerContext {
            port: self.second_port,
            ..context.clone()
        }
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

    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        let first = self.first.memory(context);
        let second = self.second.memory(&self.second_context(context));
        MemoryPlan {
            resident_frames: first.resident_frames + second.resident_frames,
            scratch_frames: first.scratch_frames + second.scratch_frames,
        }
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

    fn prepared<P: Port>(&self, both: &Self::Transports<P>) -> Prepared {
        let first = self.first.prepared(&both.0);
        let second = self.second.prepared(&both.1);
        Prepared {
            packets: first.packets + second.packets,
            bytes: first.bytes + second.bytes,
        }
    }

    fn read_paths(&self) -> Vec<PathBuf> {
        [self.first.read_paths(), self.second.read_paths()].concat()
    }

    fn files(&self) -> Vec<PathBuf> {
        [self.first.files(), self.second.files()].concat()
    }

    /// Each one's lines stand behind its name.
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

    fn counted<P: Port>(&self, both: &Self::Transports<P>) -> Counted {
        let first = self.first.counted(&both.0);
        let second = self.second.counted(&both.1);
        Counted {
            unfinished_checksums: first.unfinished_checksums + second.unfinished_checksums,
            evicted: first.evicted + second.evicted,
        }
    }

    fn tally<P: Port>(&self, both: &Self::Transports<P>, tally: &mut Tally) {
        self.first.tally(&both.0, tally);
        self.second.tally(&both.1, tally);
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
    use nmio::Instant;
    use udpip::{Datagram, Service};

    use super::*;
    use crate::launch::services;
    use crate::{Error, NewWorker, Udp};

    struct One;
    struct Other;
    struct House;

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
    named!(House, "house", 7);

    impl Service for One {
        type Message = ();
        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: Instant) {}
    }

    impl Service for Other {
        type Message = ();
        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: Instant) {}
    }

    fn house() -> Both<House, impl Program, impl Program> {
        Both::new(
            Udp::new(|_: &mut NewWorker<()>| Ok(One)),
            Udp::new(|_: &mut NewWorker<()>| Ok(Other)),
        )
    }

    #[test]
    fn each_has_a_port_of_its_own() {
        let udp = |port| (Transport::Udp, port);
        assert_eq!(services(&house(), None).unwrap(), [udp(7), udp(8)]);
        assert_eq!(services(&house(), Some(9)).unwrap(), [udp(9), udp(8)]);
        let moved = house().with_second_port(10);
        assert_eq!(services(&moved, Some(8)).unwrap(), [udp(8), udp(10)]);
        let error = services(&house(), Some(8)).unwrap_err();
        assert!(matches!(error, Error::PortTwice { port: 8, .. }), "{error}");
    }

    #[test]
    fn the_start_block_says_whose_its_lines_are() {
        let version = |name| (name, "1.2".to_owned());
        assert_eq!(house().loaded(), [version("one"), version("other")]);
        let at = Listening::new(vec!["192.0.2.1".parse().unwrap()], 7);
        let commands = ["nc -u 192.0.2.1 7", "nc -u 192.0.2.1 8"];
        assert_eq!(house().try_commands(&at), commands);
    }
}
