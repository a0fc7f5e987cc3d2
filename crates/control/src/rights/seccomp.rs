//! Seccomp: a short list of system calls for each kind of thread. Any other
//! call kills the process.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::table::{Argument, Kind, system_calls};

/// A compiled list.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    program: BpfProgram,
    calls: usize,
}

impl Filter {
    /// The list for threads of this kind, in this process.
    pub(super) fn compile(kind: Kind) -> Result<Self, BackendError> {
        let mut rules = BTreeMap::new();
        for call in system_calls(kind) {
            let alternatives = call.argument.map_or(Ok(Vec::new()), alternatives)?;
            rules.insert(call.number, alternatives);
        }
        let calls = rules.len();
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into()?,
        )?;
        Ok(Self {
            program: filter.try_into()?,
            calls,
        })
    }

    /// Confines the calling thread, for good.
    pub(super) fn apply(&self) -> Result<(), seccompiler::Error> {
        apply_filter(&self.program)
    }

    /// System calls on the list.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }
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
