//! Runs a case. The server receives the segments of the `<` lines, and must send the segments of
//! the `>` lines. Each sent segment must match its line in time and in every field, except where
//! the line allows several values.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::{Bbr, Config, CongestionControl, Cubic, NewReno, Reno, Server, Stack};
use eth::{Mac, Station};
use ip::Host;
use nmio::{Drain, Handler, Instant, Port};
use testkit::{
    ACK, CWR, ECE, Layout, Opt, Outbox, SERVER, SERVER_MAC, SYN, Segment, TCP, fill_checksum,
    read_segment,
};

use super::expect::port_of;
use super::expr::{Expr, Symbols};
use super::forms::{FORMS, Form};
use super::language::{Case, Command, Icmp, Line, OptionTemplate, Template};
use super::peer::{Peer, seconds};
use super::rig::{App, peers_byte};
use super::settings;

/// Our port.
pub(crate) const OWN_PORT: u16 = 80;
/// Number of bytes of the peer's MSS that a full segment leaves free for timestamps, even if it has
/// no timestamps.
const RESERVED: u16 = 12;
/// Interval in which our initial sequence numbers grow by one, in microseconds (RFC 6528, section
/// 3).
const ISN_TICK_MICROS: u64 = 4;
/// Minimum MSS that the stack uses. A smaller MSS of a peer is raised to this minimum.
const MIN_MSS: u16 = 88;
/// Maximum number of timer runs in a row without an advance of the virtual time. A stack whose next
/// timer is due immediately even more often would probably never sleep.
const MAX_TURNS: u32 = 10_000;

/// Runs a case in all its forms.
///
/// # Errors
///
/// Describes the first form in which the case fails: the line, the expected and the actual result,
/// and the whole exchange.
pub(crate) fn run(case: &Case) -> Result<(), String> {
    let only: Vec<&str> = case
        .lines
        .iter()
        .filter_map(|line| match &line.command {
            Command::Only(form) => Some(form.as_str()),
            _ => None,
        })
        .collect();
    let forms: Vec<&Form> = FORMS
        .iter()
        .filter(|form| only.iter().all(|name| form.is(name)))
        .collect();
    if forms.is_empty() {
        return Err(format!("{}\n  no form matches {only:?}", case.title()));
    }
    for form in forms {
        run_form(case, form)
            .map_err(|what| format!("{}\n  ({form})\n  |{}\n{what}", case.title(), case.rule))?;
    }
    Ok(())
}

fn run_form(case: &Case, form: &Form) -> Result<(), String> {
    let control = case.lines.iter().find_map(|line| match &line.command {
        Command::Control(name) => Some(name.as_str()),
        _ => None,
    });
    match control {
        None | Some("cubic") => run_with::<Cubic>(case, form),
        Some("newreno") => run_with::<NewReno>(case, form),
        Some("reno") => run_with::<Reno>(case, form),
        Some("bbr") => run_with::<Bbr>(case, form),
        Some(other) => Err(format!("  no congestion control is called {other}")),
    }
}

fn run_with<C: CongestionControl>(case: &Case, form: &Form) -> Result<(), String> {
    let mut config = Config::on_ports(&[OWN_PORT]);
    config.mode = form.mode;
    config.max_connections = 64;
    let mut mtu = 1500;
    for line in &case.lines {
        if let Command::Set(name, value) = &line.command {
            settings::set(&mut config, &mut mtu, name, value)
                .map_err(|what| format!("  {}: {}\n  {what}", line.number, line.text))?;
        }
    }
    let mut runner = Runner::<C>::new(&config, mtu, *form);
    let mut at = case.line;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for line in &case.lines {
            at = line.number;
            runner.run_line(line)?;
        }
        at = case.lines.last().map_or(case.line, |line| line.number);
        runner.finish()
    }));
    let failure = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            format!("panicked: {}", text.unwrap_or_default())
        }
    };
    let line = case.lines.iter().find(|line| line.number == at);
    let text = line.map_or("", |line| line.text.as_str());
    Err(format!(
        "  {}:{at}: {text}\n  {failure}\n  The exchange:\n    {}\n",
        case.file,
        runner.trace.join("\n    ")
    ))
}

/// Returns our first initial sequence number in a form.
pub(crate) fn first_iss(form: Form) -> Option<u32> {
    let config = Config::on_ports(&[OWN_PORT]);
    Runner::<Cubic>::new(&config, 1500, form).first_iss()
}

/// State of a running case.
pub(crate) struct Runner<C> {
    pub(crate) server: Server<App, C>,
    pub(crate) port: Outbox,
    pub(crate) form: Form,
    pub(crate) begin: Instant,
    pub(crate) now: Instant,
    pub(crate) peers: HashMap<String, Peer>,
    pub(crate) current: String,
    /// Packets that the server has sent and that no line has expected yet, with their times.
    pub(crate) pending: VecDeque<(Instant, Vec<u8>)>,
    pub(crate) trace: Vec<String>,
    /// Number of times that the timers have run at the current virtual time.
    turns: u32,
    /// Result of the last call of `handle_drain`, if the drain has begun.
    drain: Option<Drain>,
    pub(crate) frames: u32,
    /// Size of the receive buffer in bytes.
    pub(crate) recv: u32,
    pub(crate) own_mss: u16,
    pub(crate) options: settings::Switches,
}

impl<C: CongestionControl> Runner<C> {
    fn new(config: &Config, mtu: usize, form: Form) -> Self {
        let begin = Instant::from_millis(form.begin_ms);
        let runner = Self::beginning(config, mtu, form, begin);
        let Some(target) = form.iss else {
            return runner;
        };
        // Our initial sequence numbers grow with time (RFC 6528). So the case begins shortly before
        // the wanted number is reached.
        let Some(iss) = runner.first_iss() else {
            return Self::beginning(config, mtu, form, begin);
        };
        let ticks = u64::from(target.wrapping_sub(iss));
        let wait = Duration::from_millis(ticks * ISN_TICK_MICROS / 1000);
        Self::beginning(config, mtu, form, begin + wait)
    }

    /// Returns the sequence number of the first SYN-ACK.
    fn first_iss(mut self) -> Option<u32> {
        self.input(&Template::bare(SYN, Expr::number(0))).ok()?;
        let (_, packet) = self.pending.pop_front()?;
        Some(read_segment(&packet).ok()?.segment.seq)
    }

    fn beginning(config: &Config, mtu: usize, form: Form, begin: Instant) -> Self {
        let port = Outbox::new(mtu, 128, ip::write_segment);
        let stack = Stack::with_congestion_control(
            config,
            App::new(),
            &port.capabilities(),
            form.secret,
            begin,
        );
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        let own_mss = mtu as u16 - form.headers();
        let frames = port.pool().available();
        let mut runner = Self {
            server: Server::new(Host::own(station, [0; 4]), stack),
            port,
            form,
            begin,
            now: begin,
            peers: HashMap::new(),
            current: String::from("one"),
            pending: VecDeque::new(),
            trace: Vec::new(),
            turns: 0,
            drain: None,
            frames,
            recv: config
                .recv_buffer
                .clamp(Config::MIN_RECV_BUFFER, Config::MAX_RECV_BUFFER) as u32,
            own_mss,
            options: settings::Switches::of(config),
        };
        let first = runner.new_peer(40_000);
        runner.peers.insert(runner.current.clone(), first);
        runner
    }

    pub(crate) fn new_peer(&self, port: u16) -> Peer {
        Peer::new(port, self.form.isn, self.own_mss - RESERVED, self.recv)
    }

    pub(crate) fn peer(&mut self) -> &mut Peer {
        self.peers
            .get_mut(&self.current)
            .expect("the current peer exists")
    }

    pub(crate) fn symbols(&mut self) -> Symbols {
        let headers = i64::from(self.form.headers());
        Symbols {
            seg: i64::from(self.peer().seg),
            mss: i64::from(self.own_mss),
            headers,
            room: headers + i64::from(RESERVED),
            recv: i64::from(self.recv),
            scale: i64::from(scale_for(self.recv)),
        }
    }

    pub(crate) fn value(&mut self, expr: &Expr) -> u32 {
        expr.value(&self.symbols())
    }

    pub(crate) fn note(&mut self, at: Instant, what: &str) {
        let time = seconds(at.since(self.begin));
        self.trace.push(format!("{time} {what}"));
    }

    fn run_line(&mut self, line: &Line) -> Result<(), String> {
        let since = if line.time.is_relative {
            self.now
        } else {
            self.begin
        };
        let (earliest, latest) = (since + line.time.earliest, since + line.time.latest);
        if earliest < self.now {
            return Err("this time has already passed".into());
        }
        if let Command::Out(template) = &line.command {
            self.advance(earliest)?;
            return self.expect_all(template, earliest, latest);
        }
        if earliest > self.now {
            self.expect_silence()?;
            self.advance(earliest)?;
        }
        match &line.command {
            Command::In(template) => {
                self.expect_silence()?;
                self.input(template)
            }
            Command::Icmp(icmp) => {
                self.expect_silence()?;
                self.icmp(icmp)
            }
            Command::Silence => self.expect_silence(),
            Command::Open {
                options,
                window,
                rtt,
                ecn,
            } => self.open(options, window.as_ref(), *rtt, *ecn),
            Command::App(words) => self.instruct(words),
            Command::Log(expected) => {
                let log = std::mem::take(&mut self.server.transports.app_mut().log);
                check("the application's log", expected, &log)
            }
            Command::Count(name, number) => {
                let counters = format!("{:?}", self.server.transports.counters());
                self.check_field(name, number, &counters)
            }
            Command::Connections(number) => {
                let expected = self.value(number);
                let got = self.server.transports.connections();
                check("connections", &expected, &got)
            }
            Command::Peer { name, like } => self.select(name, like.as_deref()),
            Command::Again => {
                self.peer().expect_new_iss();
                Ok(())
            }
            Command::Isn { of, from, relation } => self.compare_isn(of, from, relation),
            Command::Ring(room) => {
                self.port.room = self.value(room) as usize;
                self.turn()
            }
            Command::Drain(expected) => self.drain(expected.as_deref()),
            Command::ShutDown => {
                let all = self.server.handle_stop(&mut self.port, self.now);
                self.collect();
                check("all connections are closed", &true, &all)
            }
            Command::Out(_) | Command::Set(..) | Command::Only(_) | Command::Control(_) => Ok(()),
        }
    }

    /// Begins the drain, or checks how far it is.
    fn drain(&mut self, expected: Option<&str>) -> Result<(), String> {
        let Some(expected) = expected else {
            self.drain = Some(Drain::Busy(self.now));
            return self.turn();
        };
        let got = match self.drain {
            None => "not begun",
            Some(Drain::Busy(_)) => "busy",
            Some(Drain::Done) => "done",
        };
        check("the drain", &expected, &got)
    }

    fn check_field(&mut self, name: &str, number: &Expr, fields: &str) -> Result<(), String> {
        let expected = self.value(number);
        let got =
            settings::field(fields, name).ok_or_else(|| format!("no counter is called {name}"))?;
        check(name, &expected, &got)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.expect_silence()
    }

    /// Passes a packet to the server.
    fn receive(&mut self, packet: &[u8]) -> Result<(), String> {
        let frame = self.port.frame_from(packet);
        self.server.handle_frame(&mut self.port, frame, self.now);
        self.turn()
    }

    /// Does the event loop's work after a batch: runs the timers, and continues the drain. Then collects the sent packets,
    /// and checks the stack's invariants.
    fn turn(&mut self) -> Result<(), String> {
        Handler::<Outbox>::handle_timers(&mut self.server, &mut self.port, self.now);
        if let Some(Drain::Busy(_)) = self.drain {
            self.drain = Some(self.server.handle_drain(&mut self.port, self.now));
        }
        self.collect();
        if let Some(fault) = self.server.transports.app_mut().fault.take() {
            return Err(fault);
        }
        self.server.transports.check_invariants();
        check("free frames", &self.frames, &self.port.pool().available())
    }

    /// Collects the sent packets.
    fn collect(&mut self) {
        while let Some(packet) = self.port.sent.pop_front() {
            self.pending.push_back((self.now, packet));
        }
    }

    /// Advances the time to `to`, and runs the timers that expire by then.
    pub(crate) fn advance(&mut self, to: Instant) -> Result<(), String> {
        while self.run_timer(to)? {}
        self.now = to;
        self.turn()
    }

    /// Advances to the time of the next timers, and runs these timers. If no timer is due by
    /// `latest`, does nothing and returns `false`.
    pub(crate) fn run_timer(&mut self, latest: Instant) -> Result<bool, String> {
        let mut due = Handler::<Outbox>::poll_timeout(&self.server);
        if let Some(Drain::Busy(next)) = self.drain {
            due = Some(due.map_or(next, |due| due.min(next)));
        }
        let Some(due) = due.filter(|due| *due <= latest) else {
            return Ok(false);
        };
        self.turns = if due > self.now { 0 } else { self.turns + 1 };
        if self.turns > MAX_TURNS {
            return Err("the stack asks for timers at the same moment again and again".into());
        }
        self.now = self.now.max(due);
        self.turn()?;
        Ok(true)
    }

    fn input(&mut self, template: &Template) -> Result<(), String> {
        let symbols = self.symbols();
        let by = template.by.as_ref().map_or(0, |by| by.value(&symbols));
        let (mut segment, len) = template.value(&symbols)?;
        let now = self.now;
        if template.window.is_none() {
            segment.window = self.peer().window;
        }
        segment.options = self.options_of(&template.options);
        if segment.bits & (SYN | ACK) == SYN && self.peer().iss.is_none() {
            self.learn_mss(&segment);
        }
        let plain = template.leaves_timestamps();
        for _ in 0..template.times.max(1) {
            let mut one = segment.clone();
            self.peer()
                .complete_in(&mut one, plain && !segment.has(SYN), now);
            let first = one.seq.wrapping_sub(u32::from(!one.has(SYN))) as usize;
            let data = (0..len as usize).map(|at| peers_byte(first.wrapping_add(at)));
            one.data = data.collect();
            self.peer().note_sent(&one, now);
            self.note(now, &format!("< {one}"));
            let packet = self.packet(&one, template);
            self.receive(&packet)?;
            segment.seq = segment.seq.wrapping_add(one.span());
            segment.ack = segment.ack.wrapping_add(by);
        }
        Ok(())
    }

    /// Returns the packet of a segment from the current peer. The packet contains the errors that
    /// `template` requests.
    fn packet(&mut self, segment: &Segment, template: &Template) -> Vec<u8> {
        let symbols = self.symbols();
        let Form { layout, .. } = self.form;
        let mut route = self.form.route(self.peer().port);
        route.dst.port = port_of(template, &symbols);
        let mut packet = route.segment(&self.peer().absolute(segment), layout);
        let tcp = &mut packet[route.header_len()..];
        if let Some(offset) = &template.offset {
            tcp[12] = (offset.value(&symbols) as u8) << 4 | tcp[12] & 15;
            fill_checksum(tcp, TCP, route.src.ip, route.dst.ip);
        }
        if template.bad_checksum {
            tcp[16] ^= 1;
        }
        packet
    }

    pub(crate) fn options_of(&mut self, templates: &[OptionTemplate]) -> Vec<Opt> {
        let symbols = self.symbols();
        let values = templates.iter();
        values.filter_map(|option| option.value(&symbols)).collect()
    }

    /// Learns the size of full segments to this peer from its SYN (RFC 9293, section 3.7.1).
    fn learn_mss(&mut self, syn: &Segment) {
        let default = if self.form.v6 { 1220 } else { 536 };
        let mss = syn.mss().unwrap_or(default).clamp(MIN_MSS, self.own_mss);
        self.peer().seg = mss - RESERVED;
    }

    fn icmp(&mut self, icmp: &Icmp) -> Result<(), String> {
        let symbols = self.symbols();
        let (error, seq) = (icmp.error(&symbols), icmp.seq.value(&symbols));
        let now = self.now;
        self.note(now, &format!("< icmp {error:?} about {seq}"));
        let about = Segment {
            seq: self.peer().icmp_about(seq),
            data: vec![0; icmp.len.value(&symbols) as usize],
            ..Segment::default()
        };
        let route = self.form.route(self.peer().port);
        let ours = route.back().segment(&about, Layout::Dense);
        self.receive(&route.icmp_error(error, &ours))
    }

    /// Runs a handshake, and checks the SYN-ACK.
    fn open(
        &mut self,
        options: &[OptionTemplate],
        window: Option<&Expr>,
        rtt: Duration,
        ecn: bool,
    ) -> Result<(), String> {
        let mut offered = options.to_vec();
        if options.is_empty() {
            offered.push(OptionTemplate::Mss(Expr::parse("MSS")?));
            if self.form.layout == Layout::Usual {
                let (value, echo) = (Expr::number(100), Expr::number(0));
                offered.push(OptionTemplate::Timestamps(value, echo));
            }
        }
        let mut answer = vec![OptionTemplate::Mss(Expr::parse("MSS")?)];
        let symbols = self.symbols();
        for option in &offered {
            match option {
                OptionTemplate::Scale(_) if self.options.scale => {
                    answer.push(OptionTemplate::Scale(Expr::parse("WS")?));
                }
                OptionTemplate::SackPermitted if self.options.sack => {
                    answer.push(OptionTemplate::SackPermitted);
                }
                OptionTemplate::Timestamps(value, _) if self.options.timestamps => {
                    let echo = Expr::number(value.value(&symbols));
                    answer.push(OptionTemplate::Timestamps(Expr::number(0), echo));
                }
                _ => {}
            }
        }
        let (setup, setup_answer) = if ecn { (ECE | CWR, ECE) } else { (0, 0) };
        self.expect_silence()?;
        self.input(&Template {
            window: window.cloned(),
            options: offered,
            ..Template::bare(SYN | setup, Expr::number(0))
        })?;
        let syn_ack = Template {
            options: answer,
            ..Template::bare(SYN | ACK | setup_answer, Expr::number(0))
        };
        let now = self.now;
        self.expect_all(&syn_ack, now, now)?;
        self.advance(now + rtt)?;
        self.expect_silence()?;
        self.input(&Template {
            window: window.cloned(),
            ..Template::bare(ACK, Expr::number(1))
        })?;
        self.server.transports.app_mut().log.clear();
        Ok(())
    }
}

/// Returns the smallest shift with which a window of `recv` bytes fits into the header field.
fn scale_for(recv: u32) -> u8 {
    let mut shift = 0;
    while recv >> shift > u32::from(u16::MAX) {
        shift += 1;
    }
    shift
}

pub(crate) fn check<T: PartialEq + fmt::Display>(
    what: &str,
    expected: &T,
    got: &T,
) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {got}"))
}
