//! DNS over UDP. There are three modes of sending replies.

use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use hashbrown::HashTable;
use nmio::{Instant, Port};
use udpip::{Answer, AnswerCopies, Datagram, Service, Tail};

use crate::answers::{AnswerId, Answers};
use crate::counters::Counters;
use crate::groups::ReplyCount;
use crate::hashed_question::HashedQuestion;
use crate::hook::{Hook, HookContext, NoHook};
use crate::query::HEADER_LEN;
use crate::query_log::QueryLogger;
use crate::rate_limit::{Excess, Exemption, Proof, RateLimit, RateLimiter};
use crate::respond::{Parts, Reply, Responder, Transport};
use crate::tsig::{MAX_SIGNATURE, Signer, TsigKeys, Verdict, may_be_signed, take_off};
use crate::udp_size::{MAX_UDP_SIZE, UdpSizes};

/// How UDP replies are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Sends a resident packet, which remains in the port's packet memory. The prepared answer in
    /// it need not be copied again. Replies that have no resident packet are sent as with
    /// [`MemCopy`](Self::MemCopy).
    PreCopy,
    /// Copies the whole reply into a free frame.
    MemCopy,
    /// Writes the reply into the query's own frame.
    #[default]
    Turnaround,
}

impl FromStr for ReplyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pre-copy" => Ok(Self::PreCopy),
            "memcopy" => Ok(Self::MemCopy),
            "turnaround" => Ok(Self::Turnaround),
            _ => Err(format!(
                "'{text}' is not a mode: use pre-copy, memcopy or turnaround"
            )),
        }
    }
}

impl fmt::Display for ReplyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PreCopy => "pre-copy",
            Self::MemCopy => "memcopy",
            Self::Turnaround => "turnaround",
        })
    }
}

/// The DNS service for UDP.
#[derive(Debug)]
pub struct Dns {
    mode: ReplyMode,
    responder: Responder,
    /// The resident packets of each answer. The port's memory limits their number.
    copies: Residents,
    query_log: Option<QueryLogger>,
    /// The largest reply for each client, if the sizes differ.
    udp_sizes: Option<Arc<UdpSizes>>,
    /// Whether `note_client` has anything to do: there is a query log, or the sizes differ.
    notes_clients: bool,
    rate_limiter: Option<RateLimiter>,
    keys: Arc<TsigKeys>,
    signing: Box<Signing>,
}

/// What a signed query needs.
#[derive(Debug)]
struct Signing {
    signer: Signer,
    /// The whole reply.
    reply: Vec<u8>,
}

/// The resident packets of each answer.
pub(crate) type Residents = HashTable<(AnswerId, AnswerCopies)>;

impl Dns {
    /// Creates a service that replies from `answers` in the given mode.
    pub fn new(answers: Arc<Answers>, mode: ReplyMode) -> Self {
        Self {
            mode,
            responder: Responder::new(answers),
            copies: Residents::new(),
            query_log: None,
            udp_sizes: None,
            notes_clients: false,
            rate_limiter: None,
            keys: Arc::default(),
            signing: Box::new(Signing {
                signer: Signer::new(),
                reply: Vec::with_capacity(MAX_UDP_SIZE as usize + MAX_SIGNATURE),
            }),
        }
    }

    /// Verifies the signatures of queries with these keys.
    pub fn set_tsig_keys(&mut self, keys: Arc<TsigKeys>) {
        self.keys = keys;
        self.expect_signatures();
    }

    /// Limits the replies to each network. `secret` keys the hashes of networks.
    pub fn set_rate_limit(&mut self, limit: &RateLimit, secret: [u64; 4]) {
        self.rate_limiter = Some(RateLimiter::new(limit, secret));
        self.expect_signatures();
    }

    /// Prepares the rate limit for signatures, if there are keys.
    fn expect_signatures(&mut self) {
        if let Some(limiter) = self.rate_limiter.as_mut()
            && !self.keys.is_empty()
        {
            limiter.expect_signatures();
        }
    }

    /// Limits the length of the replies to each client.
    pub(crate) fn set_udp_sizes(&mut self, sizes: &Arc<UdpSizes>) {
        self.responder.set_udp_size(sizes.others());
        self.udp_sizes = sizes.differ().then(|| Arc::clone(sizes));
        self.notes_clients = self.udp_sizes.is_some() || self.query_log.is_some();
    }

    /// Logs queries through `logger`, if there is one.
    pub(crate) fn set_query_log(&mut self, logger: Option<QueryLogger>) {
        self.query_log = logger;
        self.notes_clients = self.udp_sizes.is_some() || self.query_log.is_some();
    }

    /// Returns the end of the query log, if there is one.
    pub(crate) fn query_log(&self) -> Option<&QueryLogger> {
        self.query_log.as_ref()
    }

    /// Returns the responder, for settings that do not depend on the transport.
    pub(crate) fn responder_mut(&mut self) -> &mut Responder {
        &mut self.responder
    }

    /// Returns the prepared answers.
    pub fn answers(&self) -> &Arc<Answers> {
        self.responder.answers()
    }

    /// Replies from other answers. Returns the resident packets of the old ones, which free their
    /// memory when they are dropped.
    pub(crate) fn set_answers(&mut self, answers: Arc<Answers>) -> Residents {
        self.responder.set_answers(answers);
        mem::take(&mut self.copies)
    }

    /// Returns the mode in which replies are sent.
    pub fn mode(&self) -> ReplyMode {
        self.mode
    }

    /// Returns the counters of queries over UDP.
    pub fn counters(&self) -> &Counters {
        self.responder.counters()
    }

    /// Returns the label of each zone group, and response codes with the numbers of the group's replies.
    pub(crate) fn by_group(&self) -> impl Iterator<Item = ReplyCount> + '_ {
        self.responder.by_group()
    }

    /// Returns the mnemonic of each frequent query type, and response codes with the numbers of replies.
    pub(crate) fn by_type(&self) -> impl Iterator<Item = ReplyCount> + '_ {
        self.responder.by_type()
    }

    /// Answers one query. `parsed` is the query's question, if it has already been parsed.
    #[inline(always)]
    pub(crate) fn answer<P: Port, H: Hook>(
        &mut self,
        mut datagram: Datagram<'_, P>,
        parsed: Option<&mut HashedQuestion>,
        hook: &mut H,
        now: Instant,
    ) {
        if self.notes_clients {
            self.note_client(&datagram, now);
        }
        let link = datagram.max_reply().min(self.responder.udp_size());
        let transport = Transport::Udp { link };
        let mut is_charged = true;
        if let Some(limiter) = &mut self.rate_limiter
            && let client = datagram.peer().ip()
            && !limiter.admits(client, now)
        {
            match self.excess(client, datagram.payload(), now) {
                (Excess::Answered(_), _) => is_charged = false,
                (Excess::Slipped, signed) => return self.slip(datagram, transport, signed),
                (Excess::Dropped, _) => return,
            }
        }
        let (message, peer) = datagram.payload_and_peer();
        let context = HookContext {
            hook: &mut *hook,
            peer,
            over_tcp: false,
            now,
        };
        let responder = &mut self.responder;
        let reply = responder.respond_to::<H, false>(message, transport, parsed, context);
        let Some(reply) = reply else {
            return self.answer_set_aside(datagram, transport, hook, now, is_charged);
        };
        if !place_head(&mut datagram, &reply, &mut self.query_log) {
            return;
        }
        let answer = answer_of(&reply);
        match (self.mode, reply.prepared) {
            (ReplyMode::Turnaround, _) => datagram.turn_around(answer),
            (ReplyMode::PreCopy, Some(id)) => {
                let (hash, is_it) = (id.hash(), |known: &(AnswerId, _)| known.0 == id);
                if let Some((_, copies)) = self.copies.find_mut(hash, is_it) {
                    datagram.send_resident(answer, copies);
                } else if datagram.residents_left() > 0 {
                    let new = (id, AnswerCopies::default());
                    let hash_of = |known: &(AnswerId, _)| known.0.hash();
                    let entry = self.copies.insert_unique(hash, new, hash_of);
                    datagram.send_resident(answer, &mut entry.into_mut().1);
                } else {
                    datagram.send_copy(answer);
                }
            }
            (ReplyMode::MemCopy | ReplyMode::PreCopy, _) => datagram.send_copy(answer),
        }
    }
}

impl Dns {
    /// Logs a query, and chooses the largest reply to its client.
    #[cold]
    #[inline(never)]
    fn note_client<P: Port>(&mut self, datagram: &Datagram<'_, P>, now: Instant) {
        let peer = datagram.peer();
        if let Some(sizes) = &self.udp_sizes {
            self.responder.set_udp_size(sizes.of(peer.ip()));
        }
        if let Some(log) = &mut self.query_log {
            log.on_query([peer, datagram.local()], datagram.payload(), now);
        }
    }

    /// Decides about a query over the rate limit, and counts it unless it gets a short reply. Also returns the
    /// query's length without its signature, if that is valid.
    #[cold]
    #[inline(never)]
    fn excess(&mut self, client: IpAddr, message: &[u8], now: Instant) -> (Excess, Option<usize>) {
        let Self {
            responder,
            rate_limiter,
            keys,
            signing,
            ..
        } = self;
        let Some(limiter) = rate_limiter else {
            return (Excess::Answered(Exemption::Client), None);
        };
        let mut signed = None;
        let excess = limiter.excess(client, now, || {
            if responder.has_valid_cookie(message, client) {
                return Some(Proof::Cookie);
            }
            // Forged queries must not keep a secondary server from its questions.
            if !keys.is_empty()
                && may_be_signed(message)
                && let Some((len, Verdict::Valid)) = signing.signer.check(keys, message)
            {
                signed = Some(len);
            }
            signed.map(|_| Proof::Signature(signing.signer.number()))
        });
        match excess {
            Excess::Answered(exemption) => responder.count_exempt(exemption),
            Excess::Slipped => {}
            Excess::Dropped => responder.count_limited(),
        }
        (excess, signed)
    }

    /// Sends a short reply to a query over the rate limit. `signed` is the query's length without its signature,
    /// if the signer has just found that valid. The reply then has a signature (RFC 8945, section 5.3), which is
    /// no longer than that of the query.
    #[cold]
    #[inline(never)]
    fn slip<P: Port>(
        &mut self,
        mut datagram: Datagram<'_, P>,
        transport: Transport,
        signed: Option<usize>,
    ) {
        let Self {
            responder,
            signing,
            query_log,
            ..
        } = self;
        let (client, message) = (datagram.peer().ip(), datagram.payload_mut());
        if let Some(len) = signed {
            // The names in the query's signature may be compressed.
            if signing.signer.room() > message.len() - len {
                responder.count_limited();
                return;
            }
            take_off(message, len);
            let signature = (len, Verdict::Valid);
            self.answer_signed(datagram, signature, |responder, message| {
                responder.respond_limited(message, transport, client)
            });
        } else if let Some(reply) = responder.respond_limited(message, transport, client) {
            turn_around(datagram, &reply, query_log);
        }
    }

    /// Answers a query that may have a cookie or a signature. Other messages have been dropped, if they
    /// come here. `is_charged` says whether the client's network was charged for the query.
    #[cold]
    #[inline(never)]
    fn answer_set_aside<P: Port, H: Hook>(
        &mut self,
        mut datagram: Datagram<'_, P>,
        transport: Transport,
        hook: &mut H,
        now: Instant,
        is_charged: bool,
    ) {
        if !self.responder.take_set_aside() {
            return;
        }
        let (peer, message) = (datagram.peer(), datagram.payload_mut());
        let context = HookContext {
            hook,
            peer,
            over_tcp: false,
            now,
        };
        let signature = self.signing.signer.receive(&self.keys, message);
        if let Some((len, verdict)) = signature {
            if let Some(limiter) = &mut self.rate_limiter
                && verdict == Verdict::Valid
                && is_charged
            {
                let proof = Proof::Signature(self.signing.signer.number());
                limiter.give_back(peer.ip(), proof, now);
            }
            let signature = (len, verdict);
            return self.answer_signed(datagram, signature, |responder, message| match verdict {
                Verdict::Valid => responder.respond_with_peer(message, transport, context),
                Verdict::Refused(rcode) => {
                    responder.respond_unverified(message, transport, peer, rcode)
                }
            });
        }
        let responder = &mut self.responder;
        let Some(reply) = responder.respond_with_peer(message, transport, context) else {
            return;
        };
        if let Some(limiter) = &mut self.rate_limiter
            && reply.has_valid_cookie
            && is_charged
        {
            limiter.give_back(peer.ip(), Proof::Cookie, now);
        }
        turn_around(datagram, &reply, &mut self.query_log);
    }
}

impl Dns {
    /// Answers a query with what `respond` returns. The query's signature was taken off: the query now has
    /// this length.
    fn answer_signed<P: Port>(
        &mut self,
        mut datagram: Datagram<'_, P>,
        (len, verdict): (usize, Verdict),
        respond: impl for<'r> FnOnce(&'r mut Responder, &mut [u8]) -> Option<Reply<'r>>,
    ) {
        let Self {
            responder,
            signing,
            query_log,
            ..
        } = self;
        let Signing { signer, reply: out } = &mut **signing;
        let message = &mut datagram.payload_mut()[..len];
        responder.begin_signed(verdict == Verdict::Valid, signer.room());
        out.clear();
        let mut parts = Parts::default();
        if let Some(reply) = respond(responder, message) {
            parts = reply.append_to(message, out);
            signer.sign(out, 0);
        }
        responder.end_signed();
        let Some((head, tail)) = out.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        if let Some(log) = query_log {
            log.on_reply([datagram.peer(), datagram.local()], parts.split(out));
        }
        datagram.payload_mut()[..HEADER_LEN].copy_from_slice(head);
        datagram.turn_around(Answer::head(HEADER_LEN).with_tail(Tail::new(tail)));
    }
}

/// Completes the head of a reply in the frame of its query, and logs the reply. Returns false if the
/// head does not fit.
#[inline(always)]
fn place_head<P: Port>(
    datagram: &mut Datagram<'_, P>,
    reply: &Reply<'_>,
    query_log: &mut Option<QueryLogger>,
) -> bool {
    if let Some(head) = reply.rewritten {
        if head.len() > datagram.max_reply() {
            return false;
        }
        datagram.extend_payload(head.len());
        datagram.payload_mut()[..head.len()].copy_from_slice(head);
    }
    if let Some(log) = query_log {
        let head = datagram.payload().get(..reply.head_len).unwrap_or_default();
        let ends = [datagram.peer(), datagram.local()];
        log.on_reply(ends, [head, reply.tail.bytes, reply.trail.bytes, &[]]);
    }
    true
}

/// Logs a reply, and sends it in the frame of its query. Sends nothing if the head does not fit.
fn turn_around<P: Port>(
    mut datagram: Datagram<'_, P>,
    reply: &Reply<'_>,
    query_log: &mut Option<QueryLogger>,
) {
    if place_head(&mut datagram, reply, query_log) {
        datagram.turn_around(answer_of(reply));
    }
}

/// Returns the parts of a reply whose head is in the frame of its query.
#[inline(always)]
fn answer_of<'a>(reply: &Reply<'a>) -> Answer<'a> {
    Answer {
        head_len: reply.head_len,
        tail: reply.tail,
        trail: reply.trail,
    }
}

/// A service that is used alone, without [`DnsOverTcp`](crate::DnsOverTcp), has no hook.
impl Service for Dns {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant) {
        self.answer(datagram, None, &mut NoHook, now);
    }
}
