//! `>`: what comes out must be what the line says.

use std::time::Duration;

use nmio::Instant;
use tcpip::CongestionControl;

use crate::expr::Symbols;
use crate::language::{OptionTemplate, Template};
use crate::peer::seconds;
use crate::run::{Runner, check};
use crate::segment::{ACK, OWN_PORT, Opt, RST, SYN, Segment, parse};

/// So long a failed case is watched for what comes out after all.
const LOOK_AHEAD: Duration = Duration::from_secs(130);

impl<C: CongestionControl> Runner<C> {
    /// The segments of a row, each of which must come at `due`.
    pub(crate) fn expect_all(&mut self, template: &Template, due: Instant) -> Result<(), String> {
        let symbols = self.symbols();
        let by = template.by.as_ref().map_or(0, |by| by.value(&symbols));
        let mut expected = template.value(&symbols);
        for _ in 0..template.times.max(1) {
            if template.window.is_none() {
                expected.window = if expected.has(RST) {
                    0
                } else {
                    self.peer().our_window
                };
            }
            let mut one = expected.clone();
            one.options = self.options_of(&template.options);
            self.expect(one, template, due)?;
            expected.seq = expected.seq.wrapping_add(expected.span());
            expected.ack = expected.ack.wrapping_add(by);
        }
        Ok(())
    }

    fn expect(
        &mut self,
        mut one: Segment,
        template: &Template,
        due: Instant,
    ) -> Result<(), String> {
        // A reset to nobody has no ACK, and is told nothing.
        let is_plain = !one.has(SYN) && (one.has(ACK) || !one.has(RST));
        let plain = is_plain && template.leaves_timestamps();
        let window = self.peer().our_window;
        self.peer().complete_out(&mut one, plain, due);
        if one.has(RST) {
            self.peer().our_window = window;
        }
        let wanted = format!("+{} > {one}", seconds(due.since(self.begin)));
        let Some((at, packet)) = self.pending.pop_front() else {
            // What comes instead, and when, tells the most.
            let later = self.advance(due + LOOK_AHEAD);
            let mut got = String::from("nothing");
            if let Some((at, packet)) = self.pending.pop_front() {
                got = format!("nothing then, but {}", self.describe(at, &packet)?);
            }
            return Err(format!("expected {wanted}\n  got      {got}\n  {later:?}"));
        };
        let last = self.peer().last_timestamp();
        let (from, port, segment, data) = self.take(at, &packet)?;
        let says_any = |option: &OptionTemplate| matches!(option, OptionTemplate::AnyTimestamp(_));
        if template.options.iter().any(says_any) {
            self.take_any(&mut one, &segment, last, at)?;
        }
        let got = format!("+{} > {segment}", seconds(at.since(self.begin)));
        self.trace.push(got[1..].to_owned());
        let peer_port = self.peer().port;
        if port != peer_port {
            return Err(format!(
                "expected {wanted}\n  got      {got}\n  to port {port}"
            ));
        }
        let symbols = self.symbols();
        check("our port", &port_of(template, &symbols), &from)?;
        if at != due || segment != one {
            let rest = self.list_pending();
            return Err(format!("expected {wanted}\n  got      {got}\n{rest}"));
        }
        self.check_data(&segment, &data)
    }

    /// A timestamp of ours may be anything but older than `last`; from here on
    /// our clock is the one that it tells.
    fn take_any(
        &mut self,
        wanted: &mut Segment,
        got: &Segment,
        last: u32,
        at: Instant,
    ) -> Result<(), String> {
        let told = got.options.iter().find_map(|option| match option {
            Opt::Timestamps(value, _) => Some(*value),
            _ => None,
        });
        let Some(told) = told else {
            return Ok(());
        };
        if told.wrapping_sub(last).cast_signed() < 0 {
            return Err(format!(
                "our timestamp goes back from {last} to {told}: {got}"
            ));
        }
        for option in &mut wanted.options {
            if let Opt::Timestamps(value, _) = option {
                *value = told;
            }
        }
        self.peer().set_clock(told, at);
        Ok(())
    }

    /// The data must be what the application has written.
    fn check_data(&mut self, segment: &Segment, data: &[u8]) -> Result<(), String> {
        if data.is_empty() {
            return Ok(());
        }
        let port = self.peer().port;
        let said = self.server.transports.app().said.get(&port);
        let written = said.map_or(&[][..], |said| &said.written);
        let from = segment.seq.wrapping_sub(1) as usize;
        if lies_at(written, from, data) {
            return Ok(());
        }
        Err(format!("other data than was written at {from}: {segment}"))
    }

    fn take(&mut self, at: Instant, packet: &[u8]) -> Result<(u16, u16, Segment, Vec<u8>), String> {
        let (segment, from, port, data) = parse(self.form.family, packet)?;
        let peer = self.peers.values_mut().find(|peer| peer.port == port);
        let peer = peer.ok_or_else(|| format!("a segment to port {port}: {segment}"))?;
        Ok((from, port, peer.relative(&segment, at), data))
    }

    fn describe(&mut self, at: Instant, packet: &[u8]) -> Result<String, String> {
        let (_, _, segment, _) = self.take(at, packet)?;
        Ok(format!("+{} > {segment}", seconds(at.since(self.begin))))
    }

    fn list_pending(&mut self) -> String {
        let mut list = String::new();
        while let Some((at, packet)) = self.pending.pop_front() {
            let text = self.describe(at, &packet).unwrap_or_else(|what| what);
            list.push_str("  then     ");
            list.push_str(&text);
            list.push('\n');
        }
        list
    }

    /// Nothing has come out that no line has named.
    pub(crate) fn expect_silence(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rest = self.list_pending();
        Err(format!(
            "expected nothing before this line, but there came\n{rest}"
        ))
    }
}

/// Whether `data` is what was written at `from`.
pub(crate) fn lies_at(written: &[u8], from: usize, data: &[u8]) -> bool {
    let rest = written.get(from..).unwrap_or_default();
    rest.get(..data.len()) == Some(data)
}

/// Our port in a segment.
pub(crate) fn port_of(template: &Template, symbols: &Symbols) -> u16 {
    let port = template.port.as_ref();
    port.map_or(OWN_PORT, |port| port.value(symbols) as u16)
}
