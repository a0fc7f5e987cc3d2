//! The report: a page of charts, and a table for the repository's own pages,
//! both made of the raw results alone.

mod charts;
mod extras;
mod markdown;
mod marks;
mod model;
mod page;
mod paper;
#[cfg(test)]
mod sample;
mod sections;
mod table;

use std::path::{Path, PathBuf};

use super::results::Results;
use crate::shell::{self, Context as _, Failure, Result};

/// The page.
pub(crate) const PAGE: &str = "report.html";
/// The table.
pub(crate) const TABLE: &str = "table.md";
/// Where `xtask bench` leaves its raw results, in the target folder.
const RESULTS: &str = "bench/results.json";

/// Writes page and table into `folder`, which is there.
pub(crate) fn write(results: &Results, folder: &Path) -> Result<()> {
    let files = [
        (PAGE, page::page(results)?),
        (TABLE, markdown::table(results)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).context(format_args!("writing {}", path.display()))?;
    }
    Ok(())
}

/// `xtask bench report [FILE]`: draws raw results again, into their folder.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let path = match args {
        [] => shell::target_folder()?.join(RESULTS),
        [path] if !path.starts_with('-') => PathBuf::from(path),
        _ => {
            return Err(Failure::new(format!(
                "report takes the file of raw results, not {}",
                args.join(" ")
            )));
        }
    };
    let text = std::fs::read(&path).context(format_args!(
        "reading {}, which `cargo xtask bench` writes",
        path.display()
    ))?;
    let results =
        serde_json::from_slice(&text).context(format_args!("reading {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    write(&results, folder)?;
    println!("report: {}", folder.join(PAGE).display());
    println!("report: {}", folder.join(TABLE).display());
    Ok(())
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
