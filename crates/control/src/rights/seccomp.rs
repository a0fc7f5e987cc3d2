//! Seccomp: a short list of system calls for each kind of thread. A few others
//! fail; any other call kills the process.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::table::{Argument, Call, Kind, REFUSED, system_calls};

/// A compiled list.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Lets [`REFUSED`] fail, and all else pass.
    refusing: BpfProgram,
    /// Kills for what is on neither list. Of two filters the kernel obeys the
    /// stricter one.
    killing: BpfProgram,
    calls: usize,
}

impl Filter {
    /// The list for threads of this kind, in this process.
    pub(super) fn compile(kind: Kind) -> Result<Self, BackendError> {
        let refuse = SeccompAction::Errno(libc::EACCES as u32);
        let (allow, kill) = (SeccompAction::Allow, SeccompAction::KillProcess);
        let known = system_calls(kind).chain(REFUSED);
        Ok(Self {
            refusing: program(REFUSED.iter(), refuse, allow.clone())?,
            killing: program(known, allow, kill)?,
            calls: system_calls(kind).count(),
        })
    }

    /// Confines the calling thread, for good.
    pub(super) fn apply(&self) -> Result<(), seccompiler::Error> {
        apply_filter(&self.refusing)?;
        // Last, as no list has the call that this takes.
        apply_filter(&self.killing)
    }

    /// System calls on the list.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }
}

/// A program that does `listed` to these calls and `other` to all others.
fn program<'a>(
    calls: impl Iterator<Item = &'a Call>,
    listed: SeccompAction,
    other: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::new();
    for call in calls {
        let alternatives = call.argument.map_or(Ok(Vec::new()), alternatives)?;
        rules.insert(call.number, alternatives);
    }
    SeccompFilter::new(rules, other, listed, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Any one of these rules is enough.
fn alternatives(argument: Argument) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |place, width, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(place, width, operator, value)?])
    };
    match argument {
        Argument::OneOf(place, values) => values
            .iter()
            .map(|&value| rule(place, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value))
            .collect(),
        Argument::Without(place, bits) => Ok(vec![rule(
            place,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(bits),
            0,
        )?]),
        Argument::ThisProcess(place) => Ok(vec![rule(
            place,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(std::process::id()),
        )?]),
    }
}
