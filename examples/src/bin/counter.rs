//! A web server for files, with one dynamic page: `/counter` counts its requests. An extra header
//! field is added to all responses.
//!
//! ```text
//! # cargo run --release -p examples --bin counter -- DIR
//! # curl http://198.18.0.2:8080/counter
//! ```
//!
//! Each worker runs its own application, but all of them share one counter.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandstorm::{App, Exchange, Request, Sees, Verdict};

struct Counter(Arc<AtomicU64>);

impl App for Counter {
    type State = ();
    type Message = ();

    /// Only requests without a matching file reach the application.
    const SEES: Sees = Sees::Missing;

    fn on_request(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_, ()>) -> Verdict {
        if request.path() != "/counter" {
            return Verdict::Site;
        }
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        exchange.text(format_args!("{count}\n"))
    }
}

impl control::Named for Counter {
    const NAME: &'static str = "counter";
    const PORT: u16 = 8080;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    let count = Arc::default();
    sandstorm::serve(&[("X-Powered-By", "sand")], |_, _| {
        Ok(Counter(Arc::clone(&count)))
    })
}
