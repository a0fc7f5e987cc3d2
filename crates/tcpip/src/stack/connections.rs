//! Lets an application access any of its connections, outside their own callbacks.

use std::sync::Arc;
use std::time::Duration;

use nmio::Instant;

use super::{Accessed, Connection, ConnectionId, Connections, Timer};
use crate::congestion::CongestionControl;
use crate::connection::State;
use crate::connection::conn::Conn;
use crate::content::Contents;

impl<S, C: CongestionControl> Connections<'_, S, C> {
    /// Returns the connection with this [id](Connection::id), or `None` if it has ended. A
    /// connection counts as ended as soon as
    /// [`Application::on_close`](crate::Application::on_close) is called. Data written to the
    /// connection is sent when the current callback returns.
    pub fn get(&mut self, id: ConnectionId) -> Option<Connection<'_, S>> {
        let ConnectionId { index, serial } = id;
        let housekeeping = self.table.housekeeping.get_mut(index as usize)?;
        if housekeeping.serial != serial {
            return None;
        }
        let record = &mut self.table.records[index as usize];
        let is_ours = !matches!(
            record.tcb.state,
            State::Closed | State::SynReceived | State::TimeWait
        );
        if !is_ours {
            return None;
        }
        if housekeeping.accessed == Accessed::No {
            housekeeping.offers_again = false;
            housekeeping.accessed = if record.tcb.stream.is_empty() {
                Accessed::Idle
            } else {
                Accessed::Busy
            };
            self.requests.accessed.push(index);
        }
        let send_info = Conn::new(record, self.cx).send_info();
        Some(Connection {
            tcb: &mut record.tcb,
            state: &mut self.table.states[index as usize],
            sources: self.sources,
            peers: &mut self.cx.peers,
            lists: &mut self.cx.lists,
            housekeeping,
            requests: self.requests,
            id: index,
            now: self.now,
            send_info,
        })
    }

    /// Calls `act` with every connection that [`get`](Self::get) would return, in no particular
    /// order.
    pub fn for_each(&mut self, mut act: impl FnMut(Connection<'_, S>)) {
        for index in 0..self.table.len() {
            if let Some(connection) = self.get(self.table.id(index)) {
                act(connection);
            }
        }
    }

    /// Answers a [parked](Connection::park) connection: writes `bytes` with
    /// [`Connection::write_once`] and [resumes](Connection::resume) the connection. If the write
    /// fails, resets the connection. Does nothing if the connection has ended.
    pub fn answer(&mut self, id: ConnectionId, bytes: Arc<[u8]>) {
        if let Some(mut conn) = self.get(id) {
            conn.write_once(bytes).unwrap_or_else(|_| conn.abort());
            conn.resume();
        }
    }

    /// Returns the contents mutably, so that the application can add or remove content items.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.sources.contents
    }

    /// Starts a timer: [`Application::on_timer`](crate::Application::on_timer) is called once, when
    /// the time `after` has passed. If the timer is already running, the new time replaces the old
    /// one.
    pub fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.requests.timers.set(timer.number(), self.now + after);
    }

    /// Stops the timer if it is running.
    pub fn clear_timer(&mut self, timer: Timer) {
        self.requests.timers.clear(timer.number());
    }

    /// Returns the time of the current callback.
    pub fn now(&self) -> Instant {
        self.now
    }
}
