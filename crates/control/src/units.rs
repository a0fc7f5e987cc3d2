//! Numbers, times, sizes and texts of several words on the command line and in configuration files.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use nmio::WrongWords;

use crate::report;

/// Returns a parser for whole numbers in `range`. Its error messages name the range.
pub fn number<T: FromStr + PartialOrd + fmt::Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone
where
    RangeInclusive<T>: Clone,
{
    move |text| {
        let parsed = text.parse().ok().filter(|number| range.contains(number));
        let (min, max) = (range.start(), range.end());
        parsed.ok_or_else(|| format!("give a whole number from {min} to {max}"))
    }
}

/// Returns a parser for times in whole seconds: a number of seconds, or a number with a unit, such
/// as `90 s` and `2 min`. Its error messages name the range.
pub(crate) fn seconds(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    in_range(range, "seconds", "90s or 2min", |text| {
        let time = humantime::parse_duration(text).ok()?;
        (time.subsec_nanos() == 0).then(|| time.as_secs().try_into().ok())?
    })
}

/// Returns a parser for times in whole microseconds, like [`seconds`].
pub(crate) fn microseconds(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone {
    in_range(range, "microseconds", "80us", |text| {
        let time = humantime::parse_duration(text).ok()?;
        let whole = Duration::from_micros(time.as_micros().try_into().ok()?) == time;
        whole.then(|| time.as_micros().try_into().ok())?
    })
}

/// Returns a parser for sizes in bytes: a number of bytes, or a number with a unit, such as `512 MB`
/// and `1.5 GiB`. Its error messages name the range.
pub fn size<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64> + Into<u64> + PartialOrd + Copy,
{
    move |text| {
        let bytes = text
            .parse::<ByteSize>()
            .ok()
            .and_then(|size| size.as_u64().try_into().ok());
        bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| {
            let bound = |bytes: &T| report::bytes((*bytes).into());
            let (min, max) = (bound(range.start()), bound(range.end()));
            format!("give a size from {min} to {max}, such as 65536, 64kB or 1.5GiB")
        })
    }
}

/// Parses a value that consists of several words. The errors name each wrong one.
///
/// # Errors
/// A message for the operator about each wrong word.
pub fn by_word<T, E>(text: &str) -> Result<T, WrongWords<String>>
where
    T: FromStr<Err = WrongWords<E>>,
    E: fmt::Display,
{
    let parsed = text.parse();
    parsed.map_err(|wrong: WrongWords<E>| wrong.map(|why| why.to_string()))
}

/// Returns a parser for plain numbers, and for texts that `with_unit` understands.
fn in_range<T: FromStr + PartialOrd + fmt::Display + Clone>(
    range: RangeInclusive<T>,
    unit: &'static str,
    examples: &'static str,
    with_unit: impl Fn(&str) -> Option<T> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let parsed = text.parse().ok().or_else(|| with_unit(text));
        let (min, max) = (range.start(), range.end());
        parsed
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                format!("give a number of {unit} from {min} to {max}, or a time such as {examples}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        let parse = seconds(1..=3_600);
        for (text, expected) in [
            ("30", 30),
            ("30 s", 30),
            ("30s", 30),
            ("2min", 120),
            ("1 h", 3_600),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for text in [
            "0",
            "0 s",
            "1500 ms",
            "2 h",
            "",
            "s",
            "-1",
            "0.5",
            "30 parsecs",
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains("from 1 to 3600"), "{message}");
        }
    }

    #[test]
    fn short_times_are_whole_microseconds() {
        let parse = microseconds(0..=5_000);
        assert_eq!(parse("80"), Ok(80));
        assert_eq!(parse("80 us"), Ok(80));
        assert_eq!(parse("5ms"), Ok(5_000));
        assert!(parse("1500 ns").is_err());
        assert!(parse("1 s").is_err());
    }

    #[test]
    fn sizes_have_decimal_or_binary_units() {
        let parse = size(1..=u64::MAX);
        for (text, expected) in [
            ("512", 512),
            ("512 MB", 512_000_000),
            ("1kB", 1_000),
            ("1.5 GiB", 3 << 29),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        assert!(parse("0").is_err());
        assert!(parse("many").is_err());
        assert!(size(1..=u32::MAX)("5 GB").is_err());
    }
}
