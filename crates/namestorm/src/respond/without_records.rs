//! Replies without records: to queries over the rate limit, and to queries with a wrong signature.

use std::net::{IpAddr, SocketAddr};

use super::{Query, Reply, Responder, Transport, fit, is_query, place, read_rest, receive};
use crate::answers::ZoneNumber;
use crate::bare::BareReply;
use crate::body::Body;
use crate::cookie::Checked;
use crate::counters::Counters;
use crate::edns::COOKIE;
use crate::groups::NO_GROUP;
use crate::query::{Header, TC};
use crate::rate_limit::Exemption;
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
        if question.parse(message, answers, expanded).is_err() {
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

    /// Counts a query over the rate limit that is answered all the same.
    #[cold]
    pub(crate) fn count_exempt(&mut self, exemption: Exemption) {
        match exemption {
            Exemption::Client => self.counters.exempt_clients += 1,
            Exemption::Cookie => self.counters.exempt_cookies += 1,
            Exemption::Signature => self.counters.exempt_signatures += 1,
        }
    }

    /// Answers a query over the rate limit. A query with a cookie gets BADCOOKIE, so that the client comes
    /// again with the right one. Other queries get a truncated reply. Messages that are no queries get
    /// none.
    ///
    /// The reply has no other option than the cookie, so that it exceeds the query at most by the server's
    /// part of it. A query whose compressed name is longer in the reply gets none.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond_limited(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        client: IpAddr,
    ) -> Option<Reply<'_>> {
        let header = receive(message, &mut self.counters)?;
        let query = self.read_query(message, &header, transport);
        let Some(mut query) = query.filter(|query| !query.question.grows()) else {
            self.counters.limited += 1;
            return None;
        };
        if let Some(edns) = &mut query.edns {
            edns.options.keep_only(COOKIE);
        }
        self.counters.slipped += 1;
        let choose = |cookie: Option<Checked>, counters: &mut Counters| {
            if cookie.is_some() {
                return (rcode::BADCOOKIE, 0);
            }
            counters.truncated += 1;
            (rcode::NOERROR, TC)
        };
        Some(self.without_records(message, &query, client, choose))
    }

    /// Answers a message whose signature is wrong. A query gets this response code, and other messages get
    /// the same as without a signature.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond_unverified(
        &mut self,
        message: &mut [u8],
        transport: Transport,
        client: SocketAddr,
        rcode: u16,
    ) -> Option<Reply<'_>> {
        let header = receive(message, &mut self.counters)?;
        let Some(query) = self.read_query(message, &header, transport) else {
            let Self {
                counters,
                groups,
                opt,
                identity,
                cookies,
                ..
            } = self;
            let bare = BareReply::to(message, &header, client, cookies, counters);
            let counts = (counters, groups);
            return Some(Reply::bare(bare.write(message, opt, identity, counts)));
        };
        Some(self.without_records(message, &query, client.ip(), |_, _| (rcode, 0)))
    }

    /// Reads a message with this header. Returns `None` if it is no query.
    fn read_query(
        &mut self,
        message: &[u8],
        header: &Header,
        transport: Transport,
    ) -> Option<Query> {
        let parsed = self
            .question
            .parse(message, &self.answers, &mut self.expanded);
        let question = self.question.question;
        let (query, is_malformed) = read_rest(message, header, question, transport);
        let is_query = parsed.is_ok() && !is_malformed && is_query(header, question.qtype);
        is_query.then_some(query)
    }

    /// Answers a query with the response code and the flags that `choose` returns for its cookie.
    fn without_records(
        &mut self,
        message: &mut [u8],
        query: &Query,
        client: IpAddr,
        choose: impl FnOnce(Option<Checked>, &mut Counters) -> (u16, u16),
    ) -> Reply<'_> {
        let Self {
            counters,
            groups,
            expanded,
            head,
            opt,
            identity,
            cookies,
            limits,
            ..
        } = self;
        let cookie = query.cookie::<true>(message, cookies, || client, counters);
        let (rcode, flags) = choose(cookie, counters);
        groups.count_zone::<true>(ZoneNumber::NONE);
        groups.count::<true>(NO_GROUP, query.question.qtype, rcode);
        let body = Body::empty(rcode);
        let trail = query.write_opt(opt, identity, (None, cookie), &body, counters);
        let (mut reply, mut fields) = fit(query, limits, ZoneNumber::NONE, &body, trail, counters);
        fields[0] |= (flags >> 8) as u8;
        reply.rewritten = place(message, &query.question, expanded, head, &fields);
        reply
    }
}
