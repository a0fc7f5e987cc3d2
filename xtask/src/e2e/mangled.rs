//! Half of all messages to Namestorm are mangled, over UDP and over TCP. It answers the other half.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use socket2::SockRef;

use super::Env;
use super::checks::Checks;
use super::dns::{ask_over, expect_address, framed, question, udp};
use super::http;
use super::many::memory;
use super::matrix::Scenario;
use super::rig::Rig;
use super::web::in_threads;
use crate::interrupt;

/// Durations of the test, usually and with `--all`.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_mins(1);
/// Time until the server's buffers are resident.
const WARM_UP: Duration = Duration::from_secs(1);
/// Pause of the client with TCP, so that its mangled messages have enough ports.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum growth of the server's memory in bytes.
const MAX_GROWTH: u64 = 1 << 20;
/// An OPT record with the DO bit, a client cookie and an NSID option.
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x10\0\x0a\0\x08cookies!\0\x03\0\0";
/// Maximum number of bytes that are appended to a message.
const MAX_MORE: usize = 600;

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    run(env, SHORT, checks)
}

/// Runs the test for a minute.
pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    run(env, LONG, checks)
}

fn run(env: &Env, duration: Duration, checks: &mut Checks) -> Result<()> {
    let rig = Rig::build(&Scenario::DNS)?;
    // All messages come from one address.
    let (server, place) = rig.start(env, &Scenario::DNS, &["--rate-limit", "0"])?;
    let to = place.socket(place.v4);
    let press = |duration| {
        rig.as_client(|| {
            in_threads(vec![ask_udp as Ask, ask_tcp as Ask], |ask| {
                ask(to, duration)
            })
        })?
    };
    checks.check("honest clients are answered, and no memory is lost", || {
        press(WARM_UP)?;
        let (before, _) = memory(server.id())?;
        let answers = press(duration)?;
        let (after, _) = memory(server.id())?;
        let line = format!(
            "mangled messages: {} answers over UDP and {} over TCP in {duration:?}, and as many mangled \
             messages; memory {} kB, then {} kB",
            answers[0],
            answers[1],
            before >> 10,
            after >> 10
        );
        println!("{line}");
        ensure!(after.saturating_sub(before) <= MAX_GROWTH, "{line}");
        Ok(())
    });
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(())
}

/// Sends mangled and honest messages in turn. Returns the number of honest ones. All are answered.
type Ask = fn(SocketAddr, Duration) -> Result<u32>;

fn ask_udp(to: SocketAddr, duration: Duration) -> Result<u32> {
    let (mangler, honest) = (udp(to)?, udp(to)?);
    let (begun, mut rng, mut count) = (Instant::now(), Rng::with_seed(1), 0);
    let mut reply = [0; 4_096];
    while begun.elapsed() < duration {
        interrupt::check()?;
        let message = mangled(&mut rng);
        mangler.send(&message).context("sending")?;
        let id = rng.u16(..);
        honest.send(&question(id)).context("sending")?;
        let received = honest.recv(&mut reply);
        let len = received.with_context(|| format!("after {}", message.escape_ascii()))?;
        expect_address(id, &reply[..len])?;
        count += 1;
    }
    Ok(count)
}

fn ask_tcp(to: SocketAddr, duration: Duration) -> Result<u32> {
    let mut honest = http::connect(to)?;
    let (begun, mut rng, mut count) = (Instant::now(), Rng::with_seed(2), 0);
    while begun.elapsed() < duration {
        interrupt::check()?;
        let message = mangled(&mut rng);
        let mut bytes = framed(&message);
        if rng.u8(..4) == 0 {
            let at = rng.usize(..2);
            bytes[at] ^= 1 << rng.u8(..8);
        }
        let mut mangler = http::connect(to)?;
        // The server may have closed the connection in the middle of the message.
        let _ = mangler.write_all(&bytes);
        // The connection ends with a RST, and so its port is free again.
        SockRef::from(&mangler).set_linger(Some(Duration::ZERO))?;
        let asked = ask_over(&mut honest, rng.u16(..));
        asked.with_context(|| format!("after {}", bytes.escape_ascii()))?;
        count += 1;
        std::thread::sleep(PAUSE);
    }
    Ok(count)
}

/// Returns a query with wrong bits, cut, or with more bytes, or random bytes.
fn mangled(rng: &mut Rng) -> Vec<u8> {
    let mut message = question(rng.u16(..));
    // Queries other than for A records need other code. One of the types is ANY.
    let end = message.len();
    message[end - 3] = [1, 2, 6, 16, 28, 43, 251, 255][rng.usize(..8)];
    if rng.bool() {
        message[11] = 1;
        message.extend_from_slice(OPT);
    }
    let some = |rng: &mut Rng| {
        let len = rng.usize(..MAX_MORE);
        std::iter::repeat_with(|| rng.u8(..))
            .take(len)
            .collect::<Vec<_>>()
    };
    match rng.u8(..4) {
        0 => message.truncate(rng.usize(..message.len())),
        1 => message.extend(some(rng)),
        2 => message = some(rng),
        _ => {}
    }
    // A message that is only cut or longer may have wrong bits too.
    if rng.u8(..4) > 0 && !message.is_empty() {
        for _ in 0..rng.usize(1..8) {
            let at = rng.usize(..message.len());
            message[at] ^= 1 << rng.u8(..8);
        }
    }
    message
}
