//! A DNS name whose text shows the time of day.
//!
//! ```text
//! # cargo run --release -p examples --bin clock_name
//! # dig @198.18.0.2 clock.test TXT
//! ```
//!
//! All other names of the zone are served from prepared packets.

use std::process::ExitCode;
use std::time::SystemTime;

use namestorm::{Hook, Question, RecordError, Records, Verdict, rtype};
use nmio::Instant;

const ZONE: &str = "\
$ORIGIN test.
@  60 SOA ns hostmaster 1 7200 3600 1209600 60
@  60 NS  ns
ns 60 A   192.0.2.53
";

struct Clock;

impl Hook for Clock {
    type Message = ();

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        if question.wants(rtype::TXT) {
            let seconds = SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(0, |time| time.as_secs());
            // The TTL is 0, so resolvers do not cache the record.
            records.add_text(0, &format!("{seconds} s since 1970"))?;
        }
        Ok(Verdict::Records)
    }
}

impl control::Named for Clock {
    const NAME: &'static str = "clock-name";
    const PORT: u16 = 53;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    namestorm::serve(ZONE, &["clock.test"], |_| Ok(Clock))
}
