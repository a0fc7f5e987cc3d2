//! Serves the time of this host's clock over NTP.
//!
//! ```text
//! # cargo run --release -p examples --bin ntp
//! # ntpdig 198.18.0.2
//! ```
//!
//! The program answers clients (mode 3) of NTP versions 1 to 4 as a stratum 1 server (RFC 5905,
//! section 7.3). All other packets, such as broadcasts and control messages, are dropped. Another
//! program must keep the host's clock accurate.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use nmio::{Instant, Port};
use udpip::{Answer, Datagram, Service};

/// The length of an NTP packet without extension fields, in bytes.
const LEN: usize = 48;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
/// Seconds between NTP's epoch, 1900, and the Unix epoch, 1970.
const TO_1970: u64 = 2_208_988_800;
/// The precision of the clock, as an exponent of two: 2^-20 s.
const PRECISION: i8 = -20;
/// The reference identifier of an uncalibrated local clock.
const REFERENCE: &[u8; 4] = b"LOCL";

/// Returns the time of day in NTP's 64-bit format: seconds, then the fraction in units of 2^-32 s.
/// By definition, the seconds wrap around in 2036.
fn time_of_day() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    (now.as_secs() + TO_1970) << 32 | fraction
}

struct Ntp;

impl Service for Ntp {
    type Message = ();

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, mut datagram: Datagram<'_, P>, _now: Instant) {
        let received = time_of_day();
        let Some(packet) = datagram.payload_mut().first_chunk_mut::<LEN>() else {
            return;
        };
        let (version, mode) = (packet[0] >> 3 & 7, packet[0] & 7);
        if !(1..=4).contains(&version) || mode != CLIENT {
            return;
        }
        // The answer has leap indicator 0, the client's version, mode 4 (server) and stratum 1. The
        // client's poll interval is kept.
        packet[0] = version << 3 | SERVER;
        packet[1] = 1;
        packet[3] = PRECISION.cast_unsigned();
        // Root delay and root dispersion are 0, because this host is the source of the time.
        packet[4..12].fill(0);
        packet[12..16].copy_from_slice(REFERENCE);
        // Fill in the reference, origin, receive and transmit timestamps. The origin timestamp is
        // the client's transmit timestamp.
        packet.copy_within(40..48, 24);
        packet[16..24].copy_from_slice(&received.to_be_bytes());
        packet[32..40].copy_from_slice(&received.to_be_bytes());
        packet[40..48].copy_from_slice(&time_of_day().to_be_bytes());
        datagram.turn_around(Answer::head(LEN));
    }
}

impl control::Named for Ntp {
    const NAME: &'static str = "ntp";
    const PORT: u16 = 123;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    control::udp(|_| Ok(Ntp))
}
