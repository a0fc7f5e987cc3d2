//! Copies measured figures into README.md, and checks that README.md still has them.

use std::fmt::Write as _;

use super::instructions::Baseline;
use super::report::thousands;
use crate::markdown::{owned, write_table};
use crate::shell;
use anyhow::{Context as _, Result, anyhow};

/// File that receives the figures.
const README: &str = "README.md";
/// Pages with figures. Each has the name of the block to copy.
const PAGES: [(&str, &str); 2] = [("benches/RESULTS.md", SUMMARY), ("benches/LOSS.md", LOSS)];

/// Names of the marked blocks in README.md and in [`PAGES`].
pub(crate) const SUMMARY: &str = "comparison";
pub(crate) const LOSS: &str = "loss";
const INSTRUCTIONS: &str = "instructions";

/// Writes a block of Markdown between the block's markers.
pub(crate) fn write(text: &mut String, name: &str, block: &str) {
    let [begin, end] = markers(name);
    let _ = writeln!(text, "{begin}\n\n{}\n\n{end}", block.trim());
}

/// Returns a block's begin and end markers, which are HTML comments. Markdown renderers hide them.
fn markers(name: &str) -> [String; 2] {
    let begin = format!("<!-- {name}: `cargo xtask bench figures` writes this block -->");
    [begin, format!("<!-- end of {name} -->")]
}

/// Returns the text before a block, the block, and the text after it.
fn split<'a>(text: &'a str, name: &str, file: &str) -> Result<[&'a str; 3]> {
    let [begin, end] = markers(name);
    let find = || {
        let (before, rest) = text.split_once(&begin)?;
        let (block, after) = rest.split_once(&end)?;
        Some([before, block.trim(), after])
    };
    find().ok_or_else(|| anyhow!("{file} lacks the markers {begin} and {end}"))
}

/// Returns a block of a page.
#[cfg(test)]
pub(crate) fn block<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    Ok(split(page, name, "the page")?[1])
}

/// Returns the `text` of README.md with all blocks updated. `pages` are the texts of [`PAGES`].
fn quoted(text: &str, pages: &[String], baseline: &Baseline) -> Result<String> {
    let mut blocks = vec![(INSTRUCTIONS, instructions(baseline)?)];
    for ((file, name), page) in PAGES.iter().zip(pages) {
        blocks.push((name, split(page, name, file)?[1].to_owned()));
    }
    blocks
        .into_iter()
        .try_fold(text.to_owned(), |text, (name, block)| {
            let [before, _, after] = split(&text, name, README)?;
            let mut written = String::new();
            write(&mut written, name, &block);
            Ok(format!("{before}{}{after}", written.trim_end()))
        })
}

/// Rows of the table of instructions in README.md, with the workloads of each row.
#[rustfmt::skip]
const WORK: &[(&str, &[&str])] = &[
    ("a datagram of 64 bytes sent back, with its checksums verified and made", &["reflect-64"]),
    ("a DNS answer, 100 names", &["dns-turnaround-100"]),
    ("an ACK that releases a full segment", &["ack-to-segment-precopy", "ack-to-segment-memcopy"]),
    ("a GET of 1 KB that the server has seen before", &["http-get-1k-precopy", "http-get-1k-memcopy"]),
    ("a GET of one of 1,000 pages, with the same fields", &["http-get-1000-pages"]),
    ("a GET of one of 1,000 pages, with fields of its own", &["http-get-strangers"]),
    ("a connection with one GET", &["http-new-1k-precopy", "http-new-1k-memcopy"]),
];

fn instructions(baseline: &Baseline) -> Result<String> {
    let mut rows = Vec::new();
    for (what, workloads) in WORK {
        let count = |name: &&str| {
            let count = baseline.instructions.get(*name).copied().map(thousands);
            count.ok_or_else(|| anyhow!("no count of {name}"))
        };
        let counts = workloads.iter().map(count).collect::<Result<Vec<_>>>()?;
        rows.push(vec![(*what).to_owned(), counts.join(" to ")]);
    }
    let mut text = String::new();
    write_table(&mut text, &owned(&["work", "instructions"]), &rows);
    Ok(text)
}

/// Updates the blocks in README.md. If `check` is set, only returns an error if the blocks differ
/// from the measured figures.
pub(crate) fn run(check: bool) -> Result<()> {
    let read = |name| {
        let path = shell::repository().join(name);
        std::fs::read_to_string(path).with_context(|| format!("reading {name}"))
    };
    let readme = read(README)?;
    let pages = PAGES.map(|(file, _)| read(file));
    let pages = pages.into_iter().collect::<Result<Vec<_>>>()?;
    let expected = quoted(&readme, &pages, &Baseline::read()?)?;
    if readme == expected {
        println!("figures: {README} has the measured figures");
        return Ok(());
    }
    if check {
        let mut lines = readme.lines().zip(expected.lines());
        let (found, expected) = lines
            .find(|(found, expected)| found != expected)
            .unwrap_or_default();
        return Err(anyhow!(
            "{README} has\n  {found}\nbut the measured figures are\n  {expected}\n`cargo xtask \
             bench figures` quotes them again"
        ));
    }
    let path = shell::repository().join(README);
    std::fs::write(path, expected).with_context(|| format!("writing {README}"))?;
    println!("figures: written to {README}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_figure_is_found() {
        let page = |name, block| {
            let mut text = "before\n".to_owned();
            write(&mut text, name, block);
            text + "after\n"
        };
        let counts = WORK.iter().flat_map(|(_, names)| *names);
        let mut baseline = Baseline::default();
        baseline
            .instructions
            .extend(counts.map(|name| ((*name).to_owned(), 597.4)));
        let pages = [
            page(SUMMARY, "| rate | 784,000 |"),
            page(LOSS, "| goodput | 1.09 |"),
        ];
        let readme = page(SUMMARY, "| rate | 1 |") + &page(INSTRUCTIONS, "") + &page(LOSS, "");
        let expected = quoted(&readme, &pages, &baseline).unwrap();
        assert!(expected.contains("784,000") && expected.contains("597"));
        assert_eq!(quoted(&expected, &pages, &baseline).unwrap(), expected);
        for (figure, other) in [("784,000", "785,000"), ("597", "598"), ("1.09", "1.10")] {
            let changed = expected.replace(figure, other);
            assert_eq!(quoted(&changed, &pages, &baseline).unwrap(), expected);
        }
        assert!(quoted("no markers", &pages, &baseline).is_err());
    }
}
