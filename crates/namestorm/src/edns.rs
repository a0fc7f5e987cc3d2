//! EDNS version 0 (RFC 6891): the OPT pseudo-record.

use crate::cookie::Cookies;
use crate::query::{self, Header, Malformed};
use crate::rtype;

/// Maximum length of a UDP message without EDNS, in bytes (RFC 1035, section 2.3.4). Smaller sizes
/// in OPT records count as this length (RFC 6891, section 6.2.3).
pub const MIN_UDP_MESSAGE: usize = 512;
/// Default maximum length of the UDP messages that we send, in bytes. OPT records advertise the maximum as
/// the one that we accept. Such a message fits the minimum MTU of IPv6, so practically no path
/// fragments it (RFC 9715, section 3.1 and appendix A).
pub const MAX_UDP_MESSAGE: usize = 1232;
/// The EDNS version that we support, which the OPT records of replies have.
pub(crate) const VERSION: u8 = 0;
/// Length of an OPT record without options, in bytes.
pub(crate) const OPT_LEN: usize = 11;
/// Offset in an OPT record of the upper eight bits of the response code (RFC 6891, section 6.1.3).
pub(crate) const EXTENDED_RCODE_AT: usize = 5;
/// The code of NSID (RFC 5001).
pub(crate) const NSID: u16 = 3;
/// The code of EXPIRE (RFC 7314).
pub(crate) const EXPIRE: u16 = 9;
/// The code of COOKIE (RFC 7873).
pub(crate) const COOKIE: u16 = 10;
/// The code of edns-tcp-keepalive (RFC 7828).
pub(crate) const TCP_KEEPALIVE: u16 = 11;
/// The code of ZONEVERSION (RFC 9660).
pub(crate) const ZONE_VERSION: u16 = 19;
/// The DO bit in the flags of OPT (RFC 3225).
pub(crate) const DNSSEC_OK: u16 = 0x8000;

/// The reason of an error, as an extended DNS error (RFC 8914, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum ExtendedError {
    /// The reply has no room for what it must hold.
    Other = 0,
    /// The client may not ask for zone transfers, or asks over UDP.
    Prohibited = 18,
    /// The name is outside our zones.
    NotAuthoritative = 20,
    /// The server has no records of the class.
    NotSupported = 21,
    /// The name is in a zone that could not be loaded.
    InvalidData = 24,
}

/// The codes of a query's options. Codes above 31 are left out, because no reply depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionCodes(u32);

impl OptionCodes {
    /// The options whose presence can change the reply.
    const ANSWERED: u32 =
        1 << NSID | 1 << EXPIRE | 1 << COOKIE | 1 << TCP_KEEPALIVE | 1 << ZONE_VERSION;

    /// Adds an option.
    #[inline(always)]
    pub(crate) fn add(&mut self, code: u16) {
        if code < 32 {
            self.0 |= 1 << code;
        }
    }

    /// Removes all options but this one.
    pub(crate) fn keep_only(&mut self, code: u16) {
        self.0 &= 1 << code;
    }

    /// Returns the set of these codes.
    #[cfg(test)]
    pub(crate) fn of(codes: &[u16]) -> Self {
        let mut all = Self::default();
        for code in codes {
            all.add(*code);
        }
        all
    }

    /// Returns true if the reply may need an option.
    #[inline(always)]
    pub(crate) fn may_change_reply(self) -> bool {
        self.0 & Self::ANSWERED != 0
    }

    /// Returns true if the query has this option.
    #[inline(always)]
    pub(crate) fn contains(self, code: u16) -> bool {
        self.0 & 1 << code != 0
    }
}

/// The content of a query's OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// The advertised maximum length of UDP messages that the client accepts, in bytes.
    pub udp_size: u16,
    /// The client's EDNS version.
    pub version: u8,
    /// Whether the client wants DNSSEC records (the DO bit).
    pub dnssec_ok: bool,
    /// The options of the record.
    pub options: OptionCodes,
}

impl Edns {
    /// Returns the content of a record with these bytes between its owner and its options.
    #[inline(always)]
    fn of(fixed: &[u8; 10], options: OptionCodes) -> Self {
        Self {
            options,
            udp_size: u16::from_be_bytes([fixed[2], fixed[3]]),
            version: fixed[5],
            dnssec_ok: u16::from_be_bytes([fixed[6], fixed[7]]) & DNSSEC_OK != 0,
        }
    }

    /// Returns the maximum length of the UDP messages that this client accepts, in bytes.
    #[inline(always)]
    pub(crate) fn udp_limit(self) -> usize {
        usize::from(self.udp_size).max(MIN_UDP_MESSAGE)
    }
}

/// Returns the content of the record at offset `at` if it is an OPT record, and the length of its
/// options in bytes. Leaves out the options.
#[inline(always)]
fn opt_at(message: &[u8], at: usize) -> Option<(Edns, u16)> {
    let [owner, fixed @ ..]: &[u8; OPT_LEN] = message.get(at..)?.first_chunk()?;
    let is_opt = *owner == 0 && fixed[..2] == rtype::OPT.to_be_bytes();
    is_opt.then(|| {
        let options_len = u16::from_be_bytes([fixed[8], fixed[9]]);
        (Edns::of(fixed, OptionCodes::default()), options_len)
    })
}

/// Returns true if the record at offset `at` is an OPT record with the DO bit.
pub(crate) fn begins_with_dnssec_ok(message: &[u8], at: usize) -> bool {
    opt_at(message, at).is_some_and(|(edns, _)| edns.dnssec_ok)
}

/// Finds the OPT record among the `count` records that start at `at`.
///
/// Notes the codes of options, and skips their data. Also skips records of other types. Ignores any
/// bytes after the last record.
///
/// # Errors
///
/// Returns an error if a record is truncated, if there are two OPT records, or if an OPT record has
/// invalid options. Also returns an error if the OPT record's owner is not the root (RFC 6891,
/// section 6.1.1).
#[inline(always)]
pub(crate) fn parse(message: &[u8], at: usize, count: u16) -> Result<Option<Edns>, Malformed> {
    // Most queries have only an OPT record, without options.
    if count == 1
        && let Some((edns, 0)) = opt_at(message, at)
    {
        return Ok(Some(edns));
    }
    parse_all(message, at, count)
}

/// Like [`parse`], for any records. It is inlined, because the compiler would pack the content of the
/// record into one register for the return of a function.
#[inline(always)]
fn parse_all(message: &[u8], mut at: usize, count: u16) -> Result<Option<Edns>, Malformed> {
    let mut found = None;
    // A forged `count` cannot make the loop long, because each record takes at least 11 bytes of
    // the message.
    for _ in 0..count {
        let owner_at = at;
        at = query::skip_name(message, at)?;
        let fixed: &[u8; 10] = message
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(Malformed)?;
        let data_at = at + fixed.len();
        let data_len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let data = message.get(data_at..data_at + data_len).ok_or(Malformed)?;
        if u16::from_be_bytes([fixed[0], fixed[1]]) == rtype::OPT {
            if message[owner_at] != 0 || found.is_some() {
                return Err(Malformed);
            }
            let options = read_options(data)?;
            found = Some(Edns::of(fixed, options));
        }
        at = data_at + data_len;
    }
    Ok(found)
}

/// Returns the content of the first OPT record, without its options, if [`parse`] does not accept the
/// records. An error because of an OPT record has one too (RFC 6891, section 7).
#[cold]
#[inline(never)]
pub(crate) fn of_malformed(message: &[u8], mut at: usize, count: u16) -> Option<Edns> {
    for _ in 0..count {
        if let Some((edns, _)) = opt_at(message, at) {
            return Some(edns);
        }
        at = query::skip_record(message, at).ok()?;
    }
    None
}

/// Returns the codes of the options in an OPT record's data.
///
/// # Errors
///
/// Returns an error if the data does not consist of complete options. Also returns one if the length of
/// the first cookie is impossible (RFC 7873, section 5.2).
fn read_options(mut data: &[u8]) -> Result<OptionCodes, Malformed> {
    let mut codes = OptionCodes::default();
    while let Some((&[code_high, code_low, high, low], rest)) = data.split_first_chunk() {
        let code = u16::from_be_bytes([code_high, code_low]);
        let len = usize::from(u16::from_be_bytes([high, low]));
        if code == COOKIE && !codes.contains(COOKIE) && !Cookies::is_valid_len(len) {
            return Err(Malformed);
        }
        codes.add(code);
        data = rest.get(len..).ok_or(Malformed)?;
    }
    if data.is_empty() {
        Ok(codes)
    } else {
        Err(Malformed)
    }
}

/// Returns the data of the first option with this code, or `None` if there is no such option. The OPT
/// record is among the records that start at `at`, which [`parse`] has accepted.
#[cold]
pub(crate) fn option(message: &[u8], mut at: usize, code: u16) -> Option<&[u8]> {
    let [.., authority, additional] = Header::parse(message)?.counts();
    for _ in 0..additional.saturating_add(authority) {
        at = query::skip_name(message, at).ok()?;
        let (fixed, rest) = message.get(at..)?.split_first_chunk::<10>()?;
        let data_len = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let mut data = rest.get(..data_len)?;
        at += fixed.len() + data_len;
        if u16::from_be_bytes([fixed[0], fixed[1]]) != rtype::OPT {
            continue;
        }
        while let Some((&[code_high, code_low, high, low], rest)) = data.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            if u16::from_be_bytes([code_high, code_low]) == code {
                return rest.get(..len);
            }
            data = rest.get(len..)?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an OPT record with options.
    fn opt(size: u16, version: u8, flags: u16, options: &[u8]) -> Vec<u8> {
        let mut record = vec![0, 0, 41];
        record.extend(size.to_be_bytes());
        record.extend([0, version]);
        record.extend(flags.to_be_bytes());
        record.extend((options.len() as u16).to_be_bytes());
        record.extend(options);
        record
    }

    #[test]
    fn only_five_options_may_change_the_reply() {
        for code in 0..=u16::MAX {
            let is_answered = [3, 9, 10, 11, 19].contains(&code);
            assert_eq!(
                OptionCodes::of(&[code]).may_change_reply(),
                is_answered,
                "{code}"
            );
        }
        assert!(OptionCodes::of(&[12, NSID, 12]).may_change_reply());
        assert!(!OptionCodes::of(&[]).may_change_reply());
    }

    #[test]
    fn small_udp_sizes_count_as_512() {
        for (size, limit) in [
            (0, 512),
            (511, 512),
            (900, 900),
            (1232, 1232),
            (65535, 65535),
        ] {
            let edns = parse(&opt(size, 0, 0, &[]), 0, 1).unwrap().unwrap();
            assert_eq!((edns.udp_size, edns.udp_limit()), (size, limit));
        }
    }

    #[test]
    fn options_are_skipped_and_the_do_bit_is_kept() {
        let cookie = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        let edns = parse(&opt(1400, 0, 0xffff, &cookie), 0, 1)
            .unwrap()
            .unwrap();
        assert!(edns.dnssec_ok && edns.options.contains(COOKIE));
    }

    #[test]
    fn the_first_cookie_must_have_a_possible_length() {
        let cookie = |len: usize| [&[0, 10, 0, len as u8][..], &vec![7; len]].concat();
        for len in 0..60 {
            let is_good = len == 8 || (16..=40).contains(&len);
            let found = parse(&opt(1232, 0, 0, &cookie(len)), 0, 1);
            assert_eq!(found.is_ok(), is_good, "{len} bytes");
            let later = [cookie(8), cookie(len)].concat();
            assert!(parse(&opt(1232, 0, 0, &later), 0, 1).is_ok());
        }
    }

    #[test]
    fn an_option_is_the_first_with_its_code() {
        let options = [0, 3, 0, 0, 0, 10, 0, 2, 1, 2, 0, 10, 0, 1, 3, 0, 9, 0, 4];
        let record = [0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 10];
        let message = |records| {
            let header = [0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, records];
            [&header[..], &record, &opt(1232, 0, 0, &options)].concat()
        };
        assert_eq!(option(&message(2), 12, COOKIE), Some(&[1, 2][..]));
        assert_eq!(option(&message(2), 12, NSID), Some(&[][..]));
        assert_eq!(option(&message(1), 12, COOKIE), None);
        assert_eq!(option(&message(3), 12, TCP_KEEPALIVE), None);
        // Truncated options and records are not found.
        assert_eq!(option(&message(2), 12, EXPIRE), None);
        for len in 0..message(2).len() {
            assert_eq!(option(&message(2)[..len], 12, COOKIE), None, "{len} bytes");
        }
    }

    #[test]
    fn the_do_bit_is_the_highest_flag_and_no_other() {
        for (flags, dnssec_ok) in [(0, false), (0x7fff, false), (0x8000, true)] {
            let edns = parse(&opt(1232, 0, flags, &[]), 0, 1).unwrap().unwrap();
            assert_eq!(edns.dnssec_ok, dnssec_ok, "{flags:#06x}");
        }
    }

    #[test]
    fn bad_opt_records_are_refused() {
        let good = opt(1232, 0, 0, &[]);
        let duplicate = [good.clone(), good.clone()].concat();
        assert_eq!(parse(&duplicate, 0, 2), Err(Malformed), "two OPT records");
        assert!(
            parse(&duplicate, 0, 1).is_ok(),
            "bytes after the last record are ignored"
        );
        assert_eq!(parse(&good, 0, 2), Err(Malformed), "truncated");
        assert_eq!(parse(&good[..10], 0, 1), Err(Malformed), "truncated");
        let named = [&[1, b'a'], &good[..]].concat();
        assert_eq!(
            parse(&named, 0, 1),
            Err(Malformed),
            "an owner other than the root"
        );
        for options in [&[0, 3, 0][..], &[0, 3, 0, 5, 1], &[0, 3, 0, 0, 0]] {
            assert_eq!(parse(&opt(1232, 0, 0, options), 0, 1), Err(Malformed));
        }
        for message in [
            &duplicate[..],
            &opt(1232, 0, 0x8000, &[0, 3, 0]),
            &good[..10],
        ] {
            let edns = of_malformed(message, 0, 2);
            assert_eq!(edns.is_some(), message.len() > 10);
            assert!(edns.is_none_or(|edns| edns.options == OptionCodes::default()));
        }
        assert_eq!(of_malformed(&named, 0, 1), None);
        let tsig = [
            &[1, b'k', 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 1, 9][..],
            &good,
        ]
        .concat();
        assert!(parse(&tsig, 0, 2).unwrap().is_some());
    }
}
