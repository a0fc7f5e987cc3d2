//! The command `zones`.

use std::process::ExitCode;

use clap::Args;
use control::log::error;
use control::{ListLine, SocketArgs};

use crate::inventory::{Heading, Line, ZONES};
use crate::name::{Name, Shown};

/// The options of the command `zones`.
#[derive(Args, Clone, Debug)]
pub struct ZonesArgs {
    /// Show only the zones with these names. The exit status is 1 if there is no such zone.
    #[arg(value_name = "NAME")]
    names: Vec<Name>,

    /// Print a line of JSON for each zone, and one with a summary at the end.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: SocketArgs,
}

impl ZonesArgs {
    /// Runs the command for the program with this name. Returns the exit status.
    pub fn run(&self, program: &str) -> ExitCode {
        match self.print(program) {
            Ok(unknown) if unknown.is_empty() => ExitCode::SUCCESS,
            Ok(unknown) => {
                let unknown = unknown.join(", ");
                error(program, format!("no zone is called {unknown}"));
                ExitCode::FAILURE
            }
            Err(message) => {
                error(program, message);
                ExitCode::FAILURE
            }
        }
    }

    /// Prints the list. Returns the names that no zone has.
    fn print(&self, program: &str) -> Result<Vec<String>, String> {
        let mut unknown = Vec::new();
        let mut heading = (!self.json).then(|| Heading.to_string());
        self.at.print_list(program, &self.target(), |line| {
            let parsed = serde_json::from_str::<Line>(line).ok()?;
            let heading = heading.take().unwrap_or_default();
            let text = match (&parsed, self.json) {
                (_, true) => format!("{line}\n"),
                (Line::Zone(row), false) => format!("{heading}{row}"),
                (Line::End { summary }, false) => format!("{summary}\n"),
            };
            Some(match parsed {
                Line::Zone(_) => ListLine::Part(text),
                Line::End { summary } => {
                    unknown = summary.unknown;
                    ListLine::End(text)
                }
            })
        })?;
        Ok(unknown)
    }

    /// Returns the path and the query of the list.
    fn target(&self) -> String {
        let names: Vec<_> = self.names.iter().map(query).collect();
        format!("/{ZONES}?{}", names.join("&"))
    }
}

/// Returns the part of the query for a name. Bytes that have a meaning there are escaped.
fn query(name: &Name) -> String {
    let text = Shown(name.as_wire()).to_string();
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02x}"),
    });
    format!("name={}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        zones: ZonesArgs,
    }

    #[test]
    fn names_are_checked_and_escaped() {
        let target = |names: &[&str]| {
            let words = ["zones"].into_iter().chain(names.iter().copied());
            Cli::try_parse_from(words).map(|cli| cli.zones.target())
        };
        assert_eq!(target(&[]).unwrap(), "/zones?");
        assert_eq!(
            target(&["Example.org", "a&b\\.c.example."]).unwrap(),
            "/zones?name=Example.org.&name=a%26b%5c.c.example."
        );
        assert!(target(&["a..b"]).is_err());
    }
}
