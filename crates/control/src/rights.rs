//! Giving up rights once every queue is open and all content is read.
//!
//! User, groups, capabilities and what limits system calls and files belong to
//! a thread, not to the process. So every thread gives its own up, in the same
//! way, before the first packet is handled; and since threads share memory,
//! none of them keeps any.

mod capabilities;
mod user;

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, set_keep_capabilities};

use crate::args::ServeArgs;
use crate::error::Error;
use user::NewUser;
pub use user::UserSpec;

/// What every thread gives up, decided once from the command line.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    user: NewUser,
}

/// What a thread could not give up, in words for the start block; empty when
/// all went well.
pub(crate) type Missing = Vec<String>;

impl Rights {
    /// Looks up the user that `args` names.
    ///
    /// # Errors
    /// When there is no such user or group.
    pub(crate) fn plan(args: &ServeArgs, program: &str) -> Result<Self, Error> {
        Ok(Self {
            user: NewUser::find(args.user.as_ref(), program)?,
        })
    }

    /// The threads stay who they are.
    #[cfg(test)]
    pub(crate) const fn of_who_started() -> Self {
        Self {
            user: NewUser::Same,
        }
    }

    /// Gives up the calling thread's rights, for good.
    ///
    /// # Errors
    /// When the user that was asked for cannot be assumed, or when the kernel
    /// refuses to take capabilities away.
    pub(crate) fn give_up(&self) -> Result<Missing, Error> {
        self.give_up_but(CapabilitySet::empty())
    }

    fn give_up_but(&self, keep: CapabilitySet) -> Result<Missing, Error> {
        let failed = |errno: Errno| Error::System {
            what: "giving up capabilities",
            source: errno.into(),
        };
        let mut missing = Missing::new();
        set_keep_capabilities(!keep.is_empty()).map_err(failed)?;
        // While there still is the capability that this takes.
        if let Err(errno) = capabilities::empty_bounding_set() {
            missing.push(format!(
                "an empty bounding set ({}; it takes CAP_SETPCAP)",
                text(errno)
            ));
        }
        match &self.user {
            NewUser::Account { account, asked } => match account.assume() {
                Ok(()) => {}
                Err(errno) if *asked => {
                    return Err(Error::User {
                        user: account.to_string(),
                        source: errno.into(),
                    });
                }
                Err(errno) => missing.push(format!("user {account} ({})", text(errno))),
            },
            NewUser::Same => {}
            NewUser::NoneFound => missing.push(
                "another user than root (neither the program's own nor nobody exists; name one \
                 with --user)"
                    .to_owned(),
            ),
        }
        capabilities::keep_only(keep).map_err(failed)?;
        Ok(missing)
    }

    /// As [`give_up`](Self::give_up), for the helper process: where it has
    /// made an interface, it keeps `CAP_NET_ADMIN`, which removing it takes.
    pub(crate) fn give_up_in_helper(&self, made_interface: bool) -> Result<Missing, Error> {
        self.give_up_but(if made_interface {
            CapabilitySet::NET_ADMIN
        } else {
            CapabilitySet::empty()
        })
    }

    /// Who the server runs as, for the start block, once the calling thread
    /// has given up its rights.
    pub(crate) fn user_line(&self) -> String {
        match &self.user {
            NewUser::Account { account, .. } if geteuid() == account.uid() => {
                format!("{account}, no supplementary groups")
            }
            NewUser::Account { .. } | NewUser::Same | NewUser::NoneFound => {
                format!("uid {}, who started the server", geteuid())
            }
        }
    }
}

/// The system's word for an error, without its number.
fn text(errno: Errno) -> String {
    std::io::Error::from(errno).kind().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn plan(line: &str) -> Rights {
        let words = std::iter::once("server").chain(line.split_whitespace());
        Rights::plan(&Cli::parse_from(words).serve, "no-such-user").unwrap()
    }

    /// The lines of this thread's status that tell of its rights.
    fn status() -> BTreeMap<String, String> {
        const TELLING: [&str; 10] = [
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
        ];
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(name, _)| TELLING.contains(name))
            .map(|(name, value)| (name.to_owned(), value.trim().replace('\t', " ")))
            .collect()
    }

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_only() {
        let before = status();
        std::thread::spawn(|| {
            let root = geteuid().is_root();
            let missing = plan("").give_up().unwrap();
            assert_eq!(missing.is_empty(), root, "{missing:?}");
            let now = status();
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(now[set], "0000000000000000", "{set}");
            }
            assert_eq!(now["NoNewPrivs"], "1");
            if root {
                assert_eq!(now["CapBnd"], "0000000000000000");
                assert_eq!(now["Groups"], "");
                for id in ["Uid", "Gid"] {
                    assert_eq!(now[id], "65534 65534 65534 65534", "{id}");
                }
            }
        })
        .join()
        .unwrap();
        assert_eq!(status(), before);
    }
}
