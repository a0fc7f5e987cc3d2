//! DNS over UDP. There are three modes of sending replies.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashMap;
use nmio::{Instant, Port};
use udpip::{AnswerCopies, Datagram, Service};

use crate::answers::{AnswerId, Answers};
use crate::counters::Counters;
use crate::hashed_question::HashedQuestion;
use crate::hook::{Hook, HookContext, NoHook};
use crate::identity::Identity;
use crate::query_log::QueryLogger;
use crate::respond::{Responder, Transport};

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
}

/// The resident packets of each answer.
pub(crate) type Residents = HashMap<AnswerId, AnswerCopies, RandomState>;

fn no_copies() -> Residents {
    // Fixed seeds are safe. The keys are positions of answers, so clients cannot choose them to
    // cause collisions.
    HashMap::with_hasher(RandomState::with_seeds(1, 2, 3, 4))
}

impl Dns {
    /// Creates a service that replies from `answers` in the given mode.
    pub fn new(answers: Arc<Answers>, mode: ReplyMode) -> Self {
        Self {
            mode,
            responder: Responder::new(answers),
            copies: no_copies(),
            query_log: None,
        }
    }

    /// Sets what the server says about itself.
    pub fn set_identity(&mut self, identity: Arc<Identity>) {
        self.responder.set_identity(identity);
    }

    /// Logs queries through `logger`, if there is one.
    pub(crate) fn set_query_log(&mut self, logger: Option<QueryLogger>) {
        self.query_log = logger;
    }

    /// Returns the end of the query log, if there is one.
    pub(crate) fn query_log(&self) -> Option<&QueryLogger> {
        self.query_log.as_ref()
    }

    /// Returns the prepared answers.
    pub fn answers(&self) -> &Arc<Answers> {
        self.responder.answers()
    }

    /// Replies from other answers. Returns the resident packets of the old ones, which free their
    /// memory when they are dropped.
    pub(crate) fn set_answers(&mut self, answers: Arc<Answers>) -> Residents {
        self.responder.set_answers(answers);
        std::mem::replace(&mut self.copies, no_copies())
    }

    /// Returns the mode in which replies are sent.
    pub fn mode(&self) -> ReplyMode {
        self.mode
    }

    /// Returns the counters of queries over UDP.
    pub fn counters(&self) -> &Counters {
        self.responder.counters()
    }

    /// Returns the label of each zone group with the number of its replies.
    pub(crate) fn by_group(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.responder.by_group()
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
        let link = datagram.max_reply();
        let transport = Transport::Udp { link };
        let (message, peer) = datagram.payload_and_peer();
        let context = HookContext {
            hook,
            peer,
            over_tcp: false,
            now,
        };
        let responder = &mut self.responder;
        let Some(reply) = responder.respond_to(message, transport, parsed, context) else {
            return;
        };
        if let Some(head) = reply.rewritten {
            if head.len() > link {
                return;
            }
            datagram.extend_payload(head.len());
            datagram.payload_mut()[..head.len()].copy_from_slice(head);
        }
        let (head_len, tail, trail) = (reply.head_len, reply.tail, reply.trail);
        if let Some(log) = &mut self.query_log {
            let head = datagram.payload().get(..head_len).unwrap_or_default();
            log.log(datagram.peer(), head, tail.bytes.len(), trail);
        }
        // The result is ignored, because the UDP layer counts failures.
        let _ = match (self.mode, reply.prepared) {
            (ReplyMode::Turnaround, _) => datagram.turn_around(head_len, tail, trail),
            (ReplyMode::PreCopy, Some(id)) => {
                if let Some(copies) = self.copies.get_mut(&id) {
                    datagram.send_resident(head_len, copies, tail, trail)
                } else if datagram.residents_left() > 0 {
                    let copies = self.copies.entry(id).or_default();
                    datagram.send_resident(head_len, copies, tail, trail)
                } else {
                    datagram.send_copy(head_len, tail, trail)
                }
            }
            (ReplyMode::MemCopy | ReplyMode::PreCopy, _) => {
                datagram.send_copy(head_len, tail, trail)
            }
        };
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
