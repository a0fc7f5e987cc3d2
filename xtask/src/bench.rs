//! `xtask bench`: the servers beside their peers and the rig's limit.

mod instructions;
pub(crate) mod results;

use crate::shell::{Failure, Result};

pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some("instructions") => instructions::run(&args[1..]),
        Some(other) => Err(Failure::new(format!("there is no comparison {other}"))),
        None => Err(Failure::new("what to compare is not said")),
    }
}
