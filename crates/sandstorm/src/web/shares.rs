//! Shares of client addresses in the memory for chunks.

use std::collections::HashMap;
use std::net::IpAddr;

/// One client address may hold 1/`SHARE` of the memory while others wait for memory.
const SHARE: usize = 8;

/// What a download holds, and whether it waits for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub(super) client: IpAddr,
    /// Memory of the chunks that the client has not acknowledged, in bytes.
    pub(super) held: usize,
    pub(super) is_starved: bool,
}

/// What all downloads of a client hold.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    held: usize,
    /// Number of downloads that hold something, or wait for memory.
    number: u32,
    is_starved: bool,
}

/// What each client holds. A client is *beyond its share* if it holds more than that while others wait.
/// There are fewer than [`SHARE`] of them, as far as they hold different chunks.
#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: HashMap<IpAddr, Share>,
    /// The share of a client in bytes, or `usize::MAX` if only clients beyond it wait. They may hold
    /// everything that no other client waits for.
    most: usize,
}

impl Shares {
    /// Looks at all downloads again. They have `capacity` bytes of memory together.
    pub(super) fn update(&mut self, all: impl Iterator<Item = Holding>, capacity: usize) {
        self.clients.clear();
        for one in all.filter(|one| one.held > 0 || one.is_starved) {
            let share = self.clients.entry(one.client).or_default();
            share.held += one.held;
            share.number += 1;
            share.is_starved |= one.is_starved;
        }
        let most = capacity / SHARE;
        let mut others = self.clients.values();
        let is_wanted = others.any(|one| one.is_starved && one.held <= most);
        self.most = if is_wanted { most } else { usize::MAX };
    }

    /// Forgets all clients, because no download waits for memory.
    pub(super) fn clear(&mut self) {
        self.clients.clear();
        self.most = usize::MAX;
    }

    /// Whether a client holds more than its share.
    pub(super) fn is_beyond(&self, client: IpAddr) -> bool {
        self.rank(client).0
    }

    /// The rank of a client, lowest first: whether it holds more than its share, and the number of its
    /// downloads.
    pub(super) fn rank(&self, client: IpAddr) -> (bool, u32) {
        let share = self.clients.get(&client).copied().unwrap_or_default();
        (share.held > self.most, share.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Returns the ranks of the clients 1 to 3 in 800 bytes.
    fn ranks(all: &[(u8, usize, bool)]) -> [(bool, u32); 3] {
        let all = all.iter().map(|&(number, held, is_starved)| Holding {
            client: client(number),
            held,
            is_starved,
        });
        let mut shares = Shares::default();
        shares.update(all, 800);
        [1, 2, 3].map(|number| shares.rank(client(number)))
    }

    /// Returns which of the clients 1 to 3 are beyond their share of 800 bytes.
    fn beyond(all: &[(u8, usize, bool)]) -> Vec<u8> {
        let ranks = (1..).zip(ranks(all));
        ranks.filter(|one| one.1.0).map(|one| one.0).collect()
    }

    #[test]
    fn a_client_that_holds_more_than_an_eighth_is_beyond_its_share_if_others_wait() {
        assert_eq!(beyond(&[(1, 60, true), (1, 41, false), (2, 0, true)]), [1]);
        assert_eq!(
            beyond(&[(1, 60, true), (1, 40, false), (2, 0, true)]),
            Vec::<u8>::new()
        );
        assert_eq!(beyond(&[(1, 700, true), (2, 50, false)]), Vec::<u8>::new());
        assert_eq!(beyond(&[(1, 300, true), (2, 300, true)]), Vec::<u8>::new());
        assert_eq!(
            beyond(&[(1, 300, true), (2, 300, true), (3, 1, true)]),
            [1, 2]
        );
        assert_eq!(beyond(&[]), Vec::<u8>::new());
    }

    #[test]
    fn the_rank_counts_downloads_that_hold_memory_or_wait_for_it() {
        let all = [
            (1, 10, false),
            (1, 0, true),
            (1, 0, false),
            (2, 200, true),
            (3, 0, true),
        ];
        assert_eq!(ranks(&all), [(false, 2), (true, 1), (false, 1)]);
    }
}
