//! The EDNS options in replies: NSID (RFC 5001), EXPIRE (RFC 7314), edns-tcp-keepalive (RFC 7828),
//! COOKIE (RFC 7873), extended DNS errors (RFC 8914) and ZONEVERSION (RFC 9660).

use std::time::Duration;

use ip::Sum;
use udpip::Tail;

use crate::answers::ZoneVersion;
use crate::body::Body;
use crate::cookie::COOKIE_LEN;
use crate::edns::{
    COOKIE, DNSSEC_OK, EXPIRE, EXTENDED_RCODE_AT, Edns, ExtendedError, MAX_UDP_MESSAGE, NSID,
    OPT_LEN, TCP_KEEPALIVE, VERSION, ZONE_VERSION,
};
use crate::identity::{Identity, MAX_NSID};
use crate::rcode;
use crate::rtype;

/// The code of extended DNS errors.
const EXTENDED_ERROR: u16 = 15;

/// Size of the fields before an option's data, in bytes: code and length.
const OPTION_FIELDS: usize = 4;
/// Size of the timeout of edns-tcp-keepalive, and of the code of an extended error, in bytes.
const NUMBER: usize = 2;
/// Size of the data of EXPIRE, in bytes: seconds.
const SECONDS: usize = 4;
/// Size of the data of ZONEVERSION, in bytes: number of labels, type of the version, and serial.
const ZONE_VERSION_DATA: usize = 2 + 4;
/// The type of a version that is the serial of the SOA record.
const SOA_SERIAL: u8 = 0;
/// The response codes, as bits, that need an OPT record of their own. BADVERS and BADCOOKIE have upper
/// bits, and the others may have an extended error.
const UNUSUAL: u32 = 1 << rcode::SERVFAIL
    | 1 << rcode::REFUSED
    | 1 << rcode::NOTAUTH
    | 1 << rcode::BADVERS
    | 1 << rcode::BADCOOKIE;
/// Maximum length of an OPT record in a reply, in bytes.
pub(crate) const MAX_OPT: usize =
    OPT_LEN + 6 * OPTION_FIELDS + MAX_NSID + COOKIE_LEN + 2 * NUMBER + SECONDS + ZONE_VERSION_DATA;

/// What the options of a reply depend on.
pub(crate) struct About<'a> {
    pub(crate) identity: &'a Identity,
    /// The version of the zone that the reply is from, if there is one.
    pub(crate) zone: Option<ZoneVersion>,
    /// The cookie of the reply, if the query has one.
    pub(crate) cookie: Option<[u8; COOKIE_LEN]>,
    /// Whether the query asks for an SOA record.
    pub(crate) is_soa: bool,
    /// Maximum length of the record with options, in bytes.
    pub(crate) room: usize,
}

/// An OPT record without options, and its sum.
#[derive(Debug)]
struct Plain {
    bytes: [u8; OPT_LEN],
    sum: Sum,
}

impl Plain {
    /// Creates the two records that advertise this size: without the DO bit, and with it.
    fn both(udp_size: u16) -> [Self; 2] {
        let ([_, kind], [high, low]) = (rtype::OPT.to_be_bytes(), udp_size.to_be_bytes());
        [0, DNSSEC_OK].map(|flags| {
            let [flags, rest] = flags.to_be_bytes();
            let bytes = [0, 0, kind, high, low, 0, VERSION, flags, rest, 0, 0];
            let sum = Sum::of(&bytes);
            Self { bytes, sum }
        })
    }
}

/// Writes the OPT records of replies. Each responder has its own writer.
#[derive(Debug)]
pub(crate) struct OptWriter {
    /// The idle timeout that clients are told, in units of 100 ms. It is `None` over UDP, where
    /// edns-tcp-keepalive is ignored (RFC 7828, section 3.3.1).
    idle_timeout: Option<u16>,
    /// The records without options and without upper bits of the response code: without the DO bit, and
    /// with it.
    plain: [Plain; 2],
    /// The record with options.
    record: [u8; MAX_OPT],
}

impl OptWriter {
    /// Creates a writer for replies over UDP.
    pub(crate) fn new() -> Self {
        Self {
            idle_timeout: None,
            plain: Plain::both(MAX_UDP_MESSAGE as u16),
            record: [0; MAX_OPT],
        }
    }

    /// Sets the largest UDP message that is sent and taken, in bytes.
    #[inline]
    pub(crate) fn set_udp_size(&mut self, bytes: u16) {
        if self.plain[0].bytes[3..5] != bytes.to_be_bytes() {
            self.plain = Plain::both(bytes);
        }
    }

    /// Tells clients that ask with edns-tcp-keepalive how long a connection may be idle.
    pub(crate) fn set_idle_timeout(&mut self, timeout: Duration) {
        let units = timeout.as_millis() / 100;
        self.idle_timeout = Some(u16::try_from(units).unwrap_or(u16::MAX));
    }

    /// Writes the OPT record of a reply with this body to a query with `edns`. Calls `about` only if
    /// there may be options.
    #[inline(always)]
    pub(crate) fn write<'a>(
        &mut self,
        edns: Edns,
        body: &Body<'_>,
        about: impl FnOnce() -> About<'a>,
    ) -> Tail<'_> {
        if edns.options.may_change_reply() || UNUSUAL >> body.rcode & 1 != 0 {
            return Tail::new(self.with_options(edns, &about(), (body.rcode, body.error)));
        }
        let Plain { bytes, sum } = &self.plain[usize::from(edns.dnssec_ok)];
        Tail { bytes, sum: *sum }
    }

    /// Adds the upper bits of the response code, the options that the query asks for, and the reason of
    /// an error. Adds no options if there is no room for them.
    #[cold]
    #[inline(never)]
    fn with_options(
        &mut self,
        edns: Edns,
        about: &About<'_>,
        (rcode, error): (u16, Option<ExtendedError>),
    ) -> &[u8] {
        let Self {
            idle_timeout,
            plain,
            record,
        } = self;
        let codes = edns.options;
        record[..OPT_LEN].copy_from_slice(&plain[usize::from(edns.dnssec_ok)].bytes);
        record[EXTENDED_RCODE_AT] = (rcode >> 4) as u8;
        let mut len = OPT_LEN;
        let mut push = |code: u16, data: &[u8]| {
            let (fields, rest) = record[len..].split_at_mut(OPTION_FIELDS);
            fields[..2].copy_from_slice(&code.to_be_bytes());
            fields[2..].copy_from_slice(&(data.len() as u16).to_be_bytes());
            rest[..data.len()].copy_from_slice(data);
            len += OPTION_FIELDS + data.len();
        };
        // Data in the query's NSID option is ignored (RFC 5001, section 2.2), and in the others too.
        if let Some(nsid) = about.identity.nsid()
            && codes.contains(NSID)
        {
            push(NSID, nsid);
        }
        if let Some(cookie) = &about.cookie {
            push(COOKIE, cookie);
        }
        if let Some(zone) = about.zone {
            // A secondary server asks for the SOA record to keep its copy (RFC 7314, section 3.2).
            if about.is_soa && codes.contains(EXPIRE) {
                push(EXPIRE, &zone.expire.to_be_bytes());
            }
            if codes.contains(ZONE_VERSION) {
                let [a, b, c, d] = zone.serial.to_be_bytes();
                push(ZONE_VERSION, &[zone.labels, SOA_SERIAL, a, b, c, d]);
            }
        }
        if let Some(timeout) = idle_timeout
            && codes.contains(TCP_KEEPALIVE)
        {
            push(TCP_KEEPALIVE, &timeout.to_be_bytes());
        }
        if let Some(error) = error {
            push(EXTENDED_ERROR, &(error as u16).to_be_bytes());
        }
        if len > about.room {
            len = OPT_LEN;
        }
        let data_len = (len - OPT_LEN) as u16;
        record[OPT_LEN - 2..OPT_LEN].copy_from_slice(&data_len.to_be_bytes());
        &record[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edns::OptionCodes;

    const OPT: [u8; OPT_LEN] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

    fn asking(options: &[u16]) -> Edns {
        Edns {
            udp_size: 512,
            version: 0,
            dnssec_ok: false,
            options: OptionCodes::of(options),
        }
    }

    fn about(identity: &Identity, room: usize) -> About<'_> {
        About {
            identity,
            zone: None,
            cookie: None,
            is_soa: true,
            room,
        }
    }

    #[test]
    fn options_follow_one_another_unless_there_is_no_room() {
        let nsid = Identity::new("ab".parse().ok().as_ref(), None, None);
        let none = Identity::default();
        let mut writer = OptWriter::new();
        let mut write = |identity, asked: &[u16], error, room| {
            let about = about(identity, room);
            writer
                .with_options(asking(asked), &about, (0, error))
                .to_vec()
        };
        let record = |options: &[&[u8]]| {
            let data = options.concat();
            [&OPT[..OPT_LEN - 1], &[data.len() as u8], &data].concat()
        };
        let all = [NSID, TCP_KEEPALIVE];
        let reason = Some(ExtendedError::InvalidData);
        let (id, why) = (&[0, 3, 0, 2, b'a', b'b'][..], &[0, 15, 0, 2, 0, 24][..]);
        assert_eq!(write(&nsid, &all, reason, 23), record(&[id, why]));
        assert_eq!(write(&nsid, &all, reason, 22), OPT);
        assert_eq!(write(&nsid, &[TCP_KEEPALIVE], reason, 99), record(&[why]));
        assert_eq!(write(&nsid, &[NSID, NSID], None, 99), record(&[id]));
        assert_eq!(write(&none, &all, None, 99), OPT);
        writer.set_idle_timeout(Duration::from_millis(10_099));
        let all = writer.with_options(asking(&all), &about(&nsid, 99), (0, reason));
        assert_eq!(all, record(&[id, &[0, 11, 0, 2, 0, 100], why]));
    }

    #[test]
    fn a_record_has_the_do_bit_the_size_and_the_upper_bits_of_its_own_reply() {
        let identity = Identity::default();
        let mut writer = OptWriter::new();
        let mut write = |dnssec_ok, rcode, bytes| {
            let [edns, plain] = [&[NSID][..], &[]].map(|options| Edns {
                dnssec_ok,
                ..asking(options)
            });
            writer.set_udp_size(bytes);
            let body = Body::empty(rcode);
            let room = || about(&identity, 99);
            let record = writer.write(plain, &body, room);
            assert_eq!(record.sum.fold(), Sum::of(record.bytes).fold());
            let record = record.bytes.to_vec();
            assert_eq!(writer.write(edns, &body, room).bytes, record);
            record
        };
        let dnssec = [0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0];
        assert_eq!(write(true, rcode::NOERROR, 4096), dnssec);
        let badvers = [0, 0, 41, 2, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(write(false, rcode::BADVERS, 512), badvers);
        assert_eq!(write(false, rcode::NXDOMAIN, 1232), OPT);
    }

    #[test]
    fn a_long_idle_timeout_is_the_largest_number() {
        for (seconds, units) in [(0, 0), (6_553, 65_530), (6_554, 65_535), (u64::MAX, 65_535)] {
            let mut writer = OptWriter::new();
            writer.set_idle_timeout(Duration::from_secs(seconds));
            assert_eq!(writer.idle_timeout, Some(units), "{seconds} s");
        }
    }
}
