//! Checks the name and the password of requests for protected parts of a site.

use tcpip::{CongestionControl, Connections, Deadline, WriteError};

use super::Web;
use super::conversation::{Conn, Conversation};
use super::core::Core;
use super::writing::{Continuation, Written};
use crate::answer::{Answer, AnswerForm};
use crate::app::App;
use crate::date::Stamp;
use crate::login::{Credentials, Login, LoginCounts, LoginRefusal, Logins};
use crate::pending::{Phase, network};
use crate::request::Request;
use crate::session::{self, Session, Step, Visitor};
use crate::status::Status;
use crate::verdict::Verdict;

/// What becomes of a request with credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// They are right.
    Right,
    Refused(LoginRefusal),
}

impl Core {
    /// Returns what becomes of the request at the start of `data`, or `None` if its credentials are being
    /// checked. `answer` is the answer that asks for a name and a password.
    fn standing<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        data: &[u8],
    ) -> Option<Standing> {
        let wrong = Some(Standing::Refused(LoginRefusal::Wrong));
        if let Login::Refused(refusal) = std::mem::take(&mut conn.state().login) {
            return Some(Standing::Refused(refusal));
        }
        let AnswerForm::Login { from_end, len } = answer.form else {
            return wrong;
        };
        let from = answer.consumed() - usize::from(from_end);
        let Some(credentials) = Credentials::read(&data[from..from + usize::from(len)]) else {
            return wrong;
        };
        let realm = self.site.realm_of_reply(answer.reply);
        let (Some(realm), Some(logins)) = (realm, &mut self.logins) else {
            return Some(Standing::Refused(LoginRefusal::Busy));
        };
        let client = (conn.id(), network(conn.peer().ip()));
        match logins.look_up(realm.users(), credentials, client, conn.now()) {
            None => Some(Standing::Right),
            Some(Login::Refused(refusal)) => Some(Standing::Refused(refusal)),
            Some(waits) => {
                conn.state().login = waits;
                None
            }
        }
    }

    /// Writes the response to a request with credentials. While they are checked, the connection is
    /// parked, and the request stays unread.
    pub(super) fn write_after_login<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<Written, WriteError> {
        let Some(standing) = self.standing(conn, answer, data) else {
            conn.park();
            conn.set_deadline(Deadline::Request, self.answer_timeout);
            return Ok(Written::Other(Continuation::ReadAgain));
        };
        let written = match standing {
            Standing::Right => match Session::admit(&self.site, data) {
                Step::Answer(inner) => self.write_answer(conn, &inner, data, stamp),
                // Cannot happen: the request is complete.
                Step::More { .. } => Err(WriteError::NoSuchContent),
            },
            Standing::Refused(LoginRefusal::Wrong) => {
                self.write_answer(conn, &answer.whole(), data, stamp)
            }
            Standing::Refused(LoginRefusal::Busy) => {
                const STATUS: Status = Status::ServiceUnavailable;
                // Empty lines may precede the request (RFC 9112, section 2.2).
                let is_head = data.trim_ascii_start().starts_with(b"HEAD ");
                let site = self.hosted(answer);
                let body_len = self.assemble_page(site, STATUS, is_head, stamp);
                let written = conn.write_bytes(&self.out);
                written.map(|()| Written::Response(STATUS, body_len))
            }
        };
        if let (Err(_), Standing::Refused(refusal)) = (&written, standing) {
            // The request is offered again.
            conn.state().login = Login::Refused(refusal);
        }
        written
    }

    /// Answers a request with credentials that the application has left to the site.
    pub(super) fn answer_after_login<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
        answer: &Answer,
        bytes: &[u8],
    ) -> Continuation {
        let answer = match self.standing(conn, answer, bytes) {
            None => {
                let fields = self.response.fields().clone();
                let continuation = self.wait(conn, request, bytes, fields);
                if continuation != Continuation::Wait {
                    self.forget_login(conn);
                }
                return continuation;
            }
            Some(Standing::Right) => {
                session::answer_to(&self.site, request.head(), bytes, Visitor::Known)
            }
            Some(Standing::Refused(LoginRefusal::Wrong)) => answer.whole(),
            Some(Standing::Refused(LoginRefusal::Busy)) => {
                let (site, status) = (self.hosted(answer), Status::ServiceUnavailable);
                return self.answer_page_of(conn, site, status, request);
            }
        };
        self.answer_by_site(conn, request, &answer, bytes)
    }

    /// Answers a connection whose check has taken too long with 503. Returns false if there is none.
    pub(super) fn give_up_login<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        if self.was_evicted(conn) || !self.forget_login(conn) {
            return false;
        }
        self.continue_login(conn, Login::Refused(LoginRefusal::Busy));
        true
    }

    /// Stops waiting for the check of a connection's request. Returns false if there is none.
    pub(super) fn forget_login<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let Login::Waits(number) = conn.state().login else {
            return false;
        };
        conn.state().login = Login::Unknown;
        if let Some(logins) = &mut self.logins {
            logins.give_up(number);
        }
        true
    }

    /// Continues a connection whose credentials were checked.
    fn continue_login<S>(&mut self, conn: &mut Conn<'_, S>, login: Login) {
        // An evicted request is not read again, and the next one has its own credentials.
        let is_evicted = self.was_evicted(conn);
        conn.state().login = if is_evicted { Login::Unknown } else { login };
        let place = conn.state().place;
        let Some(Phase::Answer {
            serial,
            close,
            fields,
        }) = self.pending.phase(place)
        else {
            conn.resume();
            return;
        };
        let is_read = !*close;
        // Meanwhile the application may have had requests of other clients.
        self.serial = *serial;
        self.response.clear();
        self.response.set_fields(std::mem::take(fields));
        let answered = self.answer_pending(conn, place, is_read, |core, conn, request, bytes| {
            core.answer(conn, request, bytes, Verdict::Site)
        });
        if answered == Continuation::ReadNext {
            conn.offer_again();
        }
    }

    /// Continues the connections whose credentials were checked.
    fn continue_logins<S: Default, C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<S>, C>,
    ) {
        let now = connections.now();
        let checked = self.logins.as_mut().map(|logins| logins.take_checked(now));
        for (id, number, login) in checked.into_iter().flatten() {
            if let Some(mut conn) = connections.get(id)
                && conn.state().login == Login::Waits(number)
            {
                self.continue_login(&mut conn, login);
            }
        }
    }
}

impl<A: App> Web<A> {
    /// Checks credentials on the thread of `logins`.
    pub(crate) fn set_logins(&mut self, logins: Logins) {
        self.core.logins = Some(logins);
    }

    /// What was checked for this worker, if a site asks for passwords.
    pub(crate) fn login_counts(&self) -> Option<LoginCounts> {
        self.core.logins.as_ref().map(Logins::counts)
    }

    /// Continues the connections whose credentials were checked.
    pub(crate) fn continue_logins<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<A::State>, C>,
    ) {
        self.core.continue_logins(connections);
    }
}
