//! Basic authentication (RFC 7617): parts of a site for which a client needs a name and a password.
//!
//! To check a password takes milliseconds on purpose, so a thread beside the workers does it. The
//! connection is parked meanwhile. A worker remembers credentials that were right for a while, so a
//! page with many files takes one check.

mod checks;
mod credentials;
mod logins;
mod queue;
mod realm;
mod users;

pub(crate) use checks::Checks;
pub(crate) use credentials::Credentials;
pub(crate) use logins::{Login, LoginCounts, LoginRefusal, Logins};
pub(crate) use realm::{Realm, RealmFile, RealmPath, RealmText};
pub(crate) use users::Users;
