//! Eviction: the choice of the connection that gives way when a pool of connections, buffers, lists
//! or scoreboards runs short. Usually this is the connection with the largest lag.
//!
//! A connection's *progress* is a virtual clock, which starts at the real time when the connection
//! opens. Each byte that the peer acknowledges or the application consumes moves the clock forward
//! by 1/[`min_rate`](crate::Config::min_rate) seconds. The clock is never more than `CREDIT_MS` ahead
//! of the real time. When the application answers a request while the send stream is empty, a clock
//! that is behind catches up with the real time. A connection's *lag* is how far its clock is behind
//! the real time.
//!
//! A client that reads at the minimum rate or faster does not lag. The lag grows nearly in real time
//! if the client is idle, sends a request byte by byte, or hardly reads its response.

use std::cmp::Reverse;

use arrayvec::ArrayVec;
use nmio::Port;

use super::{CANDIDATES, Refusal, Sampler, Stack};
use crate::clock::Moment;
use crate::congestion::CongestionControl;
use crate::connection::{CloseReason, Flags, State};
use crate::pools::{NONE, Owner, Pool};
use crate::stack::Application;

/// Number of slots of a pool that one decision examines, in addition to the candidates from earlier
/// decisions. The next decision continues with the following slots.
const SAMPLE: usize = 64;
/// An address that holds more than 1/`SHARE` of a pool gives way to addresses that hold less than
/// this share.
const SHARE: u32 = 8;
/// Minimum lag of a connection that gives way, in milliseconds. This minimum keeps active
/// connections from evicting each other. It does not protect connections in TIME-WAIT. Nor does it
/// protect an address that holds more than its share (1/[`SHARE`]) from other addresses.
const MIN_LAG_MS: u32 = 1_000;

/// A connection that asks for a slot of a pool, and its lag in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Asker {
    owner: Owner,
    lag: u32,
}

impl Sampler {
    /// Returns true if an earlier refusal in the same millisecond applies to `asker`.
    fn has_refused(&self, asker: Asker, now: Moment) -> bool {
        self.last_refusal.is_some_and(|refusal| {
            refusal.at == now.millis && refusal.peer == asker.owner.peer && refusal.lag <= asker.lag
        })
    }
}

/// Why a connection may give way. The connection with the greatest reason gives way first, so the
/// variants are in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reason {
    /// Neither `BeyondShare` nor `Closed` applies. The value is the lag in milliseconds.
    Lag(u32),
    /// The client's address holds more than its share of the pool. The value is the lag in
    /// milliseconds.
    BeyondShare(u32),
    /// The connection is in TIME-WAIT. The value is the lag in milliseconds.
    Closed(u32),
}

/// A slot of a pool, and the reason why its holder may give way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    reason: Reason,
    slot: u32,
    id: u32,
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Identifies a connection as the owner of a slot.
    #[inline(always)]
    fn owner(&self, id: u32) -> Owner {
        let peer = self.table.housekeeping[id as usize].peer;
        Owner { id, peer }
    }

    /// Describes a connection that asks for a slot, with its current lag.
    fn asker(&self, id: u32, now: Moment) -> Asker {
        Asker {
            owner: self.owner(id),
            lag: self.table.housekeeping[id as usize].lag(now),
        }
    }

    /// Returns the connection that gives way to `asker` when `pool` has no free slot, or `None` if
    /// none of the examined connections may be evicted.
    ///
    /// Connections in TIME-WAIT give way first, then those of an address beyond its share, then the
    /// one with the largest lag. That lag must be at least [`MIN_LAG_MS`] and larger than the
    /// asker's. If the asker's own address has reached its share, a connection of another address
    /// gives way only in TIME-WAIT.
    #[cold]
    fn find_victim(&mut self, pool: Pool, asker: Asker, now: Moment) -> Option<u32> {
        if self.samplers[pool as usize].has_refused(asker, now) {
            return None;
        }
        let sample = self.sample(pool);
        let mut ranked: ArrayVec<Reverse<Candidate>, { CANDIDATES + SAMPLE }> = ArrayVec::new();
        for slot in sample {
            if let Some(id) = self.holder(pool, slot) {
                let reason = self.reason(pool, id, now);
                ranked.push(Reverse(Candidate { reason, slot, id }));
            }
        }
        ranked.sort_unstable();
        let Owner { id, peer } = asker.owner;
        let is_beyond = self.cx.peers.held(peer, pool) >= self.share(pool);
        let gives_way = |candidate: &Candidate| {
            let is_own =
                peer != NONE && self.table.housekeeping[candidate.id as usize].peer == peer;
            let lags_more = |lag| lag >= MIN_LAG_MS && lag > asker.lag;
            candidate.id != id
                && match candidate.reason {
                    Reason::Closed(_) => true,
                    Reason::BeyondShare(lag) if is_own => lags_more(lag),
                    Reason::BeyondShare(_) => !is_beyond,
                    Reason::Lag(lag) => lags_more(lag) && (is_own || !is_beyond),
                }
        };
        let position = ranked
            .iter()
            .position(|Reverse(candidate)| gives_way(candidate));
        let victim = position.and_then(|at| ranked.pop_at(at));
        let remaining = ranked.iter().take(CANDIDATES);
        let sampler = &mut self.samplers[pool as usize];
        sampler.candidates = remaining.map(|Reverse(candidate)| candidate.slot).collect();
        sampler.last_refusal = victim.is_none().then_some(Refusal {
            at: now.millis,
            peer,
            lag: asker.lag,
        });
        victim.map(|Reverse(candidate)| candidate.id)
    }

    /// Returns the slots to examine: the candidates found earlier, and the next slots of the pool.
    fn sample(&mut self, pool: Pool) -> ArrayVec<u32, { CANDIDATES + SAMPLE }> {
        let len = self.slots(pool);
        let sampler = &mut self.samplers[pool as usize];
        let candidates = sampler.candidates.take();
        let mut slots = ArrayVec::new();
        slots.extend(candidates.iter().copied());
        for _ in 0..SAMPLE.min(len) {
            let slot = (sampler.next_slot % len) as u32;
            sampler.next_slot = slot as usize + 1;
            if !candidates.contains(&slot) {
                slots.push(slot);
            }
        }
        slots
    }

    /// Returns the number of slots of a pool that were ever taken.
    fn slots(&self, pool: Pool) -> usize {
        match pool {
            Pool::Connections => self.table.len() as usize,
            _ => self.cx.peers.owners(pool).len(),
        }
    }

    /// Returns the connection that holds a slot of a pool, or `None` if the slot is free.
    fn holder(&self, pool: Pool, slot: u32) -> Option<u32> {
        if pool == Pool::Connections {
            return (self.tcb(slot).state != State::Closed).then_some(slot);
        }
        let owner = self.cx.peers.owners(pool).get(slot as usize)?;
        (owner.id != NONE).then_some(owner.id)
    }

    /// Returns the number of slots that is one address's share of a pool: see [`SHARE`].
    fn share(&self, pool: Pool) -> u32 {
        (self.cx.peers.size(pool) / SHARE).max(1)
    }

    fn reason(&self, pool: Pool, id: u32, now: Moment) -> Reason {
        let housekeeping = &self.table.housekeeping[id as usize];
        let lag = housekeeping.lag(now);
        if self.tcb(id).state == State::TimeWait {
            Reason::Closed(lag)
        } else if housekeeping.peer != NONE
            && self.cx.peers.held(housekeeping.peer, pool) > self.share(pool)
        {
            Reason::BeyondShare(lag)
        } else {
            Reason::Lag(lag)
        }
    }

    /// Evicts a connection to make room in the table for the client whose address has this `hash`.
    /// Returns true if a connection was evicted.
    pub(super) fn make_way<P: Port>(&mut self, port: &mut P, hash: u64, now: Moment) -> bool {
        let peer = self.cx.peers.find(hash).unwrap_or(NONE);
        let asker = Asker {
            owner: Owner { id: NONE, peer },
            lag: 0,
        };
        let victim = self.find_victim(Pool::Connections, asker, now);
        if let Some(id) = victim {
            self.evict(port, id, now);
        }
        victim.is_some()
    }

    /// Lends a receive buffer to connection `id`, unless it already has one. If no buffer is free,
    /// tries to take the buffer of another connection.
    pub(super) fn take_buffer<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        let owner = self.owner(id);
        if self.conn(id).take_buffer(owner) {
            return;
        }
        let asker = self.asker(id, now);
        let Some(victim) = self.find_victim(Pool::RecvBuffers, asker, now) else {
            return;
        };
        if self.conn(victim).give_up_buffer() {
            self.cx.counters.recv_buffers_taken += 1;
        } else {
            self.evict(port, victim, now);
        }
        self.conn(id).take_buffer(owner);
    }

    /// If a write on connection `id` failed because a pool was exhausted, tries to evict another
    /// connection. Returns true if the application may try the write again.
    #[inline(always)]
    pub(super) fn free_exhausted_pool<P: Port>(
        &mut self,
        port: &mut P,
        id: u32,
        now: Moment,
    ) -> bool {
        match self.requests.exhausted_pool {
            None => false,
            Some(pool) => self.free_for(port, id, pool, now),
        }
    }

    #[cold]
    fn free_for<P: Port>(&mut self, port: &mut P, id: u32, pool: Pool, now: Moment) -> bool {
        let asker = self.asker(id, now);
        let tcb = self.tcb_mut(id);
        if tcb.flags.intersects(Flags::CLOSE | Flags::ABORT) {
            return false;
        }
        let Some(victim) = self.find_victim(pool, asker, now) else {
            return false;
        };
        self.evict(port, victim, now);
        let counters = &mut self.cx.counters;
        *match pool {
            Pool::EntryLists => &mut counters.entry_lists_taken,
            _ => &mut counters.write_buffers_taken,
        } += 1;
        self.tcb_mut(id).flags -= Flags::WANTS_ROOM;
        true
    }

    /// Lends a larger scoreboard to connection `id`. If none is free, tries to take the scoreboard
    /// of another connection.
    #[cold]
    pub(super) fn lend_larger_board(&mut self, id: u32) {
        let owner = self.owner(id);
        let Err(larger) = self.conn(id).grow_board(owner) else {
            return;
        };
        let now = Moment::from(self.now);
        let asker = self.asker(id, now);
        let mut victims = larger
            .iter()
            .filter_map(|pool| self.find_victim(*pool, asker, now));
        if let Some(victim) = victims.next() {
            self.conn(victim).give_up_board();
            let result = self.conn(id).grow_board(owner);
            debug_assert!(result.is_ok(), "a scoreboard is free now");
        }
    }

    /// Evicts connection `id`. A connection in TIME-WAIT or SYN-RECEIVED is silently forgotten. In
    /// any other state it is reset.
    fn evict<P: Port>(&mut self, port: &mut P, id: u32, now: Moment) {
        match self.tcb(id).state {
            State::TimeWait => {
                self.cx.counters.time_waits_evicted += 1;
                self.forget(id);
            }
            State::SynReceived => {
                self.cx.counters.half_open_evicted += 1;
                self.forget(id);
            }
            _ => {
                self.send_reset(port, id, now);
                self.close(id, CloseReason::Evicted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nmio::Instant;

    use super::*;

    #[test]
    fn a_refusal_holds_for_the_rest_of_the_millisecond() {
        let sampler = Sampler {
            last_refusal: Some(Refusal {
                at: 7,
                peer: 3,
                lag: 1_500,
            }),
            ..Sampler::default()
        };
        let refused = |millis, peer, lag| {
            let owner = Owner { id: 0, peer };
            let now = Moment::from(Instant::from_millis(millis));
            sampler.has_refused(Asker { owner, lag }, now)
        };
        assert!(refused(7, 3, 1_500) && refused(7, 3, 9_000));
        assert!(!refused(7, 3, 1_499), "it lags less");
        assert!(!refused(7, 4, 1_500), "another address");
        assert!(!refused(8, 3, 1_500), "a millisecond later");
    }
}
