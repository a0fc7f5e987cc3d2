//! The queue of those who wait for a check, in a fair order.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Maximum number of connections of one worker that wait for a check.
const MAX_WAITING: usize = 256;
/// Maximum number of clients whose last turn is known.
const MAX_KNOWN: usize = 4_096;

/// Those who wait. The client comes first whose last turn is longest ago, so nobody who tries many
/// passwords keeps others waiting. Clients without a known turn come before all others. Of these, the one
/// comes first with the fewest connections that wait.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Those who wait, in the order in which they came.
    waiting: VecDeque<(IpAddr, T)>,
    /// The last turn of each client, counted from the first turn of all.
    turns: HashMap<IpAddr, u64>,
    /// Number of turns so far.
    turn: u64,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(MAX_WAITING + 1),
            turns: HashMap::with_capacity(MAX_KNOWN),
            turn: 0,
        }
    }

    /// Adds `one`. Returns the one that gives way if too many wait, which may be `one` itself.
    ///
    /// The client with the most connections that wait gives way with its newest one. Of several such
    /// clients, it is the one whose last turn was latest.
    pub(super) fn add(&mut self, client: IpAddr, one: T) -> Option<T> {
        self.waiting.push_back((client, one));
        if self.waiting.len() <= MAX_WAITING {
            return None;
        }
        let (numbers, turns) = (self.numbers(), &self.turns);
        let uses = self
            .waiting
            .iter()
            .map(|(client, _)| (numbers.get(client), turns.get(client)));
        let (at, _) = uses.enumerate().max_by_key(|(_, uses)| *uses)?;
        Some(self.waiting.remove(at)?.1)
    }

    /// Removes the one whose turn it is.
    pub(super) fn take_next(&mut self) -> Option<T> {
        let (numbers, turns) = (self.numbers(), &self.turns);
        let uses = self
            .waiting
            .iter()
            .map(|(client, _)| (turns.get(client), numbers.get(client)));
        let (at, _) = uses.enumerate().min_by_key(|(_, uses)| *uses)?;
        let (client, one) = self.waiting.remove(at)?;
        if self.turns.len() >= MAX_KNOWN && !self.turns.contains_key(&client) {
            let oldest = self.turns.iter().min_by_key(|(_, turn)| **turn);
            if let Some(oldest) = oldest.map(|(client, _)| *client) {
                self.turns.remove(&oldest);
            }
        }
        self.turn += 1;
        self.turns.insert(client, self.turn);
        Some(one)
    }

    /// Returns the number of connections of each client that wait.
    fn numbers(&self) -> HashMap<IpAddr, usize> {
        let mut numbers = HashMap::new();
        for (client, _) in &self.waiting {
            *numbers.entry(*client).or_default() += 1;
        }
        numbers
    }

    /// Keeps only those for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.waiting.retain(|(_, one)| keep(one));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(number as u32).into()
    }

    /// Lets each of `clients` wait `times` times, and returns those who have given way.
    fn fill(queue: &mut Queue<usize>, clients: std::ops::Range<usize>, times: usize) -> Vec<usize> {
        let all = (0..times).flat_map(|_| clients.clone());
        all.filter_map(|one| queue.add(client(one), one)).collect()
    }

    #[test]
    fn the_client_comes_first_whose_turn_is_longest_ago_however_many_there_are() {
        for clients in [2, 110, MAX_WAITING, MAX_KNOWN - 1] {
            let mut queue = Queue::new();
            // Each has had its turn, the last one latest.
            for one in 0..clients {
                assert_eq!(queue.add(client(one), one), None);
                assert_eq!(queue.take_next(), Some(one));
            }
            let some = clients.min(MAX_WAITING / 2);
            fill(&mut queue, 0..some, 2);
            let order: Vec<_> = (0..some).map(|_| queue.take_next().unwrap()).collect();
            assert!(order.iter().copied().eq(0..some), "{clients}: {order:?}");
            // Who comes for the first time does not wait for those who have come again and again.
            assert_eq!(queue.add(client(clients), clients), None);
            assert_eq!(queue.take_next(), Some(clients));
            assert_eq!(queue.take_next(), Some(0));
        }
    }

    #[test]
    fn of_new_clients_the_one_with_the_fewest_connections_comes_first() {
        let mut queue = Queue::new();
        fill(&mut queue, 0..110, 2);
        queue.add(client(200), 200);
        let order = [(); 3].map(|()| queue.take_next().unwrap());
        assert_eq!(order, [200, 0, 1]);
    }

    #[test]
    fn the_client_that_makes_the_most_use_gives_way() {
        let mut queue = Queue::new();
        assert!(fill(&mut queue, 0..MAX_WAITING, 1).is_empty());
        // Nobody has had a turn yet, so those come first who have waited longest.
        assert_eq!(queue.add(client(MAX_WAITING), 999), Some(999));
        assert_eq!((queue.take_next(), queue.take_next()), (Some(0), Some(1)));
        assert!(fill(&mut queue, 0..2, 1).is_empty());
        // The second client has had its turn last, and then the first one.
        assert_eq!(fill(&mut queue, 300..303, 1), [1, 0, 302]);
        assert_eq!(queue.add(client(1), 1), Some(1));
        assert_eq!(queue.add(client(300), 400), Some(400));
        queue.retain(|one| *one != 2);
        assert_eq!(queue.add(client(300), 401), None);
        assert_eq!(queue.add(client(303), 303), Some(401));
        assert_eq!(queue.take_next(), Some(3));
    }

    #[test]
    fn the_client_is_forgotten_whose_turn_is_longest_ago() {
        let mut queue = Queue::new();
        for one in 0..MAX_KNOWN + 3 {
            queue.add(client(one), one);
            queue.take_next();
        }
        assert_eq!(queue.turns.len(), MAX_KNOWN);
        let is_known = |one: usize| queue.turns.contains_key(&client(one));
        assert!(!(0..3).any(is_known) && (3..MAX_KNOWN + 3).all(is_known));
    }
}
