//! DNS queries, and checks of the responses.

use fastrand::Rng;
use ip::Sum;

use super::udp::Questions;

/// Length of a message's header in bytes, including the identifier (RFC 1035, section 4.1.1).
const HEADER_LEN: usize = 12;
/// Header of a query after the identifier: no flags, one question.
const REQUEST: [u8; 10] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
const QR: u8 = 0x80;
const RCODE: u8 = 0x0f;
/// Maximum number of queries drawn in advance and then sent in turn. The queries fit into the
/// client's memory, but their names do not fit into a server's CPU cache.
const DRAWN: usize = 1 << 20;

/// Queries drawn from a set of names, in the order in which they are sent. The messages lie side by
/// side in memory, so that sending them costs the client little.
#[derive(Clone, Debug)]
pub struct Queries {
    messages: Vec<u8>,
    /// End offset of each message in `messages`, and the message's sum for the Internet checksum.
    ends: Vec<(u32, Sum)>,
    next: u32,
}

impl Queries {
    /// Draws queries for the A records of the first `hosts` names of the zone `bench.test`,
    /// beginning with `host0`.
    ///
    /// # Panics
    /// Panics if `hosts` is 0.
    pub fn new(hosts: u32, seed: u64) -> Self {
        let mut queries = Self {
            messages: Vec::new(),
            ends: Vec::new(),
            next: 0,
        };
        for host in order(hosts, seed) {
            let message = request(&format!("host{host}"));
            queries.messages.extend_from_slice(&message);
            let end = (queries.messages.len() as u32, Sum::of(&message));
            queries.ends.push(end);
        }
        queries
    }

    #[inline(always)]
    fn message(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.ends[before].0);
        &self.messages[start as usize..self.ends[number].0 as usize]
    }
}

/// Draws the host number of each query, in the order in which the queries are sent.
fn order(hosts: u32, seed: u64) -> Vec<u32> {
    let mut rng = Rng::with_seed(seed);
    if (hosts as usize) < DRAWN / 16 {
        return (0..DRAWN).map(|_| rng.u32(..hosts)).collect();
    }
    // No name occurs twice, so a name is repeated only after all other queries have been sent.
    let mut order: Vec<u32> = (0..hosts).collect();
    rng.shuffle(&mut order);
    order.truncate(DRAWN);
    order
}

/// Builds a query for the address of a name in the zone `bench.test`, without the identifier. `labels`
/// are those below the zone's name.
pub(crate) fn request(labels: &str) -> Vec<u8> {
    let mut message = REQUEST.to_vec();
    for label in labels.split('.').chain(["bench", "test", ""]) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    // Type A, class IN.
    message.extend_from_slice(&[0, 1, 0, 1]);
    message
}

impl Questions for Queries {
    #[inline(always)]
    fn next(&mut self) -> (u32, &[u8], Sum) {
        let number = self.next;
        self.next += 1;
        if self.next as usize == self.ends.len() {
            self.next = 0;
        }
        (number, self.message(number), self.ends[number as usize].1)
    }

    #[inline(always)]
    fn check(&self, number: u32, reply: &[u8]) -> Result<(), &'static str> {
        let question = &self.message(number)[REQUEST.len()..];
        if reply.len() < HEADER_LEN + question.len() || reply[2] & QR == 0 {
            return Err("malformed reply");
        }
        if reply[4..6] != [0, 1] || &reply[HEADER_LEN..][..question.len()] != question {
            return Err("wrong question");
        }
        if reply[3] & RCODE != 0 {
            return Err("wrong rcode");
        }
        if reply[6..8] != [0, 1] {
            return Err("wrong answer count");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_checked() {
        let mut queries = Queries::new(1, 1);
        let (number, message, _) = queries.next();
        let mut reply = [&[0x12, 0x34], message].concat();
        assert_eq!(queries.check(number, &reply), Err("malformed reply"));
        reply[2] = QR;
        assert_eq!(queries.check(number, &reply), Err("wrong answer count"));
        reply[7] = 1;
        assert_eq!(queries.check(number, &reply), Ok(()));
        reply[3] = 3;
        assert_eq!(queries.check(number, &reply), Err("wrong rcode"));
        reply[3] = 0;
        reply[13] ^= 1;
        assert_eq!(queries.check(number, &reply), Err("wrong question"));
        assert_eq!(queries.check(number, &reply[..20]), Err("malformed reply"));
        assert_eq!(queries.check(number, &[]), Err("malformed reply"));
    }

    #[test]
    fn all_names_are_drawn_equally_often() {
        let few = order(10, 1);
        let count = |name| few.iter().filter(|&&one| one == name).count() as f64;
        assert!((count(0) / count(9) - 1.0).abs() < 0.05);
        let mut many = order(DRAWN as u32 / 8, 1);
        many.sort_unstable();
        assert!(
            many.into_iter().eq(0..DRAWN as u32 / 8),
            "each name is drawn once"
        );
    }
}
