//! The command `connections`.

use std::process::ExitCode;

use clap::Args;

use super::lines::ListLine;
use super::socket::SocketArgs;
use crate::table::filter::ConnectionFilter;
use crate::table::line::Line;
use crate::units::number;

/// The options of `connections`.
#[derive(Args, Clone, Debug)]
pub struct ConnectionsArgs {
    #[command(flatten)]
    filter: ConnectionFilter,

    /// Maximum number of connections to show. The last line says how many there are.
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = number::<u32>(1..=u32::MAX))]
    limit: u32,

    /// Print a line of JSON for each connection, and one with a summary at the end.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: SocketArgs,
}

impl ConnectionsArgs {
    pub(super) fn run(&self, program: &str) -> Result<ExitCode, String> {
        let query = self.filter.to_query();
        let target = format!("/connections?{query}limit={}", self.limit);
        let show = |line: &str| {
            let parsed = serde_json::from_str::<Line>(line).ok()?;
            let as_json = || format!("{line}\n");
            Some(match parsed {
                Line::Connection(_) if self.json => ListLine::Part(as_json()),
                Line::Connection(row) => ListLine::Part(row.to_string()),
                Line::End { .. } if self.json => ListLine::End(as_json()),
                Line::End { summary } => ListLine::End(format!("{summary}\n")),
            })
        };
        self.at.print_list(program, &target, show)?;
        Ok(ExitCode::SUCCESS)
    }
}
