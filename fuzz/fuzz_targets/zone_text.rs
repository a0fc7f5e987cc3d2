//! Loads arbitrary text as a zone file. The result must be a zone, or else a report of the errors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use namestorm::{Form, load_text, prepare_text};

fuzz_target!(|text: &str| {
    // An $INCLUDE would read files of this machine, so it is not tested.
    if text.to_ascii_uppercase().contains("$INCLUDE") {
        return;
    }
    match load_text("fuzz.zone", Some("storm.test."), text) {
        Ok(_) => drop(prepare_text(text, Form::Wire)),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
});
