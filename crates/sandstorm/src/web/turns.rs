//! The downloads that wait for other chunks to be read, in a fair order.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Maximum number of queues whose memory is kept.
const MAX_SPARE: usize = 256;

/// The downloads that wait. The clients have their turns one after the other, so a client with many
/// connections does not keep others waiting. The downloads of a client come in their order. `P` is the
/// place of a download.
#[derive(Debug, Default)]
pub(super) struct Turns<P> {
    /// The clients with downloads that wait, in the order of their turns.
    order: VecDeque<IpAddr>,
    waiting: HashMap<IpAddr, VecDeque<P>>,
    /// Number of all entries. Some of them no longer wait.
    len: usize,
    /// Empty queues, whose memory is used again.
    spare: Vec<VecDeque<P>>,
}

impl<P: Copy> Turns<P> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a download of a client.
    pub(super) fn add(&mut self, client: IpAddr, place: P) {
        let Self {
            order,
            waiting,
            spare,
            ..
        } = self;
        let queue = waiting.entry(client).or_insert_with(|| {
            order.push_back(client);
            spare.pop().unwrap_or_default()
        });
        queue.push_back(place);
        self.len += 1;
    }

    /// Removes all downloads.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.waiting.clear();
        self.len = 0;
    }

    /// Removes the download whose turn it is. `may_read` says whether a client may have a turn, and `waits`
    /// whether a download of it still waits.
    pub(super) fn take(
        &mut self,
        may_read: impl Fn(IpAddr) -> bool,
        waits: impl Fn(IpAddr, P) -> bool,
    ) -> Option<P> {
        for _ in 0..self.order.len() {
            let client = self.order.pop_front()?;
            if !may_read(client) {
                self.order.push_back(client);
                continue;
            }
            let queue = self.waiting.get_mut(&client)?;
            let before = queue.len();
            let next = std::iter::from_fn(|| queue.pop_front()).find(|place| waits(client, *place));
            self.len -= before - queue.len();
            if queue.is_empty() {
                self.spare.extend(self.waiting.remove(&client));
                self.spare.truncate(MAX_SPARE);
            } else {
                self.order.push_back(client);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        [10, 0, 0, number as u8].into()
    }

    fn turns(of: &[(u32, u32)]) -> Turns<u32> {
        let mut turns = Turns::default();
        for (number, place) in of {
            turns.add(client(*number), *place);
        }
        turns
    }

    #[test]
    fn each_client_has_a_turn_before_one_has_another() {
        let mut turns = turns(&[(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6)]);
        let mut order = Vec::new();
        while let Some(place) = turns.take(|_| true, |_, _| true) {
            order.push(place);
            if order.len() == 1 {
                turns.add(client(4), 7);
            }
        }
        assert_eq!(order, [1, 4, 6, 2, 7, 5, 3]);
        assert!(turns.is_empty() && turns.order.is_empty() && turns.waiting.is_empty());
    }

    #[test]
    fn a_client_that_may_not_read_and_a_download_that_no_longer_waits_are_passed_over() {
        let mut turns = turns(&[(1, 1), (2, 2), (3, 3), (3, 4)]);
        let is_other = |one: IpAddr| one != client(1);
        let waits = |_, place| place != 3 && place != 2;
        assert_eq!(turns.take(is_other, waits), Some(4));
        assert_eq!(turns.take(is_other, waits), None);
        assert_eq!(turns.len(), 1);
        assert_eq!(turns.take(|_| true, waits), Some(1));
        assert!(turns.is_empty());
    }
}
