//! Turns a query into its reply, for any transport.

mod limits;
mod parts;
mod transfer;
mod without_records;

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nmio::Instant;
use udpip::Tail;

use crate::answers::{AnswerId, Answers, ZoneAnswers, ZoneNumber};
use crate::assemble::{Assembler, truncates_over_tcp};
use crate::bare::BareReply;
use crate::body::Body;
use crate::cookie::{Checked, Cookies};
use crate::cookie_check::{CookieCheck, Rest};
use crate::counters::Counters;
use crate::edns::{self, COOKIE, Edns, ExtendedError, MIN_UDP_MESSAGE};
use crate::groups::{NO_GROUP, ReplyCount, ReplyCounts};
use crate::hashed_question::HashedQuestion;
use crate::hook::{Hook, HookContext, NoHook};
use crate::identity::{CLASS_CHAOS, Identity};
use crate::options::{About, MAX_OPT, OptWriter};
use crate::query::{AA, HEADER_LEN, Header, MAX_HEAD, NameBuf, QR, RD, RawQuestion, TC};
use crate::rcode;
use crate::rtype;
use crate::tail::{MAX_TCP_MESSAGE, QUESTION_REST};
use crate::tsig::may_be_signed;
use crate::udp_size::ClientSize;
use crate::zone_counts::QueryCounts;

use limits::Limits;
pub(crate) use parts::Parts;
pub(crate) use transfer::{TransferReply, asks_for_transfer};

// All options fit a reply without records, however short the messages that the client accepts.
const _: () = assert!(MAX_HEAD + MAX_OPT <= MIN_UDP_MESSAGE);
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
/// The first three section counts of a normal query: one question, no answers, no authority
/// records.
const QUERY_COUNTS: [u8; 6] = [0, 1, 0, 0, 0, 0];
/// The first three section counts of an IXFR query, whose authority section holds the client's SOA
/// (RFC 1995, section 3).
const IXFR_COUNTS: [u8; 6] = [0, 1, 0, 0, 0, 1];

/// The transport of a query, which determines the maximum length of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The query came over UDP.
    Udp {
        /// Maximum length of a reply, in bytes: that of one packet on the link, or less. No datagram has
        /// more than 65,507. Clients may set a lower one.
        link: usize,
    },
    /// The query came over TCP.
    Tcp,
}

/// A reply in three parts: the head (header and question), the tail (the prepared or composed
/// records) and the trail (the OPT record).
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Length of the head, in bytes. The head is only a header if the query's header or question is
    /// malformed or unsupported.
    pub head_len: usize,
    /// The head, or `None` if it was written over the start of the query's message.
    pub rewritten: Option<&'a [u8]>,
    /// The answer, authority and additional records, except the OPT record.
    pub tail: Tail<'a>,
    /// The OPT record. It is empty if the reply has no OPT record.
    pub trail: Tail<'a>,
    /// The prepared answer, if its tail is sent unchanged. Replies with the same answer have equal
    /// tails, and heads of the same length, so they can reuse the same resident packet.
    pub prepared: Option<AnswerId>,
    /// Whether the query has a valid server cookie, so the client's address is not forged.
    pub has_valid_cookie: bool,
}

impl<'a> Reply<'a> {
    /// Creates a reply that consists of the header over the query's and this OPT record, if it is not
    /// empty.
    fn bare(trail: Tail<'a>) -> Self {
        Self {
            head_len: HEADER_LEN,
            rewritten: None,
            tail: Tail::EMPTY,
            trail,
            prepared: None,
            has_valid_cookie: false,
        }
    }

    /// Returns the length of the whole message, in bytes.
    pub fn len(&self) -> usize {
        self.head_len + self.tail.bytes.len() + self.trail.bytes.len()
    }

    /// Appends the whole message to `out`. The head may have been written over the start of `query`.
    pub(crate) fn append_to(&self, query: &[u8], out: &mut Vec<u8>) -> Parts {
        out.extend_from_slice(self.rewritten.unwrap_or(&query[..self.head_len]));
        out.extend_from_slice(self.tail.bytes);
        out.extend_from_slice(self.trail.bytes);
        Parts {
            head: self.head_len,
            tail: self.tail.bytes.len(),
            opt: self.trail.bytes.len(),
        }
    }

    /// Always returns false, because a reply has at least a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Answers queries. Each worker has one responder for UDP and one for TCP.
#[derive(Debug)]
pub struct Responder {
    answers: Arc<Answers>,
    counters: Counters,
    groups: ReplyCounts,
    question: HashedQuestion,
    expanded: NameBuf,
    head: [u8; MAX_HEAD],
    opt: OptWriter,
    limits: Limits,
    identity: Arc<Identity>,
    cookies: CookieCheck,
    /// Whether the last message is a query that is not answered yet, because it may have a cookie or a
    /// signature.
    is_set_aside: bool,
    assembler: Assembler,
}

/// A parsed query, with the maximum length of its reply in bytes.
#[derive(Clone, Copy)]
struct Query {
    flags: u16,
    question: RawQuestion,
    edns: Option<Edns>,
    /// Whether there are additional records other than OPT, of which one may be a signature.
    has_others: bool,
    limit: usize,
    over_tcp: bool,
}

impl Query {
    /// Returns true if the client wants signatures and proofs (RFC 3225).
    #[inline(always)]
    fn wants_signatures(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Returns true if the query has a cookie, or may have a signature.
    #[inline(always)]
    fn needs_care(&self) -> bool {
        self.has_others || self.edns.is_some_and(|edns| edns.options.contains(COOKIE))
    }

    /// Returns the part of the query's message behind the question.
    fn rest<'m>(&self, message: &'m [u8], edns: Edns) -> Rest<'m> {
        Rest {
            message,
            at: self.question.end,
            edns,
        }
    }

    /// Verifies the query's cookie, if it has one, and counts it. Without `CAREFUL`, the query has none.
    #[inline(always)]
    fn cookie<const CAREFUL: bool>(
        &self,
        message: &[u8],
        cookies: &CookieCheck,
        client: impl FnOnce() -> IpAddr,
        counters: &mut Counters,
    ) -> Option<Checked> {
        let has_cookie = |edns: &Edns| CAREFUL && edns.options.contains(COOKIE);
        let edns = self.edns.filter(has_cookie)?;
        cookies.check(self.rest(message, edns), client(), counters)
    }

    /// Writes the OPT record of the reply, which is empty for a query without one. `source` is the zone
    /// that the reply is from, and the cookie of the query.
    #[inline(always)]
    fn write_opt<'o>(
        &self,
        opt: &'o mut OptWriter,
        identity: &Identity,
        source: (Option<&ZoneAnswers>, Option<Checked>),
        body: &Body<'_>,
        counters: &mut Counters,
    ) -> Tail<'o> {
        let Some(edns) = self.edns else {
            return Tail::EMPTY;
        };
        counters.edns += 1;
        opt.write(edns, body, || self.about(identity, source, body))
    }

    /// Returns what the options of the reply depend on: the zone that the reply is from, and the cookie
    /// of the query.
    fn about<'a>(
        &self,
        identity: &'a Identity,
        (zone, cookie): (Option<&ZoneAnswers>, Option<Checked>),
        body: &Body<'_>,
    ) -> About<'a> {
        About {
            identity,
            zone: zone.and_then(ZoneAnswers::version),
            cookie: cookie.map(Checked::reply),
            is_soa: self.question.qtype == rtype::SOA,
            room: self.room_for_opt(body),
        }
    }

    /// Returns the length that an OPT record with options may have before they are left out. Over UDP
    /// they are never left out, because long replies can be truncated.
    #[inline(always)]
    fn room_for_opt(&self, body: &Body<'_>) -> usize {
        if !self.over_tcp {
            return usize::MAX;
        }
        let len = HEADER_LEN + self.question.name_len + QUESTION_REST + body.tail.bytes.len();
        self.limit.saturating_sub(len)
    }

    /// Replaces a body by SERVFAIL if it leaves no room for a signature (TSIG) over TCP. A client that gets a
    /// truncated reply there cannot get the answer in another way. A reply to ANY is truncated nevertheless.
    fn refuse_too_long(&self, body: &mut Body<'_>, counters: &mut Counters) {
        let shortest = body.required.map_or(body.tail, |(tail, _)| tail);
        let opt_len = self.edns.map_or(0, |_| edns::OPT_LEN);
        let head_len = HEADER_LEN + self.question.name_len + QUESTION_REST;
        let is_too_long = head_len + shortest.bytes.len() + opt_len > self.limit;
        if self.over_tcp && is_too_long && !truncates_over_tcp(self.question.qtype) {
            counters.without_room += 1;
            *body = Body::error(rcode::SERVFAIL, ExtendedError::Other);
        }
    }
}

impl Responder {
    /// Creates a responder that replies from `answers`.
    pub fn new(answers: Arc<Answers>) -> Self {
        Self {
            assembler: Assembler::new(answers.has_hooked()),
            groups: ReplyCounts::new(),
            answers,
            counters: Counters::default(),
            question: HashedQuestion::new(),
            expanded: NameBuf::new(),
            head: [0; MAX_HEAD],
            opt: OptWriter::new(),
            limits: Limits::new(),
            identity: Arc::default(),
            cookies: CookieCheck::default(),
            is_set_aside: false,
        }
    }

    /// Counts replies from each zone in this table.
    pub(crate) fn set_zone_counts(&mut self, counts: QueryCounts) {
        self.groups.set_by_zone(counts);
    }

    /// Sets what the server says about itself.
    pub fn set_identity(&mut self, identity: Arc<Identity>) {
        self.identity = identity;
    }

    /// Sets the server cookies. A query with a client cookie gets one.
    pub fn set_cookies(&mut self, cookies: Arc<Cookies>) {
        self.cookies.set_cookies(cookies);
    }

    /// Sets the largest UDP message that the next clients get.
    pub(crate) fn set_udp_size(&mut self, size: ClientSize) {
        self.limits.udp_size = size;
        self.opt.set_udp_size(size.bytes);
    }

    /// Returns the largest UDP message that the next client gets, in bytes.
    #[inline(always)]
    pub(crate) fn udp_size(&self) -> usize {
        self.limits.udp_size.bytes.into()
    }

    /// Tells clients over TCP how long a connection may be idle, if they ask (RFC 7828).
    pub(crate) fn set_idle_timeout(&mut self, timeout: Duration) {
        self.opt.set_idle_timeout(timeout);
    }

    /// Replies from other answers. The counters go on.
    pub(crate) fn set_answers(&mut self, answers: Arc<Answers>) {
        self.assembler = Assembler::new(answers.has_hooked());
        self.answers = answers;
    }

    /// Returns the prepared answers.
    pub fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Restores the counters to `before`. The last query is answered again later, because there is
    /// no room for its reply now.
    pub(crate) fn uncount(&mut self, before: &Counters) {
        self.counters = *before;
        self.groups.uncount();
    }

    /// Returns the label of each zone group, and response codes with the numbers of the group's replies.
    pub(crate) fn by_group(&self) -> impl Iterator<Item = ReplyCount> + '_ {
        self.groups.by_label(self.answers.group_labels())
    }

    /// Returns the mnemonic of each frequent query type, and response codes with the numbers of replies.
    pub(crate) fn by_type(&self) -> impl Iterator<Item = ReplyCount> + '_ {
        self.groups.by_type()
    }

    /// Answers one message. Writes the reply's head over the start of `message`, unless
    /// [`Reply::rewritten`] holds the head. If the message receives no reply, counts it and returns
    /// `None`.
    #[inline(always)]
    pub fn respond(&mut self, message: &mut [u8], transport: Transport) -> Option<Reply<'_>> {
        let context = HookContext {
            hook: &mut NoHook,
            peer: || SocketAddr::from(([0; 4], 0)),
            over_tcp: transport == Transport::Tcp,
            now: Instant::ZERO,
        };
        self.respond_to::<_, true>(message, transport, None, context)
    }

    /// Like [`respond`](Self::respond), with a hook that answers for the
    /// [registered](crate::Zones::hook) names. `peer` is the client's address and port.
    #[inline(always)]
    pub fn respond_with<H: Hook>(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        hook: &mut H,
        peer: SocketAddr,
        now: Instant,
    ) -> Option<Reply<'_>> {
        let context = HookContext {
            hook,
            peer: || peer,
            over_tcp: transport == Transport::Tcp,
            now,
        };
        self.respond_to::<_, true>(message, transport, None, context)
    }

    /// Like [`respond_with`](Self::respond_with), but does not parse the question again if `parsed`
    /// already holds it. Without `CAREFUL`, [sets aside](Self::take_set_aside) queries that may have a cookie
    /// or a signature and returns `None`, so that other queries do not pay for them.
    #[inline(always)]
    pub(crate) fn respond_to<H: Hook, const CAREFUL: bool>(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        parsed: Option<&mut HashedQuestion>,
        context: HookContext<'_, H, impl Fn() -> SocketAddr>,
    ) -> Option<Reply<'_>> {
        let Self {
            answers,
            counters,
            question,
            expanded,
            opt,
            identity,
            cookies,
            assembler,
            ..
        } = self;
        let header = receive(message, counters)?;
        let parsed = match parsed {
            Some(parsed) => Ok(parsed),
            None => question.read(message, answers, expanded).map(|()| question),
        };
        let parsed = match parsed {
            Ok(parsed) if is_query(&header, parsed.question.qtype) => parsed,
            _ if !CAREFUL && may_be_signed(message) => {
                return set_aside(counters, &mut self.is_set_aside);
            }
            _ => {
                let bare = BareReply::to(message, &header, (context.peer)(), cookies, counters);
                let counts = (counters, &mut self.groups);
                return Some(Reply::bare(bare.write(message, opt, identity, counts)));
            }
        };
        let question = parsed.question;
        let (mut query, is_malformed) = read_rest(message, &header, question, transport);
        query.limit = query.limit.saturating_sub(self.limits.signature_room);
        if !CAREFUL && query.needs_care() {
            return set_aside(counters, &mut self.is_set_aside);
        }
        let cookie = query.cookie::<CAREFUL>(message, cookies, || (context.peer)().ip(), counters);
        let refusal = refusal(&query, is_malformed);
        let groups = &mut self.groups;
        let mut body = if let Some(rcode) = refusal {
            parsed.zone = ZoneNumber::NONE;
            groups.count_zone::<CAREFUL>(parsed.zone);
            without_lookup(rcode, &question, question.name(message, expanded), identity)
        } else if let Some(answer) = parsed.find_answer(answers) {
            groups.count_zone::<CAREFUL>(parsed.zone);
            Body::of(&answer, query.wants_signatures())
        } else {
            let zone = parsed.check_zone(answers);
            groups.count_zone::<CAREFUL>(parsed.zone);
            let name = question.name(message, expanded);
            let question = (name, question.qtype, query.wants_signatures());
            assembler.assemble((answers, zone), question, parsed, context, counters)?
        };
        let (number, zone) = (parsed.zone, answers.zone(parsed.zone));
        if CAREFUL {
            query.refuse_too_long(&mut body, counters);
        }
        let trail = query.write_opt(opt, identity, (zone, cookie), &body, counters);
        let group = zone.map_or(NO_GROUP, ZoneAnswers::group);
        groups.count::<CAREFUL>(group, question.qtype, body.rcode);
        let (mut reply, fields) = fit(&query, &self.limits, number, &body, trail, counters);
        reply.has_valid_cookie = cookie.is_some_and(Checked::is_valid);
        reply.rewritten = place(message, &question, expanded, &mut self.head, &fields);
        Some(reply)
    }

    /// Returns true if [`respond_to`](Self::respond_to) has just set a query aside, which
    /// [`respond_with_peer`](Self::respond_with_peer) must answer.
    pub(crate) fn take_set_aside(&mut self) -> bool {
        mem::take(&mut self.is_set_aside)
    }

    /// Counts a query with a signature. The reply to it leaves this number of bytes free for its own one.
    pub(crate) fn begin_signed(&mut self, is_valid: bool, signature_room: usize) {
        if is_valid {
            self.counters.good_signatures += 1;
        } else {
            self.counters.bad_signatures += 1;
        }
        self.limits.signature_room = signature_room;
    }

    /// Completes the reply to a signed query, after [`begin_signed`](Self::begin_signed).
    pub(crate) fn end_signed(&mut self) {
        self.limits.signature_room = 0;
    }

    /// Answers a query that may have a cookie.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond_with_peer<H: Hook>(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        context: HookContext<'_, H, SocketAddr>,
    ) -> Option<Reply<'_>> {
        let peer = context.peer;
        let context = context.with_peer(|| peer);
        self.respond_to::<H, true>(message, transport, None, context)
    }
}

/// The header fields after the ID: flags and counts.
type Fields = [u8; HEADER_LEN - 2];

/// Writes the head of a reply over the start of the query's message. Returns the head instead if the
/// name in the query is compressed.
#[inline(always)]
fn place<'a>(
    message: &mut [u8],
    question: &RawQuestion,
    expanded: &NameBuf,
    head: &'a mut [u8; MAX_HEAD],
    fields: &Fields,
) -> Option<&'a [u8]> {
    if question.is_compressed {
        head[..2].copy_from_slice(&message[..2]);
        head[2..HEADER_LEN].copy_from_slice(fields);
        write_question(&mut head[HEADER_LEN..], question, expanded.bytes());
        Some(&head[..HEADER_LEN + question.name_len + QUESTION_REST])
    } else {
        message[2..HEADER_LEN].copy_from_slice(fields);
        None
    }
}

/// Leaves a message to [`Responder::respond_with_peer`], which counts it.
#[cold]
fn set_aside<T>(counters: &mut Counters, is_set_aside: &mut bool) -> Option<T> {
    counters.queries -= 1;
    *is_set_aside = true;
    None
}

/// Counts a message and parses its header. Returns `None` if the message receives no reply.
#[inline(always)]
fn receive(message: &[u8], counters: &mut Counters) -> Option<Header> {
    counters.queries += 1;
    let Some(header) = Header::parse(message) else {
        counters.too_short += 1;
        return None;
    };
    if header.is_response() {
        counters.responses += 1;
        return None;
    }
    Some(header)
}

/// Returns true if the message is a standard query with one question. `qtype` is the question's
/// type. The answer and authority sections must be empty, except for the SOA in the authority
/// section of an IXFR query.
#[inline(always)]
fn is_query(header: &Header, qtype: u16) -> bool {
    let is_counted =
        header.has_counts(QUERY_COUNTS) || qtype == rtype::IXFR && header.has_counts(IXFR_COUNTS);
    header.opcode_bits() == 0 && is_counted
}

/// Looks for an OPT record after the question, and determines the maximum length of the reply. Also
/// returns whether a record that was parsed in this search is malformed.
#[inline(always)]
fn read_rest(
    message: &[u8],
    header: &Header,
    question: RawQuestion,
    transport: Transport,
) -> (Query, bool) {
    let [.., ns, additional] = header.counts();
    let edns = if additional == 0 {
        Ok(None)
    } else {
        // The authority section precedes the additional section, so its records are parsed too.
        // Only an IXFR query has such records.
        edns::parse(message, question.end, additional.saturating_add(ns))
    };
    let limit = match (transport, &edns) {
        (Transport::Tcp, _) => MAX_TCP_MESSAGE,
        (Transport::Udp { link }, Ok(Some(edns))) => edns.udp_limit().min(link),
        (Transport::Udp { link }, _) => MIN_UDP_MESSAGE.min(link),
    };
    let is_malformed = edns.is_err();
    let query = Query {
        flags: header.flags,
        question,
        has_others: additional > u16::from(matches!(edns, Ok(Some(_)))),
        edns: edns.unwrap_or_else(|_| {
            edns::of_malformed(message, question.end, additional.saturating_add(ns))
        }),
        limit,
        over_tcp: transport == Transport::Tcp,
    };
    (query, is_malformed)
}

/// Writes the question to `out`. `qname` is the decompressed qname.
fn write_question(out: &mut [u8], question: &RawQuestion, qname: &[u8]) {
    let (name, rest) = out.split_at_mut(question.name_len);
    name.copy_from_slice(qname);
    rest[..2].copy_from_slice(&question.qtype.to_be_bytes());
    rest[2..4].copy_from_slice(&question.qclass.to_be_bytes());
}

/// Returns the response code if the query must be answered without a lookup and without records.
/// Otherwise, returns `None`.
#[inline(always)]
fn refusal(query: &Query, malformed: bool) -> Option<u16> {
    if malformed {
        return Some(rcode::FORMERR);
    }
    if query.edns.is_some_and(|edns| edns.version != edns::VERSION) {
        return Some(rcode::BADVERS);
    }
    let RawQuestion { qtype, qclass, .. } = query.question;
    let is_ours = qclass == CLASS_IN || qclass == CLASS_ANY;
    // Allowed transfers do not come here. Others are refused (RFC 5936, section 2.2.1).
    let is_transfer = qtype == rtype::AXFR || qtype == rtype::IXFR;
    (!is_ours || is_transfer).then_some(rcode::REFUSED)
}

/// Builds the body for a response code of [`refusal`]. Queries in class CHAOS get what `identity`
/// says instead, if it says anything.
#[cold]
#[inline(never)]
fn without_lookup<'a>(
    rcode: u16,
    question: &RawQuestion,
    name: &[u8],
    identity: &'a Identity,
) -> Body<'a> {
    let is_chaos = question.qclass == CLASS_CHAOS && rcode == rcode::REFUSED;
    let body = is_chaos.then(|| identity.chaos(name, question.qtype));
    let reason = match question.qtype {
        rtype::AXFR | rtype::IXFR if question.qclass == CLASS_IN => ExtendedError::Prohibited,
        _ => ExtendedError::NotSupported,
    };
    body.flatten().unwrap_or(Body {
        error: (rcode == rcode::REFUSED).then_some(reason),
        ..Body::empty(rcode)
    })
}

/// Builds the reply from the part of `body` that fits the maximum length. `zone` is the zone of the
/// query's name, and `limits` are those of the query. Also returns the header fields.
#[inline(always)]
fn fit<'a>(
    query: &Query,
    limits: &Limits,
    zone: ZoneNumber,
    body: &Body<'a>,
    trail: Tail<'a>,
    counters: &mut Counters,
) -> (Reply<'a>, Fields) {
    let head_len = HEADER_LEN + query.question.name_len + QUESTION_REST;
    let room = query.limit.saturating_sub(head_len + trail.bytes.len());
    let mut reply = Reply {
        head_len,
        rewritten: None,
        tail: body.tail,
        trail,
        prepared: body.prepared.map(|at| AnswerId { zone, at }),
        has_valid_cookie: false,
    };
    let [a, b, c, d, e, f] = body.counts;
    let mut counts = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
    let mut flags = QR | query.flags & RD | body.rcode & 15;
    // An answer for class ANY is never authoritative (RFC 1035, section 6.2).
    if body.authoritative && query.question.qclass != CLASS_ANY {
        flags |= AA;
    }
    if body.tail.bytes.len() > room {
        reply.prepared = None;
        let has_edns = !trail.bytes.is_empty();
        let is_cut_for_network = has_edns && limits.is_of_network(query.limit);
        counters.cut_for_network += u64::from(is_cut_for_network);
        match body.required {
            Some((tail, additional)) if tail.bytes.len() <= room => {
                reply.tail = tail;
                counts[2] = additional;
            }
            // A truncated reply carries no records except OPT, because the client should ignore it
            // and ask again over TCP (RFC 2181, section 9).
            _ => {
                reply.tail = Tail::EMPTY;
                counts = [0; 3];
                flags |= TC;
                counters.truncated += 1;
            }
        }
    }
    if !trail.bytes.is_empty() {
        counts[2] += 1;
    }
    counters.replies[usize::from(body.rcode)] += 1;
    let ([a, b], [[c, d], [e, f], [g, h]]) = (flags.to_be_bytes(), counts.map(u16::to_be_bytes));
    (reply, [a, b, 0, 1, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests;
