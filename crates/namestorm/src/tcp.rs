//! DNS over TCP (RFC 7766). Each message is preceded by a two-byte field with its length.
//!
//! A client may pipeline queries: send many of them before it reads a reply. Queries are answered
//! in order. An incomplete query stays in the connection's receive buffer. The stack closes a
//! connection that is idle for too long, or on which a query is still incomplete too long after its
//! first byte. The default for both times is [`IDLE_TIMEOUT`].
//!
//! A query for a zone transfer gets many messages. They are written as the client acknowledges them.
//! Queries behind it wait until the last message is written.

use std::sync::Arc;
use std::time::Duration;

use control::ConnectionArgs;
use tcpip::{
    Application, Config, CongestionControl, Connection, Connections, Deadline, WriteError,
};

use crate::answers::Answers;
use crate::counters::Counters;
use crate::groups::{ReplyCount, TransferCounts};
use crate::hook::{Hook, HookContext, NoHook};
use crate::query_log::QueryLogger;
use crate::respond::{Parts, Reply, Responder, TransferReply, Transport, asks_for_transfer};
use crate::tail::MAX_TCP_MESSAGE;
use crate::transfer::{LENGTH, Transfer, TransferClients, set_length};
use crate::tsig::{Signer, TsigKeys, Verdict, may_be_signed};
use crate::udp_size::UdpSizes;

/// The default for three times: how long a connection may be idle, how long a query may be
/// incomplete, and [`Config::fin_wait`]. RFC 7766, section 6.2.3, suggests an idle period "on the
/// order of a few seconds".
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Default maximum number of concurrent connections per worker.
pub const MAX_CONNECTIONS: u32 = 16_384;
/// Maximum length of a query over TCP, in bytes, including its length field. This is also the
/// default size of a connection's receive buffer. Real queries are far shorter, because they have
/// only one question.
pub const MAX_TCP_QUERY: usize = 16_384;
/// No more of a transfer is written while the client has this many bytes to acknowledge. It bounds the
/// memory that a transfer takes, and the time until other clients are served.
const MAX_IN_FLIGHT: u32 = 192 << 10;

/// Settings for DNS over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// Settings of the TCP stack. The server replaces the ports in these settings by its own port.
    pub stack: Config,
    /// The time within which a query must be complete after its first byte. If it is not, the
    /// connection is closed.
    pub request_timeout: Duration,
}

impl TcpSettings {
    /// Returns the default settings, overridden by the options on the command line.
    pub fn from_args(connections: &ConnectionArgs) -> Self {
        let defaults = Self::default();
        Self {
            stack: connections.config(defaults.stack),
            request_timeout: connections.request_timeout(defaults.request_timeout),
        }
    }
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            stack: Config {
                max_connections: MAX_CONNECTIONS,
                recv_buffer: MAX_TCP_QUERY,
                idle_timeout: IDLE_TIMEOUT,
                fin_wait: IDLE_TIMEOUT,
                ..Config::default()
            },
            request_timeout: IDLE_TIMEOUT,
        }
    }
}

/// The state of a connection: the transfer in progress, if there is one.
type State = Option<Box<Transfer>>;

/// The DNS service for TCP.
#[derive(Debug)]
pub struct DnsOverTcp<H = NoHook> {
    responder: Responder,
    hook: H,
    /// A copy of the query. The head of the reply overwrites its start.
    query: Box<[u8]>,
    reply: Vec<u8>,
    too_long: u64,
    request_timeout: Duration,
    query_log: Option<QueryLogger>,
    /// The largest UDP message for each client, which OPT records advertise over TCP too.
    udp_sizes: Arc<UdpSizes>,
    transfer_clients: TransferClients,
    keys: Arc<TsigKeys>,
    signer: Box<Signer>,
    /// Completed transfers.
    transfers: Box<TransferCounts>,
}

impl DnsOverTcp {
    /// Creates a service that replies from `answers`. A query must be complete within
    /// `request_timeout` after its first byte.
    pub fn new(answers: Arc<Answers>, request_timeout: Duration) -> Self {
        Self::with_hook(answers, request_timeout, NoHook)
    }
}

impl<H: Hook> DnsOverTcp<H> {
    /// Like [`DnsOverTcp::new`], with a hook.
    pub fn with_hook(answers: Arc<Answers>, request_timeout: Duration, hook: H) -> Self {
        Self {
            responder: Responder::new(answers),
            hook,
            query: vec![0; MAX_TCP_QUERY].into_boxed_slice(),
            reply: Vec::with_capacity(LENGTH + MAX_TCP_MESSAGE),
            too_long: 0,
            request_timeout,
            query_log: None,
            udp_sizes: Arc::default(),
            transfer_clients: TransferClients::default(),
            keys: Arc::default(),
            signer: Box::new(Signer::new()),
            transfers: Box::new(TransferCounts::new()),
        }
    }

    /// Returns the responder, for settings that do not depend on the transport.
    pub(crate) fn responder_mut(&mut self) -> &mut Responder {
        &mut self.responder
    }

    /// Tells each client the largest message that it gets over UDP.
    pub(crate) fn set_udp_sizes(&mut self, sizes: &Arc<UdpSizes>) {
        self.udp_sizes = Arc::clone(sizes);
    }

    /// Sends zones to these clients, if they ask. The records of the zones must be
    /// [kept](crate::Zones::keep_records).
    pub fn set_transfer_clients(&mut self, clients: TransferClients) {
        self.transfer_clients = clients;
    }

    /// Verifies the signatures of queries with these keys.
    pub fn set_tsig_keys(&mut self, keys: Arc<TsigKeys>) {
        self.keys = keys;
    }

    /// Returns the number of zone transfers whose last message was written.
    pub fn transfers(&self) -> u64 {
        self.transfers.total()
    }

    /// Returns the label of each zone group with the number of completed transfers.
    pub(crate) fn transfers_by_group(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.transfers
            .by_label(self.responder.answers().group_labels())
    }

    /// Tells clients how long a connection may be idle, if they ask (RFC 7828).
    pub(crate) fn set_idle_timeout(&mut self, timeout: Duration) {
        self.responder.set_idle_timeout(timeout);
    }

    /// Logs queries through `logger`, if there is one.
    pub(crate) fn set_query_log(&mut self, logger: Option<QueryLogger>) {
        self.query_log = logger;
    }

    /// Returns the end of the query log, if there is one.
    pub(crate) fn query_log(&self) -> Option<&QueryLogger> {
        self.query_log.as_ref()
    }

    /// Replies from other answers. The counters go on.
    pub(crate) fn set_answers(&mut self, answers: Arc<Answers>) {
        self.responder.set_answers(answers);
    }

    /// Returns the counters of queries over TCP.
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

    /// Returns the number of connections closed because of a query longer than [`MAX_TCP_QUERY`].
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns the hook.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// Returns the hook, for queries over UDP and for timers.
    pub(crate) fn hook_mut(&mut self) -> &mut H {
        &mut self.hook
    }

    /// Builds the reply to the first `len` bytes of `self.query` in `self.reply`, with its length field.
    /// Returns the lengths of the reply's parts, or `None` if the message receives no reply.
    fn answer(&mut self, len: usize, conn: &Connection<'_, State>) -> Option<Parts> {
        let query = &mut self.query[..len];
        let context = HookContext {
            hook: &mut self.hook,
            peer: || conn.peer(),
            over_tcp: true,
            now: conn.now(),
        };
        let responder = &mut self.responder;
        responder.set_udp_size(self.udp_sizes.of(conn.peer().ip()));
        let reply = responder.respond_to::<H, true>(query, Transport::Tcp, None, context)?;
        Some(compose(&mut self.reply, query, &reply))
    }

    /// Like [`answer`](Self::answer), for a message that asks for a transfer. If the client gets one, its
    /// first messages are in `self.reply`. Returns `None` if the message must be answered like any other.
    /// `is_signed` is whether the signer has verified its signature.
    #[cold]
    #[inline(never)]
    fn answer_transfer(
        &mut self,
        len: usize,
        is_signed: bool,
        conn: &Connection<'_, State>,
    ) -> Option<(Parts, State)> {
        let client = conn.peer().ip();
        let key = self.signer.key().filter(|_| is_signed);
        if !self.transfer_clients.contains(client, key) {
            return None;
        }
        let query = &mut self.query[..len];
        self.responder.set_udp_size(self.udp_sizes.of(client));
        match self.responder.respond_to_transfer(query, client)? {
            TransferReply::Error(reply) => Some((compose(&mut self.reply, query, &reply), None)),
            TransferReply::Transfer(mut transfer) => {
                if is_signed {
                    transfer.sign(&self.signer);
                }
                self.reply.clear();
                transfer.fill(&mut self.reply);
                let [head, opt, signature] = transfer.ends();
                let tail = first_message(&self.reply).len() - head - opt - signature;
                Some((Parts { head, tail, opt }, Some(transfer)))
            }
        }
    }

    /// Builds the reply to one message as [`answer`](Self::answer) does. Also returns the transfer that it
    /// begins, if there is one.
    #[inline(always)]
    fn answer_any(
        &mut self,
        message: &[u8],
        conn: &Connection<'_, State>,
    ) -> Option<(Parts, State)> {
        let len = message.len();
        let query = &mut self.query[..len];
        query.copy_from_slice(message);
        if may_be_signed(message)
            && let Some(signature) = self.signer.receive(&self.keys, query)
        {
            return self.answer_signed(signature, conn);
        }
        self.answer_valid(len, false, conn)
    }

    /// Like [`answer`](Self::answer). Also returns the transfer that the message begins, if there is one.
    /// `is_signed` is whether the signer has verified a signature of the message.
    #[inline(always)]
    fn answer_valid(
        &mut self,
        len: usize,
        is_signed: bool,
        conn: &Connection<'_, State>,
    ) -> Option<(Parts, State)> {
        if asks_for_transfer(&self.query[..len])
            && let Some(answered) = self.answer_transfer(len, is_signed, conn)
        {
            return Some(answered);
        }
        Some((self.answer(len, conn)?, None))
    }

    /// Builds the reply to a message with a signature, which was taken off: the message in `self.query` now
    /// has this length.
    #[cold]
    #[inline(never)]
    fn answer_signed(
        &mut self,
        (len, verdict): (usize, Verdict),
        conn: &Connection<'_, State>,
    ) -> Option<(Parts, State)> {
        let is_valid = verdict == Verdict::Valid;
        self.responder.begin_signed(is_valid, self.signer.room());
        let answered = match verdict {
            Verdict::Valid => self.answer_valid(len, true, conn),
            Verdict::Refused(rcode) => self.answer_unverified(len, rcode, conn),
        };
        self.responder.end_signed();
        // The messages of a transfer are signed as they are written.
        if let Some((_, None)) = answered {
            self.signer.sign(&mut self.reply, LENGTH);
            set_length(&mut self.reply, 0);
        }
        answered
    }

    /// Like [`answer`](Self::answer), for a message whose signature is wrong.
    fn answer_unverified(
        &mut self,
        len: usize,
        rcode: u16,
        conn: &Connection<'_, State>,
    ) -> Option<(Parts, State)> {
        let (query, peer) = (&mut self.query[..len], conn.peer());
        self.responder.set_udp_size(self.udp_sizes.of(peer.ip()));
        let responder = &mut self.responder;
        let reply = responder.respond_unverified(query, Transport::Tcp, peer, rcode)?;
        Some((compose(&mut self.reply, query, &reply), None))
    }

    /// Writes messages of the connection's transfer, if there is one, while there is room. Returns false
    /// if the transfer must go on later.
    #[inline(always)]
    fn go_on(&mut self, conn: &mut Connection<'_, State>) -> bool {
        conn.state().is_none() || self.transfer(conn)
    }

    #[cold]
    fn transfer(&mut self, conn: &mut Connection<'_, State>) -> bool {
        let Some(mut transfer) = conn.state().take() else {
            return true;
        };
        while !transfer.is_finished() {
            let info = conn.info();
            if info.unacked + info.unsent >= MAX_IN_FLIGHT {
                conn.notify_of_room();
                break;
            }
            match conn.write_with(|buffer| transfer.fill(buffer)) {
                Ok(()) => {}
                // The stack calls `on_sent` when there is room.
                Err(WriteError::Full) => break,
                Err(_) => return true,
            }
        }
        if !transfer.is_finished() {
            *conn.state() = Some(transfer);
            return false;
        }
        if let Some(group) = transfer.group() {
            self.transfers.count(group);
            let answers = self.responder.answers();
            // A reload may have given the zone another number.
            if let Some(number) = answers.number_of(transfer.zone()) {
                answers.zone_counts().add_transfer(number);
            }
        }
        true
    }

    /// Logs a query, and the reply in `self.reply` unless `parts` is `None`. Called when the reply has been
    /// written, because a query whose reply has to wait is answered again.
    fn log(&mut self, message: &[u8], parts: Option<Parts>, conn: &Connection<'_, State>) {
        let Some(log) = &mut self.query_log else {
            return;
        };
        let ends = [conn.peer(), conn.local()];
        log.on_query(ends, message, conn.now());
        if let Some(parts) = parts {
            log.on_reply(ends, parts.split(first_message(&self.reply)));
        }
    }
}

/// Returns the first of messages with length fields.
fn first_message(messages: &[u8]) -> &[u8] {
    let (len, messages) = messages.split_first_chunk().unwrap_or((&[0; LENGTH], &[]));
    messages
        .get(..u16::from_be_bytes(*len).into())
        .unwrap_or_default()
}

/// Builds a message in `out` from the parts of a reply, with its length field. `query` is the message
/// whose start the head may have been written over.
fn compose(out: &mut Vec<u8>, query: &[u8], reply: &Reply<'_>) -> Parts {
    out.clear();
    out.extend((reply.len() as u16).to_be_bytes());
    reply.append_to(query, out)
}

impl<H: Hook> Application for DnsOverTcp<H> {
    type State = State;
    type Message = H::Message;

    fn on_receive(&mut self, conn: &mut Connection<'_, State>, data: &[u8]) -> usize {
        let mut consumed = 0;
        while self.go_on(conn)
            && let Some(&[high, low]) = data[consumed..].first_chunk()
        {
            let len = usize::from(u16::from_be_bytes([high, low]));
            if LENGTH + len > MAX_TCP_QUERY {
                self.too_long += 1;
                conn.close();
                return data.len();
            }
            let Some(message) = data[consumed + LENGTH..].get(..len) else {
                break;
            };
            conn.clear_deadline();
            let before = *self.counters();
            let Some((parts, transfer)) = self.answer_any(message, conn) else {
                self.log(message, None, conn);
                // The message is not a query, or the hook does not reply. Close gracefully, because
                // a reset could destroy earlier replies that the client has not read yet.
                conn.close();
                return data.len();
            };
            match conn.write_bytes(&self.reply) {
                Ok(()) => {
                    self.log(message, Some(parts), conn);
                    *conn.state() = transfer;
                    consumed += LENGTH + len;
                }
                // The stack offers the data again when there is room to send. The query will then
                // be answered again, so it must be neither counted nor logged now.
                Err(WriteError::Full) => {
                    self.responder.uncount(&before);
                    return consumed;
                }
                Err(_) => {
                    self.log(message, None, conn);
                    return data.len();
                }
            }
        }
        let is_incomplete = consumed < data.len() && conn.state().is_none();
        if is_incomplete && conn.deadline().is_none() {
            conn.set_deadline(Deadline::Request, self.request_timeout);
        }
        consumed
    }

    /// Continues a transfer. The stack then offers the queries that have waited behind it.
    fn on_sent(&mut self, conn: &mut Connection<'_, State>) {
        self.go_on(conn);
    }

    /// Closes the connection unless a query is incomplete. The FIN follows the replies. A transfer in
    /// progress waits for room, so its connection does not come here.
    fn on_drain(&mut self, conn: &mut Connection<'_, State>) {
        if conn.is_between_messages() {
            conn.close();
        }
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, State, C>,
        message: H::Message,
    ) {
        self.hook.on_message(message, connections.now());
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
