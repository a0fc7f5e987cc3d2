//! Queries without a question, with which clients ask for a cookie (RFC 7873, section 5.4).

use std::net::IpAddr;

use crate::body::Body;
use crate::cookie::{Checked, Presented};
use crate::cookie_check::{CookieCheck, Rest};
use crate::counters::Counters;
use crate::edns::{self, Edns};
use crate::identity::Identity;
use crate::options::{About, OptWriter};
use crate::query::{HEADER_LEN, Header, QR, RD};
use crate::rcode;

/// A query without a question, whose cookie is verified.
pub(crate) struct Exchange {
    flags: u16,
    edns: Edns,
    checked: Checked,
}

/// Verifies the cookie of a message without a question and without records in the answer and authority
/// sections. Returns `None` if the message is not such a query, or has no cookie.
#[cold]
#[inline(never)]
pub(crate) fn cookies(
    message: &[u8],
    client: IpAddr,
    cookies: &CookieCheck,
    counters: &mut Counters,
) -> Option<Exchange> {
    let header = Header::parse(message)?;
    let [0, 0, 0, records] = header.counts else {
        return None;
    };
    if header.opcode_bits() != 0 {
        return None;
    }
    let edns = edns::parse(message, HEADER_LEN, records).ok()??;
    let rest = Rest {
        message,
        at: HEADER_LEN,
        edns,
    };
    let checked = cookies.check(rest, client, counters)?;
    Some(Exchange {
        flags: header.flags,
        edns,
        checked,
    })
}

impl Exchange {
    /// Writes the header of the reply over that of the query, and returns the reply's OPT record. The
    /// reply has nothing else.
    pub(crate) fn write<'a>(
        self,
        message: &mut [u8],
        opt: &'a mut OptWriter,
        identity: &Identity,
        counters: &mut Counters,
    ) -> &'a [u8] {
        let rcode = match self.checked.presented() {
            _ if self.edns.version != edns::VERSION => rcode::BADVERS,
            Presented::Invalid => rcode::BADCOOKIE,
            Presented::ClientOnly | Presented::Valid => rcode::NOERROR,
        };
        counters.edns += 1;
        counters.replies[usize::from(rcode)] += 1;
        let about = || About {
            identity,
            zone: None,
            cookie: Some(self.checked.reply()),
            is_soa: false,
            room: usize::MAX,
        };
        let flags = QR | self.flags & RD | rcode & 15;
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        message[4..HEADER_LEN].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
        opt.write(self.edns, &Body::empty(rcode), about)
    }
}
