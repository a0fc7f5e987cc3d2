//! The start of zone transfers (RFC 5936, and RFC 1995 without differences).

use std::net::IpAddr;
use std::sync::Arc;

use super::{
    CLASS_IN, Query, Reply, Responder, Transport, fit, is_query, place, read_rest, receive,
    write_question,
};
use crate::answers::{ZoneAnswers, ZoneNumber};
use crate::body::Body;
use crate::edns::{self, ExtendedError};
use crate::groups::NO_GROUP;
use crate::query::{HEADER_LEN, Header, skip_name, skip_record};
use crate::rcode;
use crate::rtype::{AXFR, IXFR, SOA};
use crate::tail::{FIELDS, QUESTION_AT};
use crate::transfer::Transfer;
use crate::zone_records::ZoneRecords;

/// Length of the numbers at the end of an SOA record, in bytes.
const SOA_NUMBERS: usize = 20;

/// What a query for a zone transfer gets.
pub(crate) enum TransferReply<'a> {
    /// The zone.
    Transfer(Box<Transfer>),
    /// An error.
    Error(Reply<'a>),
}

/// Returns true if the message asks for a zone transfer, as far as its question is concerned.
pub(crate) fn asks_for_transfer(message: &[u8]) -> bool {
    let qtype = skip_name(message, QUESTION_AT).map(|end| message.get(end..end + 2));
    matches!(qtype, Ok(Some(&[0, low])) if [AXFR, IXFR].contains(&low.into()))
}

impl Responder {
    /// Answers a query over TCP for a transfer, whose client may ask for transfers. Returns `None`,
    /// and counts nothing, for messages that must be answered like any other.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond_to_transfer(
        &mut self,
        message: &mut [u8],
        client: IpAddr,
    ) -> Option<TransferReply<'_>> {
        let query = self.read_transfer_query(message)?;
        let question = query.question;
        receive(message, &mut self.counters)?;
        let number = self.answers.zone_of(question.qtype, &self.question.key);
        let zone = self.answers.zone(number);
        let zone = zone.filter(|zone| zone.apex_len() == question.name_len);
        let known = known_version(message, &query);
        let source = known.and_then(|_| source(zone));
        let body = source.map_or_else(|error| error, |_| Body::empty(rcode::NOERROR));
        let counters = &mut self.counters;
        let cookie = query.cookie::<true>(message, &self.cookies, || client, counters);
        let (opt, identity) = (&mut self.opt, &*self.identity);
        let trail = query.write_opt(opt, identity, (zone, cookie), &body, counters);
        let (from, group) = source.map_or((ZoneNumber::NONE, NO_GROUP), |(zone, _)| {
            (number, zone.group())
        });
        self.groups.count_zone::<true>(from);
        self.groups.count::<true>(group, question.qtype, body.rcode);
        let (mut reply, fields) = fit(
            &query,
            &self.limits,
            ZoneNumber::NONE,
            &body,
            trail,
            counters,
        );
        let Ok((zone, records)) = source else {
            let head = &mut self.head;
            reply.rewritten = place(message, &question, &self.expanded, head, &fields);
            return Some(TransferReply::Error(reply));
        };
        let name = question.name(message, &self.expanded);
        let head = &mut self.head[..reply.head_len];
        head[..HEADER_LEN].copy_from_slice(&message[..HEADER_LEN]);
        write_question(&mut head[HEADER_LEN..], &question, name);
        let transfer = Transfer::new(records, group, head, trail.bytes);
        let own = zone.version().map(|version| version.serial);
        let known = known.ok().flatten();
        let is_old = own
            .zip(known)
            .is_none_or(|(own, known)| is_newer(own, known));
        let transfer = if is_old {
            transfer
        } else {
            transfer.only_soa()
        };
        Some(TransferReply::Transfer(transfer.into()))
    }

    /// Reads a query for a transfer. Returns `None` if it must be answered like any other.
    fn read_transfer_query(&mut self, message: &[u8]) -> Option<Query> {
        let header = Header::parse(message).filter(|header| !header.is_response())?;
        let read = self
            .question
            .parse(message, &self.answers, &mut self.expanded);
        read.ok()?;
        let question = self.question.question;
        let (query, is_malformed) = read_rest(message, &header, question, Transport::Tcp);
        let is_transfer = !is_malformed
            && query.edns.is_none_or(|edns| edns.version == edns::VERSION)
            && question.qclass == CLASS_IN
            && is_query(&header, question.qtype);
        is_transfer.then_some(query)
    }
}

/// Returns a zone that can be transferred, and its records.
///
/// # Errors
///
/// Returns the reply without records.
fn source(zone: Option<&ZoneAnswers>) -> Result<(&ZoneAnswers, &Arc<ZoneRecords>), Body<'static>> {
    let zone = zone.ok_or(Body::error(rcode::NOTAUTH, ExtendedError::NotAuthoritative))?;
    if zone.is_broken() {
        return Err(Body::error(rcode::SERVFAIL, ExtendedError::InvalidData));
    }
    // The records are kept wherever transfers are allowed, unless a record is too long.
    let records = zone.records();
    let records = records.ok_or(Body::error(rcode::SERVFAIL, ExtendedError::Other))?;
    Ok((zone, records))
}

/// Returns the serial of the SOA record in an IXFR query, which is behind the question. A query without
/// the record has none.
///
/// # Errors
///
/// Returns the reply without records, if there is something else.
fn known_version(message: &[u8], query: &Query) -> Result<Option<u32>, Body<'static>> {
    let header = Header::parse(message);
    if query.question.qtype != IXFR || header.is_none_or(|header| header.counts()[2] == 0) {
        return Ok(None);
    }
    let serial = serial_of_soa(message, query.question.end);
    serial.map(Some).ok_or(Body::empty(rcode::FORMERR))
}

/// Returns the serial of the SOA record at this offset of a message.
fn serial_of_soa(message: &[u8], at: usize) -> Option<u32> {
    let (owner_end, end) = (skip_name(message, at).ok()?, skip_record(message, at).ok()?);
    let is_soa = message.get(owner_end..owner_end + 2)? == SOA.to_be_bytes();
    let mname_end = skip_name(message, owner_end + FIELDS).ok()?;
    let after_names = skip_name(message, mname_end).ok()?;
    let serial = message.get(..end)?.get(after_names..)?.first_chunk()?;
    (is_soa && end - after_names == SOA_NUMBERS).then_some(u32::from_be_bytes(*serial))
}

/// Returns true if a serial is newer than another, or if that is undefined (RFC 1982, section 3.2).
fn is_newer(serial: u32, than: u32) -> bool {
    serial != than && serial.wrapping_sub(than) <= 1 << 31
}
