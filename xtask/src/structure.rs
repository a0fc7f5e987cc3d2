//! `xtask structure`: checks the import cycles and the visibility in the product's crates, and the lengths
//! of files, functions and sentences everywhere. Functions of tests may be longer. It also checks who uses
//! the test kit, who knows the operating system, and how large the tools are.

mod cycles;
mod lengths;
mod systems;
#[cfg(test)]
mod tests;
mod texts;
mod tree;
mod visibility;
mod weight;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::shell;
use anyhow::{Context as _, Result, anyhow, bail};
use texts::MAX_WORDS;
use tree::{Files, Tree};
use weight::TOOLS;

/// Maximum number of open items per crate. An open item has restricted visibility, or is public but
/// not reachable from outside the crate. A crate that is not listed has no limit.
const OPEN_ITEMS: &[(&str, usize)] = &[("tcpip", 245)];
/// Folder of the product's crates.
const CRATES: &str = "crates";
/// Folder of the crate of example programs.
const EXAMPLES: &str = "examples";
/// Documents in the top folder whose sentences are checked.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];
/// The crate that only tests may depend on.
const TEST_KIT: &str = "testkit";
const MAX_FILE_LINES: usize = 700;
const MAX_FUNCTION_LINES: usize = 70;
/// Possible root files of a crate.
const ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];
/// Folders in which each file is the root of a program, and each folder's `main.rs`.
const PROGRAMS: [&str; 3] = ["src/bin", "benches", "fuzz_targets"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Crates whose import cycles and open items are printed before the checks run.
    crates: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let crates = read_crates(CRATES)?;
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

/// Runs all checks and prints what is wrong. Returns how many checks passed and failed.
pub(crate) fn check() -> Result<(u32, u32)> {
    let crates = read_crates(CRATES)?;
    let texts = read_texts()?;
    let mut checks = crate_faults(&crates);
    for folder in TOOLS.iter().chain([&EXAMPLES]) {
        let others = read_crates(folder)?;
        checks.extend(
            others
                .iter()
                .map(|(name, files)| length_faults(name, files)),
        );
    }
    checks.push(test_crate_faults(&crates)?);
    checks.push(system_faults(&crates));
    checks.push(weight_faults(&texts));
    checks.push(sentence_faults(&texts));
    for fault in checks.iter().flatten() {
        println!("{fault}");
    }
    let failed = checks.iter().filter(|faults| !faults.is_empty()).count();
    Ok(((checks.len() - failed) as u32, failed as u32))
}

/// Reports an error if the tools together have more than half as many lines as the product.
fn weight_faults(texts: &[(PathBuf, String)]) -> Vec<String> {
    let (mut product, mut tools) = (0, 0);
    for (path, text) in texts
        .iter()
        .filter(|(path, _)| path.extension() == Some("rs".as_ref()))
    {
        let mut parts = path.iter();
        let top = parts.next().unwrap_or_default();
        if TOOLS.iter().any(|tool| top == *tool) {
            tools += text.lines().count();
        } else if top == "crates" && parts.next() != Some(TEST_KIT.as_ref()) {
            product += weight::product_lines(parts.as_path(), text);
        }
    }
    if tools * 2 <= product {
        return vec![];
    }
    let tools_named = TOOLS.join(", ");
    vec![format!(
        "{tools_named} have {tools} lines together, more than half of the product's {product}"
    )]
}

/// Reports sentences of more than [`MAX_WORDS`] words in comments and documents.
fn sentence_faults(texts: &[(PathBuf, String)]) -> Vec<String> {
    let faults = texts.iter().flat_map(|(path, text)| {
        let found = texts::long_sentences(path, text).into_iter();
        found.map(move |(line, sentence)| {
            let path = path.display();
            format!("{path}:{line}: a sentence has more than {MAX_WORDS} words: {sentence}")
        })
    });
    faults.collect()
}

/// Reports crates that depend on the test kit outside tests.
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

/// Reports code that depends on the operating system where it may not.
fn system_faults(crates: &BTreeMap<String, Files>) -> Vec<String> {
    let product = crates.iter().filter(|(name, _)| *name != TEST_KIT);
    let mut faults = vec![];
    for (name, files) in product {
        for tree in trees(files) {
            let places = systems::places(name, files, &tree);
            faults.extend(places.iter().map(|(file, line)| {
                let file = file.display();
                format!(
                    "{name}/{file}:{line} names an operating system: let it ask `control::system`, \
                     which knows them"
                )
            }));
        }
    }
    faults
}

/// Returns true if a manifest lists the test kit outside `dev-dependencies`.
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

/// Runs the checks of each crate. Returns one list of faults per check.
fn crate_faults(crates: &BTreeMap<String, Files>) -> Vec<Vec<String>> {
    let of_crate = |(name, files): (&String, &Files)| {
        [
            cycle_faults(name, files),
            open_item_faults(name, files),
            length_faults(name, files),
        ]
    };
    crates.iter().flat_map(of_crate).collect()
}

/// Reports the import cycles of a crate.
fn cycle_faults(name: &str, files: &Files) -> Vec<String> {
    let mut cycles = vec![];
    for tree in trees(files) {
        let edges = cycles::edges(&tree);
        cycles.extend(cycles::cycles(&edges).iter().map(|cycle| {
            let files: Vec<_> = cycle.iter().map(|file| file.to_string_lossy()).collect();
            format!(
                "{name}: these files import each other in a cycle \
                 (`cargo xtask structure {name}` shows by what): {}",
                files.join(" ")
            )
        }));
    }
    cycles
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
    for tree in trees(files) {
        for module in &tree.modules {
            for (function, lines) in lengths::functions(module) {
                if lines > MAX_FUNCTION_LINES {
                    let file = module.file.display();
                    faults.push(format!(
                        "{name}/{file}: {function} has {lines} lines, above {MAX_FUNCTION_LINES}"
                    ));
                }
            }
        }
    }
    faults
}

/// Describes a crate: the imports that form each cycle, and the number of open items per file.
fn details(files: &Files) -> String {
    let mut lines = vec![];
    for tree in trees(files) {
        let edges = cycles::edges(&tree);
        for cycle in cycles::cycles(&edges) {
            lines.push(format!("cycle of {} files:", cycle.len()));
            let inside = edges
                .iter()
                .filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
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
    let is_in = |at: &str, file: &Path| file.parent() == Some(Path::new(at));
    let is_program = move |file: &&PathBuf| {
        let folder = file.parent().filter(|_| file.ends_with("main.rs"));
        let mut all = PROGRAMS.iter();
        all.any(|at| is_in(at, file) || folder.is_some_and(|folder| is_in(at, folder)))
    };
    let programs = files.keys().filter(is_program).map(PathBuf::as_path);
    let roots = ROOTS.iter().map(Path::new).chain(programs);
    roots.filter_map(|root| Tree::of(files, root))
}

/// Reads and parses the sources of the crates in [`CRATES`], or of the crate `folder`.
fn read_crates(folder: &str) -> Result<BTreeMap<String, Files>> {
    let mut crates = BTreeMap::<String, Files>::new();
    let mut sources = vec![];
    read_folder(&shell::repository().join(folder), "rs", &mut sources)?;
    for (path, text) in sources {
        let mut parts = path.strip_prefix(CRATES).unwrap_or(&path).iter();
        let name = parts.next().unwrap_or_default().to_string_lossy();
        let file = tree::File::parse(&text).with_context(|| path.display().to_string())?;
        let files = crates.entry(name.into_owned()).or_default();
        files.insert(parts.collect(), file);
    }
    Ok(crates)
}

/// Reads all source files and documents whose sentences are checked.
fn read_texts() -> Result<Vec<(PathBuf, String)>> {
    let mut texts = vec![];
    for folder in TOOLS.iter().chain(&[CRATES, EXAMPLES]) {
        read_folder(&shell::repository().join(folder), "rs", &mut texts)?;
    }
    read_folder(&shell::repository().join("docs"), "md", &mut texts)?;
    for name in DOCUMENTS {
        texts.push((name.into(), shell::read(&shell::repository().join(name))?));
    }
    Ok(texts)
}

/// Reads the files below `folder` whose names end in `.ending`. Appends their texts to `files`,
/// with paths relative to the repository.
fn read_folder(folder: &Path, ending: &str, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    let failed = || format!("reading {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.is_dir() && !path.ends_with("target") {
            read_folder(&path, ending, files)?;
        } else if path.extension().is_some_and(|end| end == ending) {
            let name = path.strip_prefix(shell::repository()).unwrap_or(&path);
            files.push((name.to_owned(), shell::read(&path)?));
        }
    }
    Ok(())
}
