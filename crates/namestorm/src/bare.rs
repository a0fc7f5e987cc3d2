//! Replies that consist of a header and perhaps an OPT record. Queries with an error in the header or the
//! question get them. So do queries without a question, which ask for a cookie (RFC 7873, section 5.4).

use std::net::SocketAddr;

use udpip::Tail;

use crate::body::Body;
use crate::cookie::{Checked, Presented};
use crate::cookie_check::{CookieCheck, Rest};
use crate::counters::Counters;
use crate::edns::{self, Edns};
use crate::groups::ReplyCounts;
use crate::identity::Identity;
use crate::options::{About, OptWriter};
use crate::query::{HEADER_LEN, Header, QR, RD, additional_at};
use crate::rcode;

/// A reply without a question.
pub(crate) struct BareReply {
    flags: u16,
    rcode: u16,
    edns: Option<Edns>,
    cookie: Option<Checked>,
}

impl BareReply {
    /// Decides about the reply to a message that is no normal query. Verifies its cookie. A message whose
    /// OPT record can be found gets one too (RFC 6891, section 7).
    #[cold]
    #[inline(never)]
    pub(crate) fn to(
        message: &[u8],
        header: &Header,
        client: SocketAddr,
        cookies: &CookieCheck,
        counters: &mut Counters,
    ) -> Self {
        let opt = additional_at(message, header).map(|at| (at, header.counts()[3]));
        let edns = opt.and_then(|(at, count)| match edns::parse(message, at, count) {
            Ok(edns) => edns,
            Err(_) => edns::of_malformed(message, at, count),
        });
        let rest = opt
            .zip(edns)
            .map(|((at, _), edns)| Rest { message, at, edns });
        let cookie = rest.and_then(|rest| cookies.check(rest, client.ip(), counters));
        let is_query = header.opcode_bits() == 0;
        let has_records = header.counts()[..3] != [0; 3];
        let rcode = match cookie.map(Checked::presented) {
            _ if edns.is_some_and(|edns| edns.version != edns::VERSION) => rcode::BADVERS,
            _ if !is_query => rcode::NOTIMP,
            _ if has_records => rcode::FORMERR,
            None => rcode::FORMERR,
            Some(Presented::Invalid) => rcode::BADCOOKIE,
            Some(Presented::ClientOnly | Presented::Valid) => rcode::NOERROR,
        };
        Self {
            flags: QR | header.opcode_bits() | header.flags & RD | rcode & 15,
            rcode,
            edns,
            cookie,
        }
    }

    /// Counts the reply, and writes its header over the query's header. Returns the reply's OPT
    /// record, which may be empty. The reply has nothing else.
    pub(crate) fn write<'a>(
        self,
        message: &mut [u8],
        opt: &'a mut OptWriter,
        identity: &Identity,
        (counters, groups): (&mut Counters, &mut ReplyCounts),
    ) -> Tail<'a> {
        groups.count_bare(self.rcode);
        counters.replies[usize::from(self.rcode)] += 1;
        message[2..4].copy_from_slice(&self.flags.to_be_bytes());
        message[4..HEADER_LEN].fill(0);
        let Some(edns) = self.edns else {
            return Tail::EMPTY;
        };
        counters.edns += 1;
        message[HEADER_LEN - 1] = 1;
        opt.write(edns, &Body::empty(self.rcode), || About {
            identity,
            zone: None,
            cookie: self.cookie.map(Checked::reply),
            is_soa: false,
            room: usize::MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPT: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

    /// Returns the response code of the reply to a message with this opcode, counts and further bytes,
    /// and whether the reply has an OPT record.
    fn reply(opcode: u8, counts: [u8; 4], rest: &[u8]) -> (u16, bool) {
        let [a, b, c, d] = counts;
        let header = [0, 7, opcode << 3 | 1, 0, 0, a, 0, b, 0, c, 0, d];
        let mut message = [&header[..], rest].concat();
        let header = Header::parse(&message).unwrap();
        let (mut opt, mut counters) = (OptWriter::new(), Counters::default());
        let mut groups = ReplyCounts::new();
        let client = SocketAddr::from(([192, 0, 2, 9], 4000));
        let cookies = CookieCheck::default();
        let bare = BareReply::to(&message, &header, client, &cookies, &mut counters);
        let rcode = bare.rcode;
        let counts = (&mut counters, &mut groups);
        let record = bare.write(&mut message, &mut opt, &Identity::default(), counts);
        let has_opt = !record.bytes.is_empty();
        assert_eq!(counters.replies[usize::from(rcode)], 1);
        assert_eq!(counters.edns, u64::from(has_opt));
        let [high, low] = (0x8100 | u16::from(opcode) << 11 | rcode & 15).to_be_bytes();
        let expected = [0, 7, high, low, 0, 0, 0, 0, 0, 0, 0, has_opt.into()];
        assert_eq!(message[..HEADER_LEN], expected);
        (rcode, has_opt)
    }

    #[test]
    fn the_opt_record_is_found_behind_all_other_records() {
        let question = b"\x01a\0\0\x01\0\x01";
        let record = b"\x01b\0\0\x01\0\x01\0\0\0\0\0\x02xy";
        let of = |parts: &[&[u8]]| parts.concat();
        for (opcode, rcode) in [(0, rcode::FORMERR), (4, rcode::NOTIMP), (5, rcode::NOTIMP)] {
            for (counts, rest, has_opt) in [
                ([2, 0, 0, 1], of(&[question, question, &OPT]), true),
                (
                    [1, 2, 1, 2],
                    of(&[question, record, record, record, record, &OPT]),
                    true,
                ),
                ([0, 0, 0, 1], OPT.to_vec(), true),
                ([1, 1, 0, 0], of(&[question, &OPT]), false),
                ([2, 0, 0, 1], of(&[question, &OPT]), false),
                ([1, 1, 0, 1], of(&[question, &OPT]), false),
                ([2, 0, 0, 1], of(&[question, question]), false),
                ([2, 0, 0, 1], of(&[question, &question[..5]]), false),
                (
                    [2, 0, 0, 1],
                    of(&[question, &question[..3], &OPT[..10]]),
                    false,
                ),
                ([255; 4], vec![0; 500], false),
                // An OPT record with other errors can still be found.
                ([2, 0, 0, 2], of(&[question, question, &OPT, &OPT]), true),
                (
                    [2, 0, 0, 2],
                    of(&[question, question, &OPT, &record[..9]]),
                    true,
                ),
                (
                    [2, 0, 0, 1],
                    of(&[question, question, &OPT[..10], &[1, 9]]),
                    true,
                ),
                ([2, 0, 0, 1], of(&[question, question, &OPT[..9]]), false),
            ] {
                let found = reply(opcode, counts, &rest);
                assert_eq!(found, (rcode, has_opt), "{opcode} {counts:?} {rest:?}");
            }
        }
    }

    #[test]
    fn an_unsupported_version_of_edns_comes_first() {
        let mut opt = OPT;
        opt[6] = 1;
        for opcode in [0, 4] {
            assert_eq!(reply(opcode, [0, 0, 0, 1], &opt), (rcode::BADVERS, true));
        }
    }
}
