//! The text form of a location (RFC 1876, section 3).

use super::{Reader, TextFault, decimal};
use crate::rdata::measure::{MAX_LATITUDE, MAX_LONGITUDE, ZERO_ANGLE};

/// The altitude of which a location's altitude is the distance, in centimetres below sea level.
const BASE: i64 = 10_000_000;
/// The largest size and precision, in centimetres.
const MAX_SIZE: u64 = 9_000_000_000;
/// The size, horizontal precision and vertical precision of a location that states none, in
/// centimetres.
const DEFAULTS: [u64; 3] = [100, 1_000_000, 1_000];

impl Reader<'_> {
    /// Reads the whole data of a LOC record.
    pub(super) fn location(&mut self) -> Result<(), TextFault> {
        self.field = "LATITUDE";
        let latitude = self.angle(
            ["N", "S"],
            MAX_LATITUDE,
            "degrees, minutes and seconds up to 90 0 0, then N or S",
        )?;
        self.field = "LONGITUDE";
        let longitude = self.angle(
            ["E", "W"],
            MAX_LONGITUDE,
            "degrees, minutes and seconds up to 180 0 0, then E or W",
        )?;
        self.field = "ALTITUDE";
        let altitude = metres(self.word()?).map(|altitude| altitude + BASE);
        let altitude = altitude.and_then(|altitude| u32::try_from(altitude).ok());
        let altitude = self.some(altitude, "metres from -100000.00m to 42849672.95m")?;
        let mut sizes = [0; 3];
        for (at, field) in ["SIZE", "HORIZONTAL-PRECISION", "VERTICAL-PRECISION"]
            .into_iter()
            .enumerate()
        {
            self.field = field;
            let mut size = Some(DEFAULTS[at]);
            if !self.rest().is_empty() {
                let metres = metres(self.word()?);
                size = metres.and_then(|size| u64::try_from(size).ok());
                size = size.filter(|size| *size <= MAX_SIZE);
            }
            sizes[at] = power_of_ten(self.some(size, "metres from 0m to 90000000.00m")?);
        }
        self.out.push(0);
        self.out.extend(sizes);
        for number in [latitude, longitude, altitude] {
            self.out.extend(number.to_be_bytes());
        }
        Ok(())
    }

    /// Reads an angle: one to three numbers and a direction. `directions` are the positive and the
    /// negative one.
    fn angle(
        &mut self,
        directions: [&str; 2],
        max: u32,
        need: &'static str,
    ) -> Result<u32, TextFault> {
        let mut angle = 0;
        // For degrees, minutes and seconds: digits after the point, thousandths of a second in the
        // last digit, and a limit in thousandths.
        let degree = 3_600_000;
        for (places, unit, limit) in [(0, degree, i64::MAX), (0, 60_000, degree), (3, 1, 60_000)] {
            let word = self.word()?;
            if unit < degree && is_direction(word, directions) {
                self.index -= 1;
                break;
            }
            let part = fraction(word, places).map(|number| number * unit);
            angle += self.some(part.filter(|part| *part < limit), need)?;
        }
        let word = self.word()?;
        let angle = u32::try_from(angle).ok().filter(|angle| *angle <= max);
        let angle = self.some(angle.filter(|_| is_direction(word, directions)), need)?;
        Ok(if word.eq_ignore_ascii_case(directions[0]) {
            ZERO_ANGLE + angle
        } else {
            ZERO_ANGLE - angle
        })
    }
}

fn is_direction(word: &str, directions: [&str; 2]) -> bool {
    directions
        .iter()
        .any(|direction| direction.eq_ignore_ascii_case(word))
}

/// Reads a number with at most `places` digits after its point. Returns it times 10^`places`.
fn fraction(text: &str, places: usize) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() > 9 || part.len() > places {
        return None;
    }
    let digits = format!("{whole}{part:0<places$}");
    let is_valid = !whole.is_empty() && (places > 0 || !text.contains('.'));
    decimal(&digits).filter(|_| is_valid).map(u64::cast_signed)
}

/// Reads metres, perhaps with a sign and an `m` at the end. Returns centimetres.
fn metres(text: &str) -> Option<i64> {
    let number = text.strip_suffix(['m', 'M']).unwrap_or(text);
    match number.strip_prefix('-') {
        Some(number) => Some(-fraction(number, 2)?),
        None => fraction(number, 2),
    }
}

/// Returns the largest value of a digit and a power of ten that does not exceed `size` (RFC 1876,
/// section 2).
fn power_of_ten(size: u64) -> u8 {
    let (mut digit, mut power) = (size, 0u8);
    while digit > 9 {
        digit /= 10;
        power += 1;
    }
    (digit as u8) << 4 | power
}
