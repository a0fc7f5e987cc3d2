//! The table of results, and its comparison with the committed table, `snapshot.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::cell::{Cell, Peer};
use crate::ideal;
use crate::run::Outcome;

/// The table's first lines.
const HEAD: &str = "\
# Results of the transfer matrix, written by the test `matrix`. If a change of
# the stack changes a line, check the difference before you accept it.
#
# Mb/s: content divided by the time from the first SYN to the last byte. ideal:
# speed in percent of a model of the path (tests/matrix/ideal.rs). rexmit: kB
# retransmitted. spurious: kB that the client already had. RTO: timeouts. undo:
# window reductions that were undone. first, last: ms from the SYN to the first
# and the last byte, of the slowest connection.
";

/// Formats one line, with the columns aligned.
fn line(columns: [&str; 10]) -> String {
    let [
        name,
        seed,
        rate,
        ideal,
        retransmitted,
        spurious,
        timeouts,
        undone,
        first,
        last,
    ] = columns;
    format!(
        "{name:<44} {seed:>8} {rate:>8} {ideal:>6} {retransmitted:>8} {spurious:>8} {timeouts:>4} {undone:>4} \
         {first:>9} {last:>10}"
    )
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

fn kilobytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e3)
}

/// Returns the table's line for a cell and its outcome.
pub(crate) fn row(cell: &Cell, outcome: &Outcome) -> String {
    let seconds = outcome.all.as_secs_f64();
    let (rate, ideal) = if outcome.finished {
        let rate = cell.total() as f64 * 8e-6 / seconds;
        let duration = if cell.apart.is_zero() {
            outcome.all
        } else {
            outcome.mean
        };
        let ideal = ideal::time(cell).div_duration_f64(duration);
        (format!("{rate:.3}"), format!("{:.1}%", ideal * 100.0))
    } else {
        ("waits".to_owned(), "-".to_owned())
    };
    let spurious = match cell.peer {
        Peer::Ours(_) => kilobytes(outcome.spurious),
        Peer::Smoltcp(_) => "?".to_owned(),
    };
    line([
        &cell.name,
        &format!("{:08x}", outcome.seed),
        &rate,
        &ideal,
        &kilobytes(outcome.retransmitted),
        &spurious,
        &outcome.counters.timeouts.to_string(),
        &outcome.counters.undos.to_string(),
        &millis(outcome.first_byte),
        &millis(outcome.last_byte),
    ])
}

/// Returns the whole table, which consists of the head and `rows`.
pub(crate) fn table(rows: &[String]) -> String {
    let mut text = HEAD.to_owned();
    let head = line([
        "# cell", "seed", "Mb/s", "ideal", "rexmit", "spurious", "RTO", "undo", "first", "last",
    ]);
    let _ = writeln!(text, "{head}");
    for row in rows {
        let _ = writeln!(text, "{row}");
    }
    text
}

/// Describes the differences between two tables. Returns `None` if the tables are equal.
pub(crate) fn difference(old: &str, new: &str) -> Option<String> {
    let rows = |text: &'_ str| -> BTreeMap<String, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| Some((line.split_whitespace().next()?.to_owned(), line.to_owned())))
            .collect()
    };
    let (old_rows, new_rows) = (rows(old), rows(new));
    let mut text = String::new();
    for (name, row) in &old_rows {
        match new_rows.get(name) {
            Some(now) if now == row => {}
            Some(now) => {
                let _ = writeln!(text, "- {row}\n+ {now}");
            }
            None => {
                let _ = writeln!(text, "- {row}");
            }
        }
    }
    for (_, row) in new_rows
        .iter()
        .filter(|(name, _)| !old_rows.contains_key(*name))
    {
        let _ = writeln!(text, "+ {row}");
    }
    if text.is_empty() && old != new {
        text.push_str("the head or the order of the lines differs\n");
    }
    (!text.is_empty()).then_some(text)
}
