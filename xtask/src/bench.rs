//! `xtask bench`: the servers beside their peers and the rig's limit.

pub(crate) mod results;
