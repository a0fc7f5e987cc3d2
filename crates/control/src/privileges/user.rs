//! `--user`: the user that the server's threads become.

use std::fmt;
use std::str::FromStr;

use nix::unistd::{Group, User};
use rustix::process::{Gid, Uid, geteuid};

use crate::error::Error;

/// The unprivileged user that exists on practically every system.
const NOBODY: &str = "nobody";

/// The value of the option `--user`, in the form `NAME[:GROUP]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSpec {
    user: String,
    /// The group, or `None` for the user's primary group.
    group: Option<String>,
}

impl FromStr for UserSpec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group.to_owned())),
            None => (text, None),
        };
        if user.is_empty() || group.as_deref() == Some("") {
            return Err("expected NAME or NAME:GROUP");
        }
        Ok(Self {
            user: user.to_owned(),
            group,
        })
    }
}

impl UserSpec {
    /// Looks up the user and the group. Returns the errors about both.
    pub(crate) fn check(&self) -> Vec<Error> {
        let user = find_user(&self.user).err();
        let group = self.group.as_ref();
        let group = group.and_then(|group| find_group(group).err());
        user.into_iter().chain(group).collect()
    }
}

/// A user and a group, with the user's name and the numeric IDs of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// Returns the numbers of the user and the group.
    pub(super) fn ids(&self) -> (Uid, Gid) {
        (self.uid, self.gid)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, uid, gid } = self;
        write!(f, "{name} (uid {uid}, gid {gid})")
    }
}

/// The user that the threads become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewUser {
    /// Switch to `account`. `required` says whether `--user` named the account. If so, a failure to
    /// switch to it is an error.
    Account { account: Account, required: bool },
    /// No change: an ordinary user started the server.
    Same,
    /// The threads stay root, because neither the program's own user nor `nobody` exists.
    NoneFound,
}

impl NewUser {
    /// Finds the user to switch to: the user of `--user`, or else the user with the name `program`,
    /// or else `nobody`. A server started by an ordinary user keeps that user.
    pub(crate) fn find(spec: Option<&UserSpec>, program: &str) -> Result<Self, Error> {
        if let Some(spec) = spec {
            let account = look_up(&spec.user, spec.group.as_deref())?;
            return Ok(Self::Account {
                account,
                required: true,
            });
        }
        if !geteuid().is_root() {
            return Ok(Self::Same);
        }
        for name in [program, NOBODY] {
            match look_up(name, None) {
                Ok(account) => {
                    return Ok(Self::Account {
                        account,
                        required: false,
                    });
                }
                Err(Error::UnknownUser { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::NoneFound)
    }
}

fn look_up(user: &str, group: Option<&str>) -> Result<Account, Error> {
    let user = find_user(user)?;
    let gid = match group {
        None => user.gid,
        Some(group) => find_group(group)?.gid,
    };
    Ok(Account {
        name: user.name,
        uid: Uid::from_raw(user.uid.as_raw()),
        gid: Gid::from_raw(gid.as_raw()),
    })
}

fn find_user(name: &str) -> Result<User, Error> {
    found("user", name, User::from_name(name))
}

fn find_group(name: &str) -> Result<Group, Error> {
    found("group", name, Group::from_name(name))
}

/// Returns the user or group that was looked up.
fn found<T>(kind: &'static str, name: &str, entry: nix::Result<Option<T>>) -> Result<T, Error> {
    let entry = unknown_if_missing(entry).map_err(|errno| Error::System {
        what: "looking up a user",
        source: errno.into(),
    })?;
    let name = || name.to_owned();
    entry.ok_or_else(|| Error::UnknownUser { kind, name: name() })
}

/// Returns `None` also if the system has no table of users, as in a container with nothing but the
/// program. Depending on the C library, a look-up then fails instead.
fn unknown_if_missing<T>(entry: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    match entry {
        Err(nix::Error::ENOENT | nix::Error::ESRCH) => Ok(None),
        entry => entry,
    }
}

/// Describes the present user of this thread, if it stays the same.
pub(super) fn same_user() -> String {
    format!("uid {}, the user who started the server", geteuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> UserSpec {
        text.parse().unwrap()
    }

    #[test]
    fn a_system_without_users_has_no_such_user() {
        for error in [nix::Error::ENOENT, nix::Error::ESRCH] {
            assert_eq!(unknown_if_missing::<()>(Err(error)), Ok(None));
        }
        let other = Err(nix::Error::EACCES);
        assert_eq!(unknown_if_missing::<()>(other), other);
        assert_eq!(unknown_if_missing(Ok(Some(7))), Ok(Some(7)));
    }

    #[test]
    fn a_user_option_may_name_a_group() {
        let parsed = spec("www:staff");
        assert_eq!(
            (parsed.user.as_str(), parsed.group.as_deref()),
            ("www", Some("staff"))
        );
        assert_eq!(spec("www").group, None);
        for wrong in ["", ":", "www:", ":staff"] {
            assert!(wrong.parse::<UserSpec>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn users_are_found_by_name() {
        let user = NewUser::find(Some(&spec("root:daemon")), "x").unwrap();
        let NewUser::Account { account, required } = user else {
            panic!("{user:?}");
        };
        assert!(required && account.uid.is_root() && !account.gid.is_root());
        for unknown in ["no-such-user", "root:no-such-group"] {
            let message = NewUser::find(Some(&spec(unknown)), "x")
                .unwrap_err()
                .to_string();
            assert!(message.contains("no-such"), "{message}");
        }
    }

    #[test]
    fn a_check_finds_a_wrong_user_and_a_wrong_group() {
        for (text, wrong) in [
            ("root:daemon", &[][..]),
            ("no-user:daemon", &["no-user"]),
            ("root:no-group", &["no-group"]),
            ("no-user:no-group", &["no-user", "no-group"]),
        ] {
            let errors = spec(text).check();
            let names = errors.iter().map(|error| match error {
                Error::UnknownUser { name, .. } => name.as_str(),
                error => panic!("{error}"),
            });
            assert_eq!(names.collect::<Vec<_>>(), wrong, "{text}");
        }
    }

    #[test]
    fn root_becomes_the_programs_user_or_nobody() {
        let default = |program| NewUser::find(None, program).unwrap();
        if !geteuid().is_root() {
            assert_eq!(default("daemon"), NewUser::Same);
            return;
        }
        for (program, expected) in [("daemon", "daemon"), ("no-such-user", "nobody")] {
            let NewUser::Account { account, required } = default(program) else {
                panic!("{program}");
            };
            assert!(!required);
            assert_eq!(account.name, expected);
        }
    }
}
