//! The *slot* of a response: the bytes from the value of `Date` to the value of `Connection`. They
//! depend on the time, and on whether the connection stays open.
//!
//! The rest of a site's response is prepared once, when the site is loaded. The slot follows the
//! status line and the field name `Date`, and always has the same length. Therefore one prepared
//! response serves all clients: HTTP/1.0 and 1.1, keep-alive and close.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::{HttpDate, fmt_http_date, parse_http_date};

/// Length of an HTTP date (IMF-fixdate, RFC 9110, section 5.6.7), in bytes.
pub(crate) const DATE_LEN: usize = 29;
/// The text between the date and the connection option.
const BETWEEN: &[u8] = b"\r\nConnection: ";
/// The connection option of a response after which the connection stays open.
const KEEP_ALIVE: &[u8; OPTION_LEN] = b"keep-alive";
/// The connection option of a connection's last response. The spaces pad it to the length of
/// `keep-alive`. White space after a field's value is not part of the value (RFC 9110, section
/// 5.5).
const CLOSE: &[u8; OPTION_LEN] = b"close     ";
const OPTION_LEN: usize = 10;
const OPTION_AT: usize = DATE_LEN + BETWEEN.len();

/// The last second of the year 9999. HTTP dates have four digits for the year.
pub(crate) const LAST_SECOND: i64 = 253_402_300_799;
/// The first second of the year 0.
const FIRST_SECOND: i64 = -62_167_219_200;

/// The calendar repeats after 400 years, also the days of the week. So a date before 1970 is written and read
/// as the one that is so many years later.
const YEARS: u16 = 2_000;
/// The time of [`YEARS`] in seconds.
const SECONDS_OF_YEARS: i64 = (YEARS as i64 / 400) * 146_097 * 86_400;
const _: () = assert!(FIRST_SECOND + SECONDS_OF_YEARS > 0);

/// Length of the slot in bytes: a date, the name of the next field, and a connection option.
pub const SLOT_LEN: usize = OPTION_AT + OPTION_LEN;

/// The text before the slot: the name of the field whose value begins it.
pub(crate) const SLOT_FIELD: &str = "Date: ";

/// 9999-12-31T23:59:59Z, the latest time that fits the date format.
const MAX_SECONDS: u64 = 253_402_300_799;

/// The content of a slot, packed into 64 bits: a time in seconds, and whether the connection closes
/// after the response.
///
/// The same stamp always gives the same bytes, so a segment can be retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Makes a stamp for a response sent at `unix_seconds`, in seconds since 1970-01-01T00:00:00Z.
    /// Times after the year 9999 become the last second of that year. `close` says whether the
    /// response is the connection's last one.
    #[inline(always)]
    pub fn new(unix_seconds: u64, close: bool) -> Self {
        Self(unix_seconds.min(MAX_SECONDS) << 1 | u64::from(close))
    }

    /// Returns a stamp with the same time, which also closes the connection if `close` is true.
    #[inline(always)]
    pub(crate) const fn or_closing(self, close: bool) -> Self {
        Self(self.0 | close as u64)
    }

    /// Restores a stamp from [`as_u64`](Self::as_u64).
    #[inline(always)]
    pub const fn from_u64(bits: u64) -> Self {
        Self(bits)
    }

    /// Packs the stamp into a number, which the TCP stack can store.
    #[inline(always)]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns true if the response is the connection's last one.
    pub const fn closes(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the time in seconds since 1970.
    pub(crate) const fn seconds(self) -> u64 {
        self.0 >> 1
    }
}

/// Returns the second of a time, counted from 1970.
pub(crate) fn second_of(time: SystemTime) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => seconds(since),
        Err(before) => {
            let before = before.duration();
            -seconds(before) - i64::from(before.subsec_nanos() > 0)
        }
    }
}

/// Returns the time of a second. It is in the years 0 to 9999.
pub(crate) fn time_of(second: i64) -> SystemTime {
    let second = second.clamp(FIRST_SECOND, LAST_SECOND);
    let distance = Duration::from_secs(second.unsigned_abs());
    if second < 0 {
        UNIX_EPOCH - distance
    } else {
        UNIX_EPOCH + distance
    }
}

/// Writes a second as an HTTP date.
pub(crate) fn write_http_date(second: i64) -> String {
    write_with(second, HTTP_YEAR_AT, fmt_http_date)
}

/// Writes a second with `write`, which knows no times before 1970, and writes the year in four digits from
/// offset `year_at` on.
pub(crate) fn write_with(
    second: i64,
    year_at: usize,
    write: impl Fn(SystemTime) -> String,
) -> String {
    let second = second.clamp(FIRST_SECOND, LAST_SECOND);
    if second >= 0 {
        return write(time_of(second));
    }
    let mut text = write(time_of(second + SECONDS_OF_YEARS));
    let year = year_at..year_at + 4;
    if let Some(later) = text
        .get(year.clone())
        .and_then(|year| year.parse::<u16>().ok())
    {
        text.replace_range(year, &format!("{:04}", later.saturating_sub(YEARS)));
    }
    text
}

/// Offset of the year in an HTTP date.
const HTTP_YEAR_AT: usize = 12;
/// Offset of the year in the format of `asctime`, for example `Sun Nov  6 08:49:37 1994`.
const ASCTIME_YEAR_AT: usize = 20;

/// Reads an HTTP date (RFC 9110, section 5.6.7). Returns its second, or `None` if the date is invalid.
pub(crate) fn read_http_date(text: &str) -> Option<i64> {
    match parse_http_date(text) {
        Ok(time) => Some(second_of(time)),
        Err(_) => read_early_date(text),
    }
}

/// Reads an HTTP date before 1970.
#[cold]
fn read_early_date(text: &str) -> Option<i64> {
    [HTTP_YEAR_AT, ASCTIME_YEAR_AT].into_iter().find_map(|at| {
        let year = at..at + 4;
        let digits = text.get(year.clone())?;
        let is_year = digits.bytes().all(|byte| byte.is_ascii_digit());
        let early: u16 = digits.parse().ok().filter(|_| is_year)?;
        let mut later = text.to_owned();
        later.replace_range(year, &(early + YEARS).to_string());
        let later = parse_http_date(&later).ok().filter(|_| early < 1970)?;
        Some(second_of(later) - SECONDS_OF_YEARS)
    })
}

/// Writes slots. The writer caches the text of its last slot, because consecutive responses usually
/// have the same date.
#[derive(Clone, Debug)]
pub struct SlotWriter {
    seconds: u64,
    /// The slot for `seconds`, with the connection option `keep-alive`.
    text: [u8; SLOT_LEN],
}

impl SlotWriter {
    /// Makes a writer whose cache holds the slot for second 0.
    pub fn new() -> Self {
        let mut text = [b' '; SLOT_LEN];
        text[DATE_LEN..OPTION_AT].copy_from_slice(BETWEEN);
        text[OPTION_AT..].copy_from_slice(KEEP_ALIVE);
        let mut writer = Self { seconds: 0, text };
        writer.write_date(0);
        writer
    }

    /// Writes the slot for `stamp`. If `slot` is shorter than [`SLOT_LEN`], the text is truncated.
    #[inline]
    pub fn write(&mut self, stamp: Stamp, slot: &mut [u8]) {
        if stamp.seconds() != self.seconds {
            self.write_date(stamp.seconds());
        }
        let Some(slot) = slot.first_chunk_mut::<SLOT_LEN>() else {
            return self.write_part(stamp, slot);
        };
        *slot = self.text;
        if stamp.closes() {
            slot[OPTION_AT..].copy_from_slice(CLOSE);
        }
    }

    #[cold]
    fn write_date(&mut self, seconds: u64) {
        self.seconds = seconds;
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        // Cannot fail: an HTTP date is always 29 bytes long, and `MAX_SECONDS` keeps the time in
        // range.
        let _ = write!(&mut self.text[..DATE_LEN], "{}", HttpDate::from(at));
    }

    #[cold]
    fn write_part(&mut self, stamp: Stamp, slot: &mut [u8]) {
        let mut whole = [0; SLOT_LEN];
        self.write(stamp, &mut whole);
        slot.copy_from_slice(&whole[..slot.len()]);
    }
}

impl Default for SlotWriter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_795_249_777;

    fn slot(writer: &mut SlotWriter, stamp: Stamp) -> String {
        let mut slot = [0; SLOT_LEN];
        writer.write(stamp, &mut slot);
        String::from_utf8(slot.to_vec()).unwrap()
    }

    #[test]
    fn dates_before_1970_are_written_and_read() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (-310_434_463, "Tue, 01 Mar 1960 00:12:17 GMT"),
            (-310_522_000, "Sun, 28 Feb 1960 23:53:20 GMT"),
            (-2_208_988_800, "Mon, 01 Jan 1900 00:00:00 GMT"),
            (FIRST_SECOND, "Sat, 01 Jan 0000 00:00:00 GMT"),
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(write_http_date(second), text);
            assert_eq!(read_http_date(text), Some(second), "{text}");
            assert_eq!(second_of(time_of(second)), second);
        }
        assert_eq!(write_http_date(i64::MIN), write_http_date(FIRST_SECOND));
        assert_eq!(write_http_date(i64::MAX), write_http_date(LAST_SECOND));
        assert_eq!(
            read_http_date("Sun Feb 28 23:53:20 1960"),
            Some(-310_522_000)
        );
        for wrong in [
            "",
            "Mon, 28 Feb 1960 23:53:20 GMT",
            "Wed, 29 Feb 1961 00:00:00 GMT",
            "Sun, 28 Feb -960 23:53:20 GMT",
            "Sun, 28 Feb 1960 23:53:20",
            "d\u{fc}ne d\u{fc}ne d\u{fc}ne 1960",
        ] {
            assert_eq!(read_http_date(wrong), None, "{wrong}");
        }
        let nearly = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(second_of(nearly), -1);
    }

    #[test]
    fn a_slot_is_a_date_and_a_connection_option() {
        let mut writer = SlotWriter::new();
        assert_eq!(
            slot(&mut writer, Stamp::new(SECOND, false)),
            "Sat, 21 Nov 2026 08:29:37 GMT\r\nConnection: keep-alive"
        );
        assert_eq!(
            slot(&mut writer, Stamp::new(SECOND + 1, true)),
            "Sat, 21 Nov 2026 08:29:38 GMT\r\nConnection: close     "
        );
    }

    #[test]
    fn the_same_stamp_gives_the_same_bytes_whatever_was_written_between() {
        let mut writer = SlotWriter::new();
        let stamps: Vec<Stamp> = (0..100)
            .map(|i| Stamp::new(SECOND + i % 7 * 86_399, i % 3 == 0))
            .collect();
        let first: Vec<String> = stamps.iter().map(|s| slot(&mut writer, *s)).collect();
        for (stamp, first) in stamps.iter().zip(&first).rev() {
            let again = Stamp::from_u64(stamp.as_u64());
            assert_eq!(&slot(&mut writer, again), first);
            assert_eq!(&slot(&mut SlotWriter::new(), again), first);
        }
    }

    #[test]
    fn a_wrong_clock_still_gives_valid_dates() {
        let mut writer = SlotWriter::new();
        assert!(slot(&mut writer, Stamp::new(0, false)).starts_with("Thu, 01 Jan 1970 00:00:00"));
        assert!(
            slot(&mut writer, Stamp::new(u64::MAX, true)).starts_with("Fri, 31 Dec 9999 23:59:59")
        );
    }

    #[test]
    fn a_slot_that_is_too_short_gets_the_start_of_the_text() {
        let mut writer = SlotWriter::new();
        let mut short = [b'x'; 5];
        writer.write(Stamp::new(SECOND, true), &mut short);
        assert_eq!(&short, b"Sat, ");
    }
}
