//! DNS queries, and checks of the responses.

use std::io::BufRead;
use std::path::Path;

use fastrand::Rng;
use ip::Sum;

use super::link::LoadError;
use super::udp::Questions;

/// Length of a message's header, including the identifier (RFC 1035, section 4.1.1).
const HEADER_LEN: usize = 12;
/// Header of a query behind the identifier: no flag, one question.
const REQUEST: [u8; 10] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
const QR: u8 = 0x80;
const RCODE: u8 = 0x0f;
/// Maximum lengths of a label and of a name (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;
const MAX_NAME: usize = 255;
const CLASS_IN: u16 = 1;
/// Maximum number of queries drawn in advance and then sent in turn. They fit into memory, but
/// their names do not fit into a server's cache.
const DRAWN: usize = 1 << 20;

/// The record types that a names file may contain.
const TYPES: [(&str, u16); 9] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
];

/// How often each name is queried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// All names are queried equally often.
    Uniform,
    /// The n-th name is queried n^-s times as often as the first name, where s is this exponent.
    Zipf(f64),
}

/// A query message without its identifier.
type Request = Vec<u8>;

/// Queries drawn from a set of names, in the order in which they are sent. The messages lie side by
/// side in memory, so that sending them costs the client little.
#[derive(Clone, Debug)]
pub struct Queries {
    messages: Vec<u8>,
    /// End offset of each message, and its checksum sum.
    ends: Vec<(u32, Sum)>,
    next: u32,
}

impl Queries {
    /// Draws from `host0` to `host(N-1)` of the zone `bench.test`, with record type A.
    ///
    /// # Errors
    /// Fails when `hosts` is 0.
    pub fn of_hosts(hosts: u32, popularity: Popularity, seed: u64) -> Result<Self, LoadError> {
        let request = |host: u32| request(&format!("host{host}.bench.test"), 1);
        Self::draw(hosts as usize, popularity, seed, |i| request(i as u32))
    }

    /// Draws from the names of a file. Each line has a name and optionally a record type; the
    /// default is A. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Fails when the file cannot be read, a line is invalid, or the file has no name.
    pub fn of_file(path: &Path, popularity: Popularity, seed: u64) -> Result<Self, LoadError> {
        let failed = |error| LoadError::Asked(format!("{}: {error}", path.display()));
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut requests = Vec::new();
        for (number, line) in std::io::BufReader::new(file).lines().enumerate() {
            let line = line.map_err(failed)?;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let request = parse_line(&line).ok_or_else(|| {
                LoadError::Asked(format!(
                    "{}, line {}: \"{line}\" is not a name with a known type",
                    path.display(),
                    number + 1
                ))
            })?;
            requests.push(request);
        }
        Self::draw(requests.len(), popularity, seed, |i| {
            Some(requests[i].clone())
        })
    }

    fn draw(
        names: usize,
        popularity: Popularity,
        seed: u64,
        request: impl Fn(usize) -> Option<Request>,
    ) -> Result<Self, LoadError> {
        if names == 0 {
            return Err(LoadError::Asked("there is no name to query".into()));
        }
        let mut queries = Self {
            messages: Vec::new(),
            ends: Vec::new(),
            next: 0,
        };
        for index in order(names, popularity, seed) {
            let message = request(index)
                .ok_or_else(|| LoadError::Asked(format!("name {index} is invalid")))?;
            queries.messages.extend_from_slice(&message);
            let end = (queries.messages.len() as u32, Sum::of(&message));
            queries.ends.push(end);
        }
        Ok(queries)
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

/// Draws the indices of the names in the order of the queries.
fn order(names: usize, popularity: Popularity, seed: u64) -> Vec<usize> {
    let mut rng = Rng::with_seed(seed);
    match popularity {
        // Every name is queried once before any name is queried twice.
        Popularity::Uniform if names >= DRAWN / 16 => {
            let mut order: Vec<usize> = (0..names).collect();
            rng.shuffle(&mut order);
            order.truncate(DRAWN);
            order
        }
        Popularity::Uniform => (0..DRAWN).map(|_| rng.usize(..names)).collect(),
        Popularity::Zipf(exponent) => {
            let mut sum = 0.0;
            let up_to: Vec<f64> = (1..=names)
                .map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect();
            let pick = |at: f64| up_to.partition_point(|upper| *upper <= at).min(names - 1);
            (0..DRAWN).map(|_| pick(rng.f64() * sum)).collect()
        }
    }
}

fn parse_line(line: &str) -> Option<Request> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let rtype = match words.next() {
        None => 1,
        Some(word) => {
            let known = |(name, _): &&(&str, u16)| name.eq_ignore_ascii_case(word);
            TYPES.iter().find(known)?.1
        }
    };
    match words.next() {
        None => request(name, rtype),
        Some(_) => None,
    }
}

fn request(name: &str, rtype: u16) -> Option<Request> {
    let mut message = REQUEST.to_vec();
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_NAME - 2 {
        return None;
    }
    for label in name.split('.').filter(|_| !name.is_empty()) {
        if label.is_empty() || label.len() > MAX_LABEL {
            return None;
        }
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&rtype.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(message)
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
        let mut queries = Queries::of_hosts(1, Popularity::Uniform, 1).unwrap();
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
    fn a_line_has_a_name_and_optionally_a_type() {
        let expected = [&REQUEST[..], b"\x01a\x02bc\0\0\x1c\0\x01"].concat();
        assert_eq!(parse_line("a.bc. aaaa"), Some(expected));
        assert_eq!(
            parse_line("."),
            Some([&REQUEST[..], b"\0\0\x01\0\x01"].concat())
        );
        for wrong in [
            "a..b",
            "a A IN",
            "a TYPE7",
            &"x".repeat(64),
            &"x.".repeat(150),
        ] {
            assert_eq!(parse_line(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_are_drawn_by_popularity() {
        let count = |order: &[usize], name| order.iter().filter(|&&one| one == name).count();
        let uniform = order(10, Popularity::Uniform, 1);
        assert!((count(&uniform, 0) as f64 / count(&uniform, 9) as f64 - 1.0).abs() < 0.05);
        let zipf = order(10, Popularity::Zipf(1.0), 1);
        let ratio = count(&zipf, 0) as f64 / count(&zipf, 9) as f64;
        assert!((ratio - 10.0).abs() < 0.5, "{ratio}");
        let mut all = order(DRAWN / 8, Popularity::Uniform, 1);
        all.sort_unstable();
        assert!(
            all.iter().copied().eq(0..DRAWN / 8),
            "each name is drawn once"
        );
    }
}
