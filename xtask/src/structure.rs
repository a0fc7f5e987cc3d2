//! `xtask structure`: what the crates' files import from each other, how much
//! of them is open to the rest of their crate, and how long they are.

mod circles;
mod lengths;
#[cfg(test)]
mod tests;
mod tree;
mod visibility;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::shell;
use anyhow::{Context as _, Result, anyhow, bail};
use tree::{Files, Tree};

/// Crates whose files may import each other in a circle, and why.
const CIRCLES: &[(&str, &str)] = &[
    ("control", "still to be cut: args and rights"),
    ("ip", "still to be cut: packet and path"),
    (
        "sandstorm",
        "still to be cut: load, root and skipped; recent and session",
    ),
];
/// Crates in which so many items may have restricted visibility, or be public
/// where nobody outside can name them.
const OPEN_ITEMS: &[(&str, usize)] = &[("tcpip", 245)];
/// The crate that only tests may need.
const TEST_KIT: &str = "testkit";
const MAX_FILE_LINES: usize = 700;
const MAX_FUNCTION_LINES: usize = 70;
/// Functions that are longer and still to be cut. Those of tests may be.
const LONG_FUNCTIONS: &[&str] = &[];
/// Where these exceptions are.
const LISTS: &str = "xtask/src/structure.rs";
/// What a crate's code starts from.
const ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// First show the import circles and the restricted items of these crates.
    crates: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let crates = read_crates()?;
    for name in &options.crates {
        let files = crates
            .get(name)
            .ok_or_else(|| anyhow!("there is no crates/{name}"))?;
        print!("{}", details(files));
    }
    let (passed, failed) = check()?;
    if failed > 0 {
        bail!("{failed} checks failed");
    }
    println!("{passed} checks passed");
    Ok(())
}

/// All checks: how many have passed and failed. Says what is wrong.
pub(crate) fn check() -> Result<(u32, u32)> {
    let crates = read_crates()?;
    let (passed, failed) = report(&crates);
    let faults = test_crate_faults(&crates)?;
    for fault in &faults {
        println!("{fault}");
    }
    let is_wrong = !faults.is_empty();
    Ok((passed + u32::from(!is_wrong), failed + u32::from(is_wrong)))
}

/// Crates that need the test kit outside their tests.
fn test_crate_faults(crates: &BTreeMap<String, Files>) -> Result<Vec<String>> {
    let mut faults = vec![];
    for name in crates.keys() {
        let path = shell::repository()
            .join("crates")
            .join(name)
            .join("Cargo.toml");
        let manifest =
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if needs_test_kit(&manifest) {
            faults.push(format!(
                "{name} may need {TEST_KIT} only as a dev-dependency"
            ));
        }
    }
    Ok(faults)
}

/// Whether the test kit is among the dependencies of a manifest.
fn needs_test_kit(manifest: &str) -> bool {
    let mut sections = manifest.split("\n[");
    sections.any(|section| {
        let mut lines = section.lines();
        let title = lines.next().unwrap_or("").trim_matches(['[', ']']);
        title.ends_with("dependencies")
            && !title.ends_with("dev-dependencies")
            && lines.any(|line| line.starts_with(TEST_KIT))
    })
}

fn report(crates: &BTreeMap<String, Files>) -> (u32, u32) {
    let (mut passed, mut failed) = (0, 0);
    for (name, files) in crates {
        for faults in [
            circle_faults(name, files, CIRCLES.iter().any(|(other, _)| other == name)),
            open_item_faults(name, files),
            length_faults(name, files),
        ] {
            for fault in &faults {
                println!("{fault}");
            }
            passed += u32::from(faults.is_empty());
            failed += u32::from(!faults.is_empty());
        }
    }
    (passed, failed)
}

/// An `excepted` crate has circles, and a fault if it has none.
fn circle_faults(name: &str, files: &Files, excepted: bool) -> Vec<String> {
    let mut circles = vec![];
    for tree in trees(files) {
        let edges = circles::edges(&tree);
        circles.extend(circles::circles(&edges).iter().map(|circle| {
            let files: Vec<_> = circle.iter().map(|file| file.to_string_lossy()).collect();
            format!(
                "{name}: these files import each other in a circle \
                 (`cargo xtask structure {name}` shows by what): {}",
                files.join(" ")
            )
        }));
    }
    match (excepted, circles.is_empty()) {
        (true, false) => vec![],
        (true, true) => vec![format!(
            "{name} has no circle any more: take it off the list in {LISTS}"
        )],
        (false, _) => circles,
    }
}

fn open_item_faults(name: &str, files: &Files) -> Vec<String> {
    let Some((_, limit)) = OPEN_ITEMS.iter().find(|(other, _)| *other == name) else {
        return vec![];
    };
    let count: usize = open_items(files).values().sum();
    if count <= *limit {
        return vec![];
    }
    vec![format!(
        "{name}: {count} items have restricted visibility, or are public where nobody outside \
         can name them; at most {limit} may"
    )]
}

fn length_faults(name: &str, files: &Files) -> Vec<String> {
    let mut faults = vec![];
    for (file, source) in files {
        if source.lines > MAX_FILE_LINES {
            let (file, lines) = (file.display(), source.lines);
            faults.push(format!(
                "{name}/{file} has {lines} lines, above {MAX_FILE_LINES}"
            ));
        }
    }
    let mut excepted: Vec<&str> = LONG_FUNCTIONS.to_vec();
    excepted.retain(|function| function.split('/').next() == Some(name));
    for tree in trees(files) {
        for module in &tree.modules {
            for (function, lines) in lengths::functions(module) {
                let function = format!("{name}/{}: {function}", module.file.display());
                if lines <= MAX_FUNCTION_LINES {
                    continue;
                }
                match excepted.iter().position(|other| *other == function) {
                    Some(place) => drop(excepted.remove(place)),
                    None => faults.push(format!(
                        "{function} has {lines} lines, above {MAX_FUNCTION_LINES}"
                    )),
                }
            }
        }
    }
    let needless = excepted.into_iter();
    faults.extend(needless.map(|function| {
        format!("{function} is not too long any more: take it off the list in {LISTS}")
    }));
    faults
}

/// By what the files of a circle hang together, and the open items by file.
fn details(files: &Files) -> String {
    let mut lines = vec![];
    for tree in trees(files) {
        let edges = circles::edges(&tree);
        for circle in circles::circles(&edges) {
            lines.push(format!("circle of {} files:", circle.len()));
            let inside = edges
                .iter()
                .filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            for ((from, to), paths) in inside {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let (from, to) = (from.display(), to.display());
                lines.push(format!("  {from} -> {to}: {}", paths.join(" ")));
            }
        }
    }
    let counts = open_items(files);
    lines.push(format!("{} open items:", counts.values().sum::<usize>()));
    for (file, count) in counts.iter().filter(|(_, count)| **count > 0) {
        lines.push(format!("{count:5} {}", file.display()));
    }
    lines.join("\n") + "\n"
}

fn open_items(files: &Files) -> BTreeMap<PathBuf, usize> {
    let mut counts = BTreeMap::new();
    for tree in trees(files) {
        for (file, count) in visibility::counts(&tree) {
            counts.insert(file.to_owned(), count);
        }
    }
    counts
}

fn trees(files: &Files) -> impl Iterator<Item = Tree<'_>> {
    let roots = ROOTS.iter();
    roots.filter_map(|root| Tree::of(files, Path::new(root)))
}

/// All sources of the crates, by the crates' names.
fn read_crates() -> Result<BTreeMap<String, Files>> {
    let mut crates = BTreeMap::new();
    let top = shell::repository().join("crates");
    for entry in std::fs::read_dir(&top).with_context(|| format!("reading {}", top.display()))? {
        let path = entry.context("reading crates")?.path();
        let mut files = Files::new();
        read_folder(&path, &path, &mut files)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        crates.insert(name.into_owned(), files);
    }
    Ok(crates)
}

fn read_folder(top: &Path, folder: &Path, files: &mut Files) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
    {
        let path = entry.context("reading a folder")?.path();
        if path.is_dir() {
            read_folder(top, &path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let file = tree::File::parse(&text).with_context(|| path.display().to_string())?;
            let name = path.strip_prefix(top).unwrap_or(&path);
            files.insert(name.to_owned(), file);
        }
    }
    Ok(())
}
