//! DNS queries, and checks of the responses.

mod kind;
mod versions;
pub mod zone;

use fastrand::Rng;
use ip::Sum;

pub use self::kind::Kind;
use self::kind::{Expected, NOERROR, Query};
use super::udp::Questions;

/// Length of a message's header in bytes, including the identifier (RFC 1035, section 4.1.1).
const HEADER_LEN: usize = 12;
/// Header of a query after the identifier: no flags, one question.
const REQUEST: [u8; 10] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
const QR: u8 = 0x80;
const TC: u8 = 0x02;
const RCODE: u8 = 0x0f;
/// Maximum number of queries drawn in advance and then sent in turn. The queries fit into the
/// client's memory, but their names do not fit into a server's CPU cache.
const DRAWN: usize = 1 << 20;

/// Queries drawn from a set of names, in the order in which they are sent. The messages lie side by
/// side in memory, so that sending them costs the client little.
#[derive(Clone, Debug)]
pub struct Queries {
    messages: Vec<u8>,
    drawn: Vec<Drawn>,
    next: u32,
    kind: Kind,
    checks_data: bool,
}

/// A query that was drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// End offset of the message in [`Queries::messages`].
    end: u32,
    /// The message's sum for the Internet checksum.
    sum: Sum,
    expected: Expected,
}

impl Queries {
    /// Draws queries for the first `names` names of the zone `bench.test`, beginning with `host0`.
    ///
    /// # Panics
    /// Panics if `names` is 0.
    pub fn new(kind: Kind, names: u32, seed: u64) -> Self {
        Self::about(kind, order(kind, names, seed), seed)
    }

    /// Draws a query for each of these numbers.
    fn about(kind: Kind, order: impl IntoIterator<Item = u32>, seed: u64) -> Self {
        let mut queries = Self {
            messages: Vec::new(),
            drawn: Vec::new(),
            next: 0,
            kind,
            checks_data: false,
        };
        let mut rng = Rng::with_seed(seed);
        for number in order {
            let query = kind.query(number, &mut rng);
            let message = message(&query);
            queries.messages.extend_from_slice(&message);
            queries.drawn.push(Drawn {
                end: queries.messages.len() as u32,
                sum: Sum::of(&message),
                expected: query.expected,
            });
        }
        queries
    }

    /// Also checks that each address is wholly of one of the [versions](Kind::has_versions) of a zone.
    #[must_use]
    pub fn of_two_versions(self) -> Self {
        Self {
            checks_data: true,
            ..self
        }
    }

    #[inline(always)]
    fn message(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.drawn[before].end);
        &self.messages[start as usize..self.drawn[number].end as usize]
    }
}

/// Draws the number of each query's name, in the order in which the queries are sent.
fn order(kind: Kind, names: u32, seed: u64) -> Vec<u32> {
    let mut rng = Rng::with_seed(seed);
    if kind.is_mix() {
        return (0..DRAWN).map(|_| popular(names, &mut rng)).collect();
    }
    if (names as usize) < DRAWN / 16 {
        return (0..DRAWN).map(|_| rng.u32(..names)).collect();
    }
    // No name occurs twice, so a name is repeated only after all other queries have been sent.
    let mut order: Vec<u32> = (0..names).collect();
    rng.shuffle(&mut order);
    order.truncate(DRAWN);
    order
}

/// Draws a number below `names` by a Zipf law with the exponent 1. Popular numbers are scattered.
fn popular(names: u32, rng: &mut Rng) -> u32 {
    // This prime is coprime to every smaller count.
    const STRIDE: u64 = 4_294_967_291;
    // The power is at least 1 and at most the number of names.
    #[allow(clippy::cast_sign_loss)]
    let rank = f64::from(names).powf(rng.f64()) as u64;
    (rank * STRIDE % u64::from(names)) as u32
}

/// Builds a query for the address of a name in the zone `bench.test`, without the identifier.
/// `labels` are those below the zone's name.
pub(crate) fn request(labels: &str) -> Vec<u8> {
    message(&Query::address(labels.to_owned()))
}

/// Like [`request`], from a client that wants signatures.
pub(crate) fn signed_request(labels: &str) -> Vec<u8> {
    message(&Query {
        wants_signatures: Some(true),
        ..Query::address(labels.to_owned())
    })
}

/// Builds the message of a query, without the identifier.
fn message(query: &Query) -> Vec<u8> {
    let mut message = REQUEST.to_vec();
    for label in query.labels.split('.').chain(["bench", "test", ""]) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    let [high, low] = query.rtype.to_be_bytes();
    // Class IN.
    message.extend_from_slice(&[high, low, 0, 1]);
    if let Some(wanted) = query.wants_signatures {
        message[REQUEST.len() - 1] = 1;
        // RFC 6891, section 6.1.2: the root, the type, 1,232 bytes, and the flags with the DO bit.
        let flags = if wanted { 0x80 } else { 0 };
        message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, flags, 0, 0, 0]);
    }
    message
}

/// Length of an OPT record without options, in bytes.
const OPT_LEN: usize = 11;

impl Questions for Queries {
    #[inline(always)]
    fn next(&mut self) -> (u32, &[u8], Sum) {
        let number = self.next;
        self.next += 1;
        if self.next as usize == self.drawn.len() {
            self.next = 0;
        }
        let sum = self.drawn[number as usize].sum;
        (number, self.message(number), sum)
    }

    #[inline(always)]
    fn check(&self, number: u32, reply: &[u8]) -> Result<(), &'static str> {
        let query = self.message(number);
        let opt_len = OPT_LEN * usize::from(query[REQUEST.len() - 1]);
        let question = &query[REQUEST.len()..query.len() - opt_len];
        if reply.len() < HEADER_LEN + question.len() || reply[2] & QR == 0 {
            return Err("malformed reply");
        }
        if reply[4..6] != [0, 1] || &reply[HEADER_LEN..][..question.len()] != question {
            return Err("wrong question");
        }
        if reply[2] & TC != 0 {
            return Err("truncated");
        }
        let expected = &self.drawn[number as usize].expected;
        if reply[3] & RCODE != expected.rcode {
            return Err("wrong rcode");
        }
        let count = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
        if count(6) < expected.answers || count(8) < expected.authority {
            return Err("too few records");
        }
        let section = &reply[HEADER_LEN + question.len()..];
        if self.checks_data
            && expected.rcode == NOERROR
            && !versions::is_of_one(self.kind, question, count(6), section)
        {
            return Err("data of no version");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_checked() {
        let mut queries = Queries::new(Kind::Plain, 1, 1);
        let (number, message, _) = queries.next();
        let mut reply = [&[0x12, 0x34], message].concat();
        assert_eq!(queries.check(number, &reply), Err("malformed reply"));
        reply[2] = QR;
        assert_eq!(queries.check(number, &reply), Err("too few records"));
        reply[7] = 1;
        assert_eq!(queries.check(number, &reply), Ok(()));
        reply[3] = 3;
        assert_eq!(queries.check(number, &reply), Err("wrong rcode"));
        reply[3] = 0;
        reply[2] |= TC;
        assert_eq!(queries.check(number, &reply), Err("truncated"));
        reply[2] = QR;
        reply[13] ^= 1;
        assert_eq!(queries.check(number, &reply), Err("wrong question"));
        assert_eq!(queries.check(number, &reply[..20]), Err("malformed reply"));
        assert_eq!(queries.check(number, &[]), Err("malformed reply"));
    }

    #[test]
    fn data_is_checked_if_zones_have_two_versions() {
        let mut queries = Queries::new(Kind::Plain, 1, 1).of_two_versions();
        let (number, message, _) = queries.next();
        let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 144, 0, 4, 11, 0, 0, 0];
        let mut reply = [&[0x12, 0x34], message, &address].concat();
        (reply[2], reply[7]) = (QR, 1);
        assert_eq!(queries.check(number, &reply), Ok(()));
        *reply.last_mut().unwrap() = 1;
        assert_eq!(queries.check(number, &reply), Err("data of no version"));
    }

    #[test]
    fn all_names_are_drawn_equally_often() {
        let few = order(Kind::Plain, 10, 1);
        let count = |name| few.iter().filter(|&&one| one == name).count() as f64;
        assert!((count(0) / count(9) - 1.0).abs() < 0.05);
        let mut many = order(Kind::Plain, DRAWN as u32 / 8, 1);
        many.sort_unstable();
        assert!(
            many.into_iter().eq(0..DRAWN as u32 / 8),
            "each name is drawn once"
        );
    }

    #[test]
    fn a_mix_asks_most_often_for_few_names() {
        let order = order(Kind::Tld, 1_000_000, 1);
        let first = popular_numbers(&order);
        // A tenth of the logarithm of all ranks are below 4.
        assert!(
            first[..3].iter().sum::<usize>() as f64 / DRAWN as f64 > 0.08,
            "{first:?}"
        );
        assert!(order.iter().all(|&number| number < 1_000_000));
    }

    /// Returns how often the most frequent numbers occur.
    fn popular_numbers(order: &[u32]) -> Vec<usize> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        let mut counts: Vec<_> = sorted.chunk_by(|a, b| a == b).map(<[u32]>::len).collect();
        counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
        counts.truncate(10);
        counts
    }
}
