//! Runs the lines with `>`: compares each segment that the server sends with the expected segment.

use std::time::Duration;

use crate::CongestionControl;
use nmio::Instant;
use testkit::{ACK, Opt, RST, Received, SYN, Segment, read_segment};

use super::expr::Symbols;
use super::language::{OptionTemplate, Template};
use super::peer::seconds;
use super::run::{OWN_PORT, Runner, check};

/// How long a case continues to run after an expected segment is missing. The report then shows
/// which segment is sent instead.
const LOOK_AHEAD: Duration = Duration::from_secs(130);

impl<C: CongestionControl> Runner<C> {
    /// Expects the segments of a row. Each segment must be sent between `earliest`, which is now,
    /// and `latest`.
    pub(crate) fn expect_all(
        &mut self,
        template: &Template,
        earliest: Instant,
        latest: Instant,
    ) -> Result<(), String> {
        let symbols = self.symbols();
        let by = template.by.as_ref().map_or(0, |by| by.value(&symbols));
        let (mut expected, len) = template.value(&symbols)?;
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
            one.data = self.written(one.seq, len);
            let span = one.span();
            while self.pending.is_empty() && self.run_timer(latest)? {}
            self.expect(one, template, earliest, latest)?;
            expected.seq = expected.seq.wrapping_add(span);
            expected.ack = expected.ack.wrapping_add(by);
        }
        Ok(())
    }

    fn expect(
        &mut self,
        mut one: Segment,
        template: &Template,
        earliest: Instant,
        latest: Instant,
    ) -> Result<(), String> {
        let next = self.pending.front().map(|(at, _)| *at);
        let due = next.unwrap_or(latest).clamp(earliest, latest);
        // A RST without ACK is for an unknown connection, so it has no timestamps.
        let is_plain = !one.has(SYN) && (one.has(ACK) || !one.has(RST));
        let plain = is_plain && template.leaves_timestamps();
        let window = self.peer().our_window;
        self.peer().complete_out(&mut one, plain, due);
        if one.has(RST) {
            self.peer().our_window = window;
        }
        let expected_line = format!("+{} > {one}", seconds(due.since(self.begin)));
        let Some((at, packet)) = self.pending.pop_front() else {
            // If the expected segment is not sent, the report shows which segment is sent instead,
            // and when.
            let later = self.advance(due + LOOK_AHEAD);
            let mut got = String::from("nothing");
            if let Some((at, packet)) = self.pending.pop_front() {
                got = format!("nothing at that time, but {}", self.describe(at, &packet)?);
            }
            return Err(format!(
                "expected {expected_line}\n  got      {got}\n  {later:?}"
            ));
        };
        let last = self.peer().last_timestamp();
        let (from, port, segment) = self.take(at, &packet)?;
        let is_any_timestamp =
            |option: &OptionTemplate| matches!(option, OptionTemplate::AnyTimestamp(_));
        if template.options.iter().any(is_any_timestamp) {
            self.take_any(&mut one, &segment, last, at)?;
        }
        if (template.options.iter()).any(|option| matches!(option, OptionTemplate::Any)) {
            one.options.clone_from(&segment.options);
        }
        let got = format!("+{} > {segment}", seconds(at.since(self.begin)));
        self.trace.push(got[1..].to_owned());
        let peer_port = self.peer().port;
        if port != peer_port {
            return Err(format!(
                "expected {expected_line}\n  got      {got}\n  to port {port}"
            ));
        }
        let symbols = self.symbols();
        check("our port", &port_of(template, &symbols), &from)?;
        if at != due || segment != one {
            let rest = self.list_pending();
            let same_len = segment.len() == one.len() && segment.data != one.data;
            let what = if same_len { ", with other data" } else { "" };
            return Err(format!(
                "expected {expected_line}\n  got      {got}{what}\n{rest}"
            ));
        }
        Ok(())
    }

    /// Accepts any TSval of ours that is not older than `last`, and takes it as the reading of our
    /// timestamp clock.
    fn take_any(
        &mut self,
        expected: &mut Segment,
        got: &Segment,
        last: u32,
        at: Instant,
    ) -> Result<(), String> {
        let tsval = got.options.iter().find_map(|option| match option {
            Opt::Timestamps(value, _) => Some(*value),
            _ => None,
        });
        let Some(tsval) = tsval else {
            return Ok(());
        };
        if tsval.wrapping_sub(last).cast_signed() < 0 {
            return Err(format!(
                "our timestamp goes back from {last} to {tsval}: {got}"
            ));
        }
        for option in &mut expected.options {
            if let Opt::Timestamps(value, _) = option {
                *value = tsval;
            }
        }
        self.peer().set_our_tsval(tsval, at);
        Ok(())
    }

    /// Returns `len` bytes that the application has written for the current peer, from `seq` on.
    /// Bytes after the end of the written data are returned as zeros.
    fn written(&mut self, seq: u32, len: u32) -> Vec<u8> {
        let port = self.peer().port;
        let streams = self.server.transports.app().streams.get(&port);
        let written = streams.map_or(&[][..], |streams| &streams.written);
        let rest = written.get(seq.wrapping_sub(1) as usize..);
        let mut data: Vec<u8> = rest.unwrap_or_default().to_vec();
        data.resize(len as usize, 0);
        data
    }

    /// Reads a packet that the server has sent. Returns our port, the peer's port, and the segment
    /// with relative numbers.
    fn take(&mut self, at: Instant, packet: &[u8]) -> Result<(u16, u16, Segment), String> {
        let Received { route, segment, .. } = read_segment(packet)?;
        let port = route.dst.port;
        let peer = self.peers.values_mut().find(|peer| peer.port == port);
        let peer = peer.ok_or_else(|| format!("a segment to port {port}: {segment}"))?;
        let mut back = self.form.route(port);
        back.dst.port = route.src.port;
        if route.back() != back {
            return Err(format!(
                "the addresses are not those of the received segments: {route:?}"
            ));
        }
        Ok((route.src.port, port, peer.relative(&segment, at)))
    }

    fn describe(&mut self, at: Instant, packet: &[u8]) -> Result<String, String> {
        let (_, _, segment) = self.take(at, packet)?;
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

    /// Checks that the server has not sent a segment that no line expects.
    pub(crate) fn expect_silence(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rest = self.list_pending();
        Err(format!(
            "expected no segment before this line, but got\n{rest}"
        ))
    }
}

/// Returns our port in a line's segment.
pub(crate) fn port_of(template: &Template, symbols: &Symbols) -> u16 {
    let port = template.port.as_ref();
    port.map_or(OWN_PORT, |port| port.value(symbols) as u16)
}
