//! A worker's memory of the credentials that were right, and its queue of those to be checked.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nmio::{Bell, Instant, Mailbox, mailbox};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tcpip::ConnectionId;

use super::checks::{Check, CheckTask, Checked, Checks};
use super::credentials::Credentials;
use super::queue::Queue;
use super::users::Users;

/// Time for which credentials are remembered after their check.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Maximum number of credentials that a worker remembers.
const MAX_REMEMBERED: usize = 4_096;

/// What is known of the credentials of a connection's next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Login {
    /// Nothing.
    #[default]
    Unknown,
    /// The credentials of its request wait for a check, with this number.
    Waits(u64),
    /// The request is not admitted. That the credentials are right is never kept here, because another
    /// request could come first.
    Refused(LoginRefusal),
}

/// Where users are in memory. No other users are there as long as these are.
type Place = usize;

fn place(users: &Arc<Users>) -> Place {
    Arc::as_ptr(users).addr()
}

/// Why a request is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginRefusal {
    /// The credentials are wrong, or there are none.
    Wrong,
    /// There was no time to check them.
    Busy,
}

/// A connection that waits for a check.
#[derive(Debug)]
struct Waiting {
    check: Check,
    connection: ConnectionId,
}

/// The credentials that a worker remembers, and those that it has checked.
#[derive(Debug)]
pub(crate) struct Logins {
    keys: (u64, u64),
    /// Hashes of credentials that were right, each with the time until which it is remembered, and the place
    /// of the users whom it belongs to. These users are still those of a site.
    right: HashMap<u128, (Instant, Place)>,
    waiting: Queue<Waiting>,
    /// The connection for which the thread is checking, and the number of the check.
    checking: Option<(u64, ConnectionId)>,
    /// Connections that have waited in vain, and their numbers.
    given_up: Vec<(u64, ConnectionId)>,
    /// Number of checks so far.
    checks: u64,
    /// Number of checks before the users may have changed.
    outdated: u64,
    work: Sender<CheckTask>,
    mailbox: Mailbox<Checked>,
    reply_to: mailbox::Sender<Checked>,
    counts: LoginCounts,
}

/// What a worker has checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoginCounts {
    /// Number of credentials that were right.
    pub(crate) right: u64,
    /// Number of credentials that were wrong.
    pub(crate) wrong: u64,
    /// Number of requests for whose credentials there was no time.
    pub(crate) given_up: u64,
}

impl Logins {
    /// Creates the memory of the worker with this bell.
    pub(crate) fn new(checks: &Checks, bell: &Bell) -> Self {
        // The keys of the standard library's hasher are random.
        let random = std::hash::RandomState::new();
        let (reply_to, mailbox) = bell.mailbox(1);
        Self {
            keys: (random.hash_one(0), random.hash_one(1)),
            right: HashMap::with_capacity(MAX_REMEMBERED),
            waiting: Queue::new(),
            checking: None,
            given_up: Vec::new(),
            checks: 0,
            outdated: 0,
            work: checks.sender(),
            mailbox,
            reply_to,
            counts: LoginCounts::default(),
        }
    }

    /// Returns `None` if these credentials are right. If nothing is known of them, they are checked, and
    /// the connection waits.
    pub(crate) fn look_up(
        &mut self,
        users: &Arc<Users>,
        credentials: Credentials,
        (connection, client): (ConnectionId, IpAddr),
        now: Instant,
    ) -> Option<Login> {
        let hash = self.hash(users, &credentials);
        if self.right.get(&hash).is_some_and(|(until, _)| now < *until) {
            return None;
        }
        self.checks += 1;
        let number = self.checks;
        let check = Check {
            number,
            users: Arc::clone(users),
            credentials,
        };
        let gone = self.waiting.add(client, Waiting { check, connection });
        if let Some(gone) = gone {
            self.counts.given_up += 1;
            if gone.check.number == number {
                return Some(Login::Refused(LoginRefusal::Busy));
            }
            self.given_up.push((gone.check.number, gone.connection));
        }
        self.check_next();
        Some(Login::Waits(number))
    }

    /// Has the next credentials checked, if none are being checked.
    fn check_next(&mut self) {
        if self.checking.is_some() {
            return;
        }
        let Some(Waiting { check, connection }) = self.waiting.take_next() else {
            return;
        };
        self.checking = Some((check.number, connection));
        let work = CheckTask::Check(check, self.reply_to.clone());
        // The thread ends after the workers.
        drop(self.work.send(work));
    }

    /// Returns the connections whose credentials were checked, or for which there was no time, each with
    /// the number of the check and its result.
    pub(crate) fn take_checked(&mut self, now: Instant) -> Vec<(ConnectionId, u64, Login)> {
        let busy = Login::Refused(LoginRefusal::Busy);
        let mut told: Vec<_> = std::mem::take(&mut self.given_up)
            .into_iter()
            .map(|(number, connection)| (connection, number, busy))
            .collect();
        let mut arrived = None;
        self.mailbox.take_all(|checked| arrived = Some(checked));
        if let Some(Checked { check, is_right }) = arrived
            && let Some((number, connection)) = self.checking.take()
        {
            self.counts.right += u64::from(is_right);
            self.counts.wrong += u64::from(!is_right);
            // The users may have changed meanwhile.
            let is_outdated = number <= self.outdated;
            if is_right && !is_outdated {
                let hash = self.hash(&check.users, &check.credentials);
                self.remember(hash, place(&check.users), now);
            }
            // Otherwise the request is read again, and its credentials are looked up.
            let login = if is_right || is_outdated {
                Login::Unknown
            } else {
                Login::Refused(LoginRefusal::Wrong)
            };
            told.push((connection, number, login));
        }
        self.check_next();
        told
    }

    fn remember(&mut self, hash: u128, users: Place, now: Instant) {
        if self.right.len() >= MAX_REMEMBERED {
            self.right.retain(|_, (until, _)| now < *until);
        }
        if self.right.len() >= MAX_REMEMBERED {
            // Those who come again are checked again.
            self.right.clear();
        }
        self.right.insert(hash, (now + REMEMBERED, users));
    }

    /// Leaves out the check with this number, because its connection no longer waits. A running check
    /// continues.
    pub(crate) fn forget(&mut self, number: u64) {
        self.waiting.retain(|one| one.check.number != number);
    }

    /// Same as [`forget`](Self::forget), for a connection that has waited too long.
    pub(crate) fn give_up(&mut self, number: u64) {
        self.forget(number);
        self.counts.given_up += 1;
    }

    /// Forgets the credentials of `old` users who are not among the `new` ones.
    pub(crate) fn change_users<'u>(
        &mut self,
        old: impl Iterator<Item = &'u Arc<Users>>,
        new: impl Iterator<Item = &'u Arc<Users>>,
    ) {
        let new: HashSet<Place> = new.map(place).collect();
        let mut old = old.map(place);
        if old.any(|place| !new.contains(&place)) {
            self.right.retain(|_, (_, place)| new.contains(place));
            self.outdated = self.checks;
        }
    }

    pub(crate) fn counts(&self) -> LoginCounts {
        self.counts
    }

    /// Returns a hash that nobody can compute who does not know the keys.
    fn hash(&self, users: &Arc<Users>, credentials: &Credentials) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        // The same credentials may be right for one file with users and wrong for another.
        std::hash::Hasher::write_usize(&mut hasher, place(users));
        std::hash::Hasher::write(&mut hasher, credentials.as_bytes());
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_logins_of_users_who_have_changed_are_forgotten() {
        const HASH: &str = "$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
        let [a, b, c] = ["a", "b", "c"]
            .map(|name| Arc::new(Users::read(format!("{name}:{HASH}").as_bytes()).unwrap()));
        let mut logins = Logins::new(&Checks::default(), &Bell::new().unwrap());
        let credentials = Credentials::read(b"Basic YTpi").unwrap();
        let hashes = [&a, &b].map(|users| logins.hash(users, &credentials));
        for (hash, users) in hashes.into_iter().zip([&a, &b]) {
            logins.remember(hash, place(users), Instant::ZERO);
        }
        logins.checks = 7;
        let known = |logins: &Logins| hashes.map(|hash| logins.right.contains_key(&hash));
        // A site that is new takes nothing from the others.
        logins.change_users([&a, &b].into_iter(), [&c, &b, &a].into_iter());
        assert_eq!((known(&logins), logins.outdated), ([true, true], 0));
        logins.change_users([&c, &b, &a].into_iter(), [&c, &b].into_iter());
        assert_eq!((known(&logins), logins.outdated), ([false, true], 7));
    }
}
