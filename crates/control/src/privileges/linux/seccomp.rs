//! Seccomp: a short list of allowed system calls for each kind of thread. A few other calls fail
//! with an error, and any call that is not listed kills the process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::calls::{Argument, Call, refused, system_calls};
use crate::privileges::table::Kind;

/// The compiled filters for one kind of thread.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Makes the calls of [`refused`] fail and allows all other calls.
    refusing: BpfProgram,
    /// Kills the process on a call that is neither allowed nor listed in [`refused`]. The kernel
    /// applies both filters, and the stricter result takes effect.
    killing: BpfProgram,
    calls: usize,
}

impl Filter {
    /// Compiles both filters for threads of this kind. They contain this process's id, so they are
    /// valid only in this process.
    pub(super) fn compile(kind: Kind) -> Result<Self, BackendError> {
        let refuse = SeccompAction::Errno(libc::EACCES as u32);
        let (allow, kill) = (SeccompAction::Allow, SeccompAction::KillProcess);
        let listed_calls = system_calls(kind).chain(refused(kind));
        Ok(Self {
            refusing: program(refused(kind), refuse, allow.clone())?,
            killing: program(listed_calls, allow, kill)?,
            calls: system_calls(kind).count(),
        })
    }

    /// Permanently applies both filters to the calling thread.
    pub(super) fn apply(&self) -> Result<(), seccompiler::Error> {
        apply_filter(&self.refusing)?;
        // The killing filter comes last, because it forbids installing further filters.
        apply_filter(&self.killing)
    }

    /// Returns the number of allowed system calls.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }
}

/// Compiles a filter that takes action `listed` for these calls and action `other` for all other
/// calls.
fn program<'a>(
    calls: impl Iterator<Item = &'a Call>,
    listed: SeccompAction,
    other: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::new();
    for call in calls {
        // A call without alternatives has no condition.
        let more = call.argument.map_or(Ok(Vec::new()), alternatives)?;
        match rules.entry(call.number) {
            Entry::Vacant(entry) => drop(entry.insert(more)),
            Entry::Occupied(mut entry) if more.is_empty() => entry.get_mut().clear(),
            Entry::Occupied(entry) if entry.get().is_empty() => {}
            Entry::Occupied(mut entry) => entry.get_mut().extend(more),
        }
    }
    SeccompFilter::new(rules, other, listed, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Returns the rules for a condition, which holds if at least one rule matches.
fn alternatives(argument: Argument) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |index, arg_len, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(
            index, arg_len, operator, value,
        )?])
    };
    match argument {
        Argument::OneOf(index, values) => values
            .iter()
            .map(|&value| rule(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value))
            .collect(),
        Argument::Without(index, bits) => Ok(vec![rule(
            index,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(bits),
            0,
        )?]),
        Argument::ThisProcess(index) => Ok(vec![rule(
            index,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(std::process::id()),
        )?]),
    }
}
