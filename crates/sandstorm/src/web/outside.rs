//! Access to all clients of a worker, for callbacks that do not belong to a single request.

use std::time::Duration;

use tcpip::{CongestionControl, Connections, Timer};

use super::conversation::Conversation;
use super::core::Core;
use super::writing::Continuation;
use crate::app::Clients;
use crate::exchange::{Exchange, Ticket};
use crate::login::Login;
use crate::pending::Phase;
use crate::prepared::Replies;
use crate::request::Request;
use crate::verdict::Verdict;

/// All clients of a worker.
pub(super) struct AllClients<'a, 'c, S, C> {
    core: &'a mut Core,
    connections: &'a mut Connections<'c, Conversation<S>, C>,
}

impl<'a, 'c, S, C> AllClients<'a, 'c, S, C> {
    pub(super) fn new(
        core: &'a mut Core,
        connections: &'a mut Connections<'c, Conversation<S>, C>,
    ) -> Self {
        Self { core, connections }
    }
}

impl<S: Default, C: CongestionControl> Clients<S> for AllClients<'_, '_, S, C> {
    fn answer(
        &mut self,
        ticket: Ticket,
        answer: impl FnOnce(&Request<'_>, &mut Exchange<'_, S>) -> Verdict,
    ) -> bool {
        let Some(mut conn) = self.connections.get(ticket.connection) else {
            return false;
        };
        let Conversation { place, login, .. } = *conn.state();
        // The application has left a request to the site whose credentials are checked.
        let is_checked = matches!(login, Login::Waits(_));
        let is_read = match self.core.pending.phase(place) {
            Some(Phase::Answer { serial, close, .. })
                if *serial == ticket.serial && !is_checked =>
            {
                !*close
            }
            Some(Phase::Evicted(_)) => {
                self.core.fail_pending(&mut conn);
                return false;
            }
            _ => return false,
        };
        let serial = ticket.serial;
        let core = &mut *self.core;
        let continuation =
            core.answer_pending(&mut conn, place, is_read, |core, conn, request, bytes| {
                let verdict = core.exchange_of(conn, serial, |exchange| answer(request, exchange));
                core.answer(conn, request, bytes, verdict)
            });
        match continuation {
            Continuation::ReadNext => conn.offer_again(),
            Continuation::Stream => core.resumed.push(ticket.connection),
            _ => {}
        }
        true
    }

    fn resume(&mut self, ticket: Ticket) -> bool {
        let Some(mut conn) = self.connections.get(ticket.connection) else {
            return false;
        };
        let stream = match self.core.pending.phase(conn.state().place) {
            Some(Phase::Stream(stream)) => stream,
            Some(Phase::Room(outgoing)) => match &mut outgoing.stream {
                Some(stream) => stream,
                None => return false,
            },
            _ => return false,
        };
        if stream.serial != ticket.serial {
            return false;
        }
        stream.waits = false;
        self.core.resumed.push(ticket.connection);
        true
    }

    fn replies(&mut self) -> Replies<'_> {
        Replies::new(self.connections.contents_mut(), self.core.site.fields())
    }

    fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.connections.set_timer(timer, after);
    }
}
