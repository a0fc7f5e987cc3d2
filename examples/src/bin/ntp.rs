//! Serves the time of this host's clock over NTP.
//!
//! ```text
//! # cargo run --release -p examples --bin ntp
//! # ntpdig 198.18.0.2
//! ```
//!
//! It answers clients (mode 3) of NTP versions 1 to 4 as a server of stratum 1 (RFC 5905, section
//! 7.3). All other packets are dropped, such as those of symmetric peers, broadcasts and control
//! messages. Setting the clock is left to other programs.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use nmio::{Instant, Port};
use udpip::{Datagram, Service, Tail};

/// The length of a packet without extensions, in bytes.
const LEN: usize = 48;
const CLIENT: u8 = 3;
const SERVER: u8 = 4;
/// Seconds from 1900, where NTP's time begins, to 1970.
const TO_1970: u64 = 2_208_988_800;
/// The precision of the clock: 2^-20 s.
const PRECISION: i8 = -20;
/// The reference identifier of a host's own clock.
const REFERENCE: &[u8; 4] = b"LOCL";

/// Returns the time of day in NTP's format: seconds, and fractions of 2^-32 s. By definition the
/// seconds wrap around in 2036.
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
        // No leap second, the client's version, stratum 1, the client's poll interval.
        packet[0] = version << 3 | SERVER;
        packet[1] = 1;
        packet[3] = PRECISION.cast_unsigned();
        // Root delay and dispersion.
        packet[4..12].fill(0);
        packet[12..16].copy_from_slice(REFERENCE);
        // Reference, origin, receive and transmit timestamp.
        packet.copy_within(40..48, 24);
        packet[16..24].copy_from_slice(&received.to_be_bytes());
        packet[32..40].copy_from_slice(&received.to_be_bytes());
        packet[40..48].copy_from_slice(&time_of_day().to_be_bytes());
        datagram.turn_around(LEN, Tail::EMPTY, &[]);
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
