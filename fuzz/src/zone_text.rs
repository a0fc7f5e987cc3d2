//! Loads arbitrary text as a zone file. The result must be a zone, or else a report of the errors.

use namestorm::{Form, load_text, prepare_text};

/// Runs the target.
pub fn run(text: &str) {
    // An $INCLUDE would read files of this machine, so it is not tested.
    let upper = text.to_ascii_uppercase();
    if upper.contains("$INCLUDE") {
        return;
    }
    // A large range would take too much time and memory, so ranges end at 99.
    if upper.contains("$GENERATE") && has_number_above_99(text) {
        return;
    }
    match load_text("fuzz.zone", Some("storm.test."), text) {
        Ok(_) => drop(prepare_text(text, Form::Wire)),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
}

fn has_number_above_99(text: &str) -> bool {
    let is_number = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    text.as_bytes().windows(3).any(is_number)
}
