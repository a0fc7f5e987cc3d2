//! A web server of files with one dynamic page: `/counter` shows a number that grows with each
//! request. All responses have an additional field.
//!
//! ```text
//! # cargo run --release -p examples --bin counter -- DIR
//! # curl http://198.18.0.2:8080/counter
//! ```
//!
//! Each worker has its own application. All applications share one counter.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandstorm::{App, Exchange, Request, Sees, Verdict};

struct Counter(Arc<AtomicU64>);

impl App for Counter {
    type State = ();
    type Message = ();

    /// Files are served as if there were no application.
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
