//! Verifies the cookies of queries, and counts them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::cookie::{Checked, Cookies, Presented};
use crate::counters::Counters;
use crate::edns::{self, COOKIE, Edns};

/// The part of a message behind its question.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'m> {
    pub(crate) message: &'m [u8],
    /// Offset of the first record in the message.
    pub(crate) at: usize,
    /// The content of the OPT record.
    pub(crate) edns: Edns,
}

/// Verifies the cookies of a responder's queries.
#[derive(Debug, Default)]
pub(crate) struct CookieCheck(Option<Arc<Cookies>>);

impl CookieCheck {
    /// Verifies with these cookies from now on.
    pub(crate) fn set_cookies(&mut self, cookies: Arc<Cookies>) {
        self.0 = Some(cookies);
    }

    /// Verifies the cookie of a query from this client. Returns `None` if the query has none.
    pub(crate) fn verify(&self, rest: Rest<'_>, client: IpAddr) -> Option<Checked> {
        let cookies = self.0.as_ref()?;
        if !rest.edns.options.contains(COOKIE) {
            return None;
        }
        let option = edns::option(rest.message, rest.at, COOKIE)?;
        cookies.check(option, client)
    }

    /// Like [`verify`](Self::verify), and counts the query by what its cookie proves.
    pub(crate) fn check(
        &self,
        rest: Rest<'_>,
        client: IpAddr,
        counters: &mut Counters,
    ) -> Option<Checked> {
        let checked = self.verify(rest, client)?;
        match checked.presented() {
            Presented::ClientOnly => counters.new_cookies += 1,
            Presented::Invalid => counters.bad_cookies += 1,
            Presented::Valid => counters.good_cookies += 1,
        }
        Some(checked)
    }
}
