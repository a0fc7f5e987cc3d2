//! Lists that a server sends as lines of JSON, and that a command prints.

use std::io::{self, Write as _};

use hyper::{Method, StatusCode};

use super::socket::{SocketArgs, Wait, cut, read, runtime, unknown};

/// The text for a line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListLine {
    /// A part of the list.
    Part(String),
    /// The last line.
    End(String),
}

impl SocketArgs {
    /// Asks the server for the list at the path `target`, and prints its lines as they arrive. `show`
    /// returns the text of a line, with its line feed, or `None` if it cannot understand the line.
    ///
    /// # Errors
    /// If there is no server, or if its answer is no list, or not complete. The error is a message for
    /// the operator.
    pub fn print_list(
        &self,
        program: &str,
        target: &str,
        show: impl FnMut(&str) -> Option<ListLine>,
    ) -> Result<(), String> {
        let socket = self.socket(program);
        let mut printer = Printer {
            show,
            rest: Vec::new(),
            has_ended: false,
        };
        let take = |bytes: &[u8]| printer.take(bytes);
        let answer = read(&socket, Method::GET, target, Wait::Briefly, |_| {}, take);
        match runtime()?.block_on(answer) {
            Ok(ending) if ending.code == StatusCode::OK && printer.has_ended => Ok(()),
            Ok(ending) if ending.code == StatusCode::OK || !ending.is_whole => Err(cut(&socket)),
            Ok(_) => Err(unknown(&socket, &String::from_utf8_lossy(&printer.rest))),
            // The reader of the output has seen enough.
            Err(error) if error == CLOSED => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The error of a closed standard output.
const CLOSED: &str = "standard output is closed";

/// Prints the lines of a list as they arrive.
struct Printer<S> {
    show: S,
    /// The bytes after the last complete line.
    rest: Vec<u8>,
    /// Whether the last line of the list has arrived.
    has_ended: bool,
}

impl<S: FnMut(&str) -> Option<ListLine>> Printer<S> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |end| end + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        let mut text = String::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            match (self.show)(line) {
                Some(ListLine::Part(part)) => text.push_str(&part),
                Some(ListLine::End(end)) => {
                    self.has_ended = true;
                    text.push_str(&end);
                }
                None => {
                    // This is an error message, which the command reports.
                    self.rest = lines;
                    return Ok(());
                }
            }
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => CLOSED.to_owned(),
            _ => format!("cannot write to standard output: {error}"),
        })
    }
}
