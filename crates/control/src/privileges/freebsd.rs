//! Privileges and sandbox on FreeBSD, where all threads of a process have the same.
#![allow(unsafe_code)]

use std::io;

use nix::unistd::{setgroups, setresgid, setresuid};
use rustix::process::{Gid, Uid};

use super::table::{Kind, Table};
use super::user::same_user;
use crate::error::Error;

/// Stands for the capability mode of Capsicum, which needs no preparation.
#[derive(Debug)]
pub(super) struct Limits;

impl Limits {
    /// Prepares the limits. This never fails on FreeBSD.
    #[expect(clippy::unnecessary_wraps, reason = "it fails on Linux")]
    pub(super) fn new(_table: &Table) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// Permanently drops the privileges of the process, on its control thread or in the helper. Other threads
/// leave this to the control thread. Inside another program there is no control thread of ours, so
/// the process keeps its privileges, and `missing` says so.
///
/// `change_user` changes the user and describes it. Returns this description.
pub(super) fn drop_all(
    kind: Kind,
    table: &Table,
    limits: Option<&Limits>,
    missing: &mut Vec<String>,
    change_user: impl FnOnce(&mut Vec<String>) -> Result<String, Error>,
) -> Result<String, Error> {
    if !matches!(kind, Kind::Control | Kind::Helper) {
        if table.is_embedded() {
            missing.push(
                "a user and a sandbox for the workers (on FreeBSD they have those of the program)"
                    .to_owned(),
            );
        }
        return Ok(same_user());
    }
    let user = change_user(missing)?;
    if limits.is_some()
        && let Err(error) = enter_capability_mode()
    {
        missing.push(format!("Capsicum ({})", error.kind()));
    }
    Ok(user)
}

/// Switches all threads of the process to this user, without supplementary groups.
pub(super) fn assume(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw().into(), gid.as_raw().into());
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Permanently limits the process to the descriptors that it has. It can then open no file, and no
/// socket can be bound or connected.
fn enter_capability_mode() -> io::Result<()> {
    // SAFETY: the call has no arguments and accesses no memory.
    if unsafe { libc::cap_enter() } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Describes the sandbox for the start block. `None`: it is off by option.
pub(super) fn describe(limits: Option<&Limits>, table: &Table) -> String {
    match (limits, table.is_embedded()) {
        (None, _) => "off by option".to_owned(),
        (Some(_), true) => "that of the program in which the server runs".to_owned(),
        (Some(_), false) => {
            "Capsicum: no file can be opened, and no socket bound or connected; single system calls \
             are not limited"
                .to_owned()
        }
    }
}
