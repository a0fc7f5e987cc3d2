//! DNS over TCP (RFC 7766): messages behind two bytes that tell their length.
//!
//! A client may send many queries before it reads a reply; they are answered
//! in their order. What a client has sent in part waits in the connection's
//! receive buffer. By default the stack closes a connection that is silent for
//! [`IDLE_TIMEOUT`], or that takes as long for one query.

use std::sync::Arc;
use std::time::Duration;

use control::ConnectionArgs;
use tcpip::{
    Application, Config, CongestionControl, Connection, Connections, Deadline, WriteError,
};

use crate::answers::Answers;
use crate::counters::Counters;
use crate::hook::{Asking, Hook, NoHook};
use crate::respond::{Responder, Transport};
use crate::tail::MAX_TCP_MESSAGE;

/// A connection without a query for so long is closed (RFC 7766, section
/// 6.2.3: "on the order of a few seconds").
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time.
pub const MAX_CONNECTIONS: u32 = 16_384;
/// Bytes of the longest query over TCP, its length included: what a
/// connection's receive buffer holds. Queries with one question are never
/// nearly so long.
pub const MAX_TCP_QUERY: usize = 16_384;
/// Bytes of the length in front of a message.
const LENGTH: usize = 2;

/// How DNS is served over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSettings {
    /// The stack's settings. Its ports are given to the server.
    pub stack: Config,
    /// A connection is closed when a query has not arrived whole in this time
    /// from its first byte on.
    pub request_timeout: Duration,
}

impl TcpSettings {
    /// The defaults, with what is asked for in their place.
    pub fn asked(connections: &ConnectionArgs) -> Self {
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

/// The DNS service on TCP.
#[derive(Debug)]
pub struct DnsOverTcp<H = NoHook> {
    responder: Responder,
    hook: H,
    /// A copy of the query: its reply's head is written over it.
    query: Box<[u8]>,
    reply: Vec<u8>,
    too_long: u64,
    request_timeout: Duration,
}

impl DnsOverTcp {
    /// Answers from `answers`. A query must arrive in `request_timeout` from its
    /// first byte on.
    pub fn new(answers: Arc<Answers>, request_timeout: Duration) -> Self {
        Self::with_hook(answers, request_timeout, NoHook)
    }
}

impl<H: Hook> DnsOverTcp<H> {
    /// The same with a hook.
    pub fn with_hook(answers: Arc<Answers>, request_timeout: Duration, hook: H) -> Self {
        Self {
            responder: Responder::new(answers),
            hook,
            query: vec![0; MAX_TCP_QUERY].into_boxed_slice(),
            reply: Vec::with_capacity(LENGTH + MAX_TCP_MESSAGE),
            too_long: 0,
            request_timeout,
        }
    }

    /// What has been answered over TCP.
    pub fn counters(&self) -> &Counters {
        self.responder.counters()
    }

    /// Connections closed for a query longer than [`MAX_TCP_QUERY`].
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// The hook.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// The hook, for queries over UDP, and to be told of time.
    pub(crate) fn hook_mut(&mut self) -> &mut H {
        &mut self.hook
    }

    /// Makes the reply to one message, its length in front; `false` when it
    /// gets none.
    fn answer(&mut self, message: &[u8], conn: &Connection<'_, ()>) -> bool {
        let query = &mut self.query[..message.len()];
        query.copy_from_slice(message);
        let asking = Asking {
            hook: &mut self.hook,
            peer: || conn.peer(),
            over_tcp: true,
            now: conn.now(),
        };
        let responder = &mut self.responder;
        let Some(reply) = responder.respond_to(query, Transport::Tcp, None, asking) else {
            return false;
        };
        let head = reply.rewritten.unwrap_or(&query[..reply.head_len]);
        self.reply.clear();
        self.reply.extend((reply.len() as u16).to_be_bytes());
        self.reply.extend_from_slice(head);
        self.reply.extend_from_slice(reply.tail.bytes);
        self.reply.extend_from_slice(reply.trail);
        true
    }
}

impl<H: Hook> Application for DnsOverTcp<H> {
    type State = ();
    type Message = H::Message;

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(&[high, low]) = data[consumed..].first_chunk() {
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
            if !self.answer(message, conn) {
                // No DNS query, or none that the hook replies to. The client still gets the replies to the
                // queries before it: a reset could destroy them on the way.
                conn.close();
                return data.len();
            }
            match conn.write_bytes(&self.reply) {
                Ok(()) => consumed += LENGTH + len,
                // It is offered again when there is room.
                Err(WriteError::Full) => {
                    self.responder.uncount(before);
                    return consumed;
                }
                Err(_) => return data.len(),
            }
        }
        if consumed < data.len() && conn.deadline().is_none() {
            conn.set_deadline(Deadline::Request, self.request_timeout);
        }
        consumed
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, (), C>,
        message: H::Message,
    ) {
        self.hook.on_message(message, connections.now());
    }
}
