//! Replies to queries over the rate limit.

use std::net::IpAddr;

use super::{Reply, Responder, Transport, fit, is_query, place, read_rest, receive};
use crate::answers::ZoneNumber;
use crate::body::Body;
use crate::cookie::Checked;
use crate::groups::NO_GROUP;
use crate::query::{Header, TC};
use crate::rcode;

impl Responder {
    /// Returns true if the message is a query with a valid server cookie. `client` is the address that
    /// it came from.
    #[cold]
    #[inline(never)]
    pub(crate) fn has_valid_cookie(&mut self, message: &[u8], client: IpAddr) -> bool {
        let Self {
            question,
            answers,
            expanded,
            cookies,
            ..
        } = self;
        let Some(header) = Header::parse(message) else {
            return false;
        };
        if question.read(message, answers, expanded).is_err() {
            return false;
        }
        let (query, _) = read_rest(message, &header, question.question, Transport::Tcp);
        let checked = query
            .edns
            .and_then(|edns| cookies.verify(query.rest(message, edns), client));
        checked.is_some_and(Checked::is_valid)
    }

    /// Counts a message that is dropped because of the rate limit.
    #[cold]
    pub(crate) fn count_limited(&mut self) {
        self.counters.queries += 1;
        self.counters.limited += 1;
    }

    /// Answers a query over the rate limit without records. A query with a cookie gets BADCOOKIE, so that
    /// the client comes again with the right one. Other queries get a truncated reply. Messages that are
    /// no queries get none.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond_limited(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        client: IpAddr,
    ) -> Option<Reply<'_>> {
        let Self {
            answers,
            counters,
            groups,
            question,
            expanded,
            head,
            opt,
            identity,
            cookies,
            ..
        } = self;
        let header = receive(message, counters)?;
        let parsed = question.read(message, answers, expanded);
        let question = question.question;
        let (query, is_malformed) = read_rest(message, &header, question, transport);
        if parsed.is_err() || is_malformed || !is_query(&header, question.qtype) {
            counters.limited += 1;
            return None;
        }
        counters.slipped += 1;
        counters.count_type(question.qtype);
        groups.count(NO_GROUP);
        let cookie = query
            .edns
            .and_then(|edns| cookies.check(query.rest(message, edns), client, counters));
        let body = Body::empty(match cookie {
            Some(_) => rcode::BADCOOKIE,
            None => rcode::NOERROR,
        });
        let trail: &[u8] = match query.edns {
            Some(edns) => {
                counters.edns += 1;
                opt.write(edns, &body, || query.about(identity, (None, cookie), &body))
            }
            None => &[],
        };
        let (mut reply, mut fields) = fit(&query, ZoneNumber::NONE, &body, trail, counters);
        if cookie.is_none() {
            counters.truncated += 1;
            fields[0] |= (TC >> 8) as u8;
        }
        reply.rewritten = place(message, &question, expanded, head, &fields);
        Some(reply)
    }
}
