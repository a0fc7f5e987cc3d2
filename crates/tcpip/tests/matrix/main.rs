//! The transfer matrix: the whole stack transfers data over simulated links in virtual time, with
//! many kinds of paths and peers. Every byte is checked. Speed and retransmissions are compared
//! with the committed table, `snapshot.txt`.
//!
//! - `cargo test -p tcpip --test matrix` runs a sample of the cells and compares their results with
//!   the committed table. The test shows the old and the new version of each line that differs. It
//!   writes the new table to `target/tmp/matrix/sample.txt`.
//! - `MATRIX=update` replaces the committed table. Check the differences before you commit the new
//!   one.
//! - `MATRIX=full` also runs the cross product of paths and clients, and writes its table to
//!   `target/tmp/matrix/full.txt`.
//! - `MATRIX=<cell>` or `MATRIX=<cell>@<seed>` runs one cell, and shows its line (with `--
//!   --nocapture`). This mode also writes the segments that the server sends and receives to a text
//!   and a pcap file under `target/tmp/matrix`.

mod cell;
mod cells;
mod ideal;
#[path = "../peer/mod.rs"]
mod peer;
mod router;
mod run;
mod table;
mod tap;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use cell::{Cell, End};
use run::{Sends, run};

/// Environment variable that selects a mode. Without the variable, the test compares a sample of
/// the cells with the committed table.
const VARIABLE: &str = "MATRIX";

fn snapshot() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/matrix/snapshot.txt")
}

/// Creates and returns the folder for traces and new tables.
fn target() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("matrix");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs one cell, and returns its line of the table. An error message tells how to run the cell
/// again with the same seed.
fn row(cell: &Cell, seed: u64, sends: Sends, trace: Option<&Path>) -> Result<String, String> {
    let rerun_hint = || format!("{VARIABLE}={}@{seed:08x} runs it again", cell.name);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(cell, seed, sends, trace)));
    let Ok(outcome) = outcome else {
        return Err(format!("{} has failed: {}", cell.name, rerun_hint()));
    };
    if outcome.finished != (cell.end == End::Finished) {
        let (expected, counters) = (cell.end, outcome.counters);
        let name = &cell.name;
        return Err(format!(
            "{name} has not ended as {expected:?}: {}; {counters:?}",
            rerun_hint()
        ));
    }
    Ok(table::row(cell, &outcome))
}

/// Runs cells on all processors in parallel. Returns the table, and the error messages.
fn run_all(cells: &[Cell], sends: Sends) -> (String, Vec<String>) {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(vec![Ok(String::new()); cells.len()]);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(i) else { break };
                    let row = row(cell, cell.seed(), sends, None);
                    rows.lock().unwrap()[i] = row;
                }
            });
        }
    });
    let mut failures = Vec::new();
    let rows = rows.into_inner().unwrap().into_iter();
    let rows = rows.filter_map(|row| row.map_err(|failure| failures.push(failure)).ok());
    (table::table(&rows.collect::<Vec<_>>()), failures)
}

/// Runs the cell that `selection` names, with an optional seed after an `@`.
fn run_one(selection: &str) {
    let (name, seed) = match selection.split_once('@') {
        Some((name, seed)) => (name, Some(u64::from_str_radix(seed, 16).unwrap())),
        None => (selection, None),
    };
    let mut cells = cells::sample().into_iter().chain(cells::all());
    let cell = cells.find(|cell| cell.name == name);
    let cell = cell.unwrap_or_else(|| panic!("{VARIABLE}={name}: there is no such cell"));
    let base = target().join(name.replace('/', "_"));
    let row = row(
        &cell,
        seed.unwrap_or(cell.seed()),
        Sends::Frames,
        Some(&base),
    );
    println!("trace: {0}.txt and {0}.pcap", base.display());
    match row {
        Ok(row) => print!("{}", table::table(&[row])),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn transfers_match_the_committed_table() {
    let selection = env::var(VARIABLE).unwrap_or_default();
    if !["", "update", "full"].contains(&&*selection) {
        return run_one(&selection);
    }
    let (new, mut failures) = run_all(&cells::sample(), Sends::Frames);
    if selection == "full" {
        let (table, more) = run_all(&cells::all(), Sends::Frames);
        fs::write(target().join("full.txt"), table).unwrap();
        failures.extend(more);
    }
    fs::write(target().join("sample.txt"), &new).unwrap();
    if selection == "update" {
        fs::write(snapshot(), &new).unwrap();
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    let old = fs::read_to_string(snapshot()).unwrap_or_default();
    if let Some(difference) = table::difference(&old, &new) {
        panic!("the table has changed; {VARIABLE}=update accepts it\n{difference}");
    }
}

/// The table of results is the same, no matter whether the server sends super-segments or single
/// frames. Without `MATRIX=full`, the test takes every third cell of the sample.
#[test]
fn super_segments_do_not_change_the_table() {
    let selection = env::var(VARIABLE).unwrap_or_default();
    let cells: Vec<_> = match &*selection {
        "" => cells::sample().into_iter().step_by(3).collect(),
        "full" => cells::sample().into_iter().chain(cells::all()).collect(),
        _ => return,
    };
    let (frames, mut failures) = run_all(&cells, Sends::Copies);
    let (supers, more) = run_all(&cells, Sends::Supers);
    failures.extend(more);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    if let Some(difference) = table::difference(&frames, &supers) {
        panic!("with super-segments the table differs\n{difference}");
    }
}

#[test]
fn cells_have_unique_names() {
    let mut names: Vec<String> = (cells::sample().into_iter().chain(cells::all()))
        .map(|cell| cell.name)
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}
