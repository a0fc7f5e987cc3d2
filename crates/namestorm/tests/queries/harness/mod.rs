//! A test client that exchanges whole frames with a server.

pub(crate) mod records;
pub(crate) mod tcp;

use std::sync::Arc;

use eth::{Mac, Station};
use ip::Host;
use namestorm::{
    Answers, Cookies, Dns, DnsOverTcp, Form, Hook, IDLE_TIMEOUT, Identity, NoHook, ReplyMode,
    Server, TcpSettings, UdpAndTcp, Zones, compile, load_text,
};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use tcpip::Config;
use testkit::{Route, SERVER, SERVER_MAC, read};

pub(crate) const PORT: u16 = 53;
pub(crate) const CLIENT_PORT: u16 = 40_000;

pub(crate) const FORMS: [Form; 2] = [Form::Wire, Form::Fqdn];
pub(crate) const MODES: [ReplyMode; 3] = [
    ReplyMode::Turnaround,
    ReplyMode::MemCopy,
    ReplyMode::PreCopy,
];

/// Prepares the answers of zones. Each zone is given as its origin and its text.
pub(crate) fn prepare(zones: &[(&str, &str)], form: Form) -> Arc<Answers> {
    prepare_beside(zones, &[], form)
}

/// Like [`prepare`], with zones that could not be loaded. `broken` lists their names.
pub(crate) fn prepare_beside(zones: &[(&str, &str)], broken: &[&str], form: Form) -> Arc<Answers> {
    prepare_hooked(zones, broken, &[], form)
}

/// Like [`prepare_beside`], with names registered for a hook. `hooked` lists these names.
pub(crate) fn prepare_hooked(
    zones: &[(&str, &str)],
    broken: &[&str],
    hooked: &[&str],
    form: Form,
) -> Arc<Answers> {
    let zones = zones
        .iter()
        .map(
            |(origin, text)| match load_text(origin, Some(origin), text) {
                Ok(loaded) => loaded.zone,
                Err(report) => panic!("{report}"),
            },
        )
        .collect();
    let broken = broken.iter().map(|apex| name(apex)).collect();
    let mut zones = Zones::with_broken(zones, broken).expect("zones with distinct names");
    for name in hooked {
        zones.hook(name).expect("a name in one of the zones");
    }
    Arc::new(compile(&zones, form, [1, 2, 3, 4], &mut |_| {}).unwrap())
}

/// A test client, with the server under test and the network port to which the server sends its
/// frames.
pub(crate) struct Client<H: Hook = NoHook> {
    pub(crate) server: Server<H>,
    pub(crate) sink: Sink,
    pub(crate) v6: bool,
}

impl Client {
    pub(crate) fn new(answers: &Arc<Answers>, mode: ReplyMode, v6: bool) -> Self {
        Self::with_hook(answers, mode, v6, NoHook)
    }

    /// Like [`Client::new`], with a server that says something about itself.
    pub(crate) fn of_server(
        answers: &Arc<Answers>,
        mode: ReplyMode,
        v6: bool,
        identity: &Identity,
    ) -> Self {
        Self::build(answers, mode, v6, NoHook, identity)
    }
}

impl<H: Hook> Client<H> {
    pub(crate) fn with_hook(answers: &Arc<Answers>, mode: ReplyMode, v6: bool, hook: H) -> Self {
        Self::build(answers, mode, v6, hook, &Identity::default())
    }

    fn build(
        answers: &Arc<Answers>,
        mode: ReplyMode,
        v6: bool,
        hook: H,
        identity: &Identity,
    ) -> Self {
        let dns = Dns::new(Arc::clone(answers), mode);
        let over_tcp = DnsOverTcp::with_hook(Arc::clone(answers), IDLE_TIMEOUT, hook);
        let mut this = Self::of_services(dns, over_tcp, v6);
        let identity = Arc::new(identity.clone());
        this.server.transports.set_identity(&identity);
        this
    }

    /// Creates a client of a server with these services.
    pub(crate) fn of_services(dns: Dns, over_tcp: DnsOverTcp<H>, v6: bool) -> Self {
        Self::of_stack(&TcpSettings::default().stack, dns, over_tcp, v6)
    }

    /// Creates a client of a server with these services on a stack with these settings.
    pub(crate) fn of_stack(tcp: &Config, dns: Dns, over_tcp: DnsOverTcp<H>, v6: bool) -> Self {
        let mut sink = Sink::new(1500, 64, 256);
        sink.copy_residents(true);
        let host = Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4]);
        let capabilities = sink.capabilities();
        let transports =
            UdpAndTcp::with_hook(PORT, dns, over_tcp, tcp, &capabilities, [5, 6, 7, 8]);
        let server = Server::new(host, transports);
        Self { server, sink, v6 }
    }

    /// Sends a query in a datagram. Returns the payload of the reply, if any.
    pub(crate) fn ask(&mut self, query: &[u8]) -> Option<Vec<u8>> {
        let reply = self.handle(&datagram(self.v6, query))?;
        Some(payload(self.v6, &reply))
    }

    /// Lets the server answer queries with a cookie with these cookies.
    pub(crate) fn set_cookies(&mut self, cookies: &Arc<Cookies>) {
        self.server.transports.set_cookies(cookies);
    }

    /// Passes a frame to the server. Returns the frame that the server sends, if any.
    pub(crate) fn handle(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let sent = self.sink.counters().tx_frames;
        let frame = self.sink.frame_from(frame);
        self.server
            .handle_frame(&mut self.sink, frame, Instant::ZERO);
        (self.sink.counters().tx_frames > sent).then(|| self.sink.last().to_vec())
    }
}

/// Returns the route from the client's UDP port to the server's.
pub(crate) const fn route(v6: bool) -> Route {
    Route::to_server(v6, CLIENT_PORT, PORT)
}

/// Builds a frame with a datagram from the client.
pub(crate) fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
    route(v6).datagram(payload)
}

/// Checks all headers and checksums of a datagram from the server, and returns the payload.
pub(crate) fn payload(v6: bool, frame: &[u8]) -> Vec<u8> {
    let packet = read(frame).unwrap();
    assert_eq!(packet.route, route(v6).back());
    packet.datagram().unwrap().to_vec()
}

/// The fields of a query.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) name: Vec<u8>,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    /// UDP size, version and flags of the OPT record, if the query has one.
    pub(crate) edns: Option<(u16, u8, u16)>,
    /// The data of the OPT record.
    pub(crate) options: Vec<u8>,
    /// Whether the question is left out.
    pub(crate) is_bare: bool,
    /// Whether the authority section holds an SOA record, as in an IXFR query.
    pub(crate) has_soa: bool,
}

impl Query {
    /// Creates a query for `name` (in wire format), with class IN and RD set.
    pub(crate) fn new(name: &[u8], qtype: u16) -> Self {
        Self {
            id: 0x1234,
            flags: 0x0100,
            name: name.to_vec(),
            qtype,
            qclass: 1,
            edns: None,
            options: Vec::new(),
            is_bare: false,
            has_soa: false,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let additional = u16::from(self.edns.is_some());
        let authority = u16::from(self.has_soa);
        let questions = u16::from(!self.is_bare);
        for word in [self.id, self.flags, questions, 0, authority, additional] {
            bytes.extend(word.to_be_bytes());
        }
        if !self.is_bare {
            bytes.extend(&self.name);
            bytes.extend(self.qtype.to_be_bytes());
            bytes.extend(self.qclass.to_be_bytes());
        }
        if self.has_soa {
            // The SOA record consists of owner, type, class, TTL and data length, then two root
            // names and five numbers.
            bytes.extend(b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0");
            bytes.extend([0; 20]);
        }
        if let Some((size, version, flags)) = self.edns {
            bytes.extend([0, 0, 41]);
            bytes.extend(size.to_be_bytes());
            bytes.extend([0, version]);
            bytes.extend(flags.to_be_bytes());
            bytes.extend((self.options.len() as u16).to_be_bytes());
            bytes.extend(&self.options);
        }
        bytes
    }
}

/// Returns a name in wire format.
pub(crate) fn name(text: &str) -> Vec<u8> {
    use std::str::FromStr;
    domain::base::Name::<Vec<u8>>::from_str(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .into_octets()
}

/// Returns the number of a type.
pub(crate) fn rtype(text: &str) -> u16 {
    use std::str::FromStr;
    domain::base::iana::Rtype::from_str(text)
        .unwrap_or_else(|_| panic!("{text} is not a type"))
        .to_int()
}
