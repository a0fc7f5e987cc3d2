//! Where the prepared records of aliases and DNAMEs lead.

use crate::answers::Answer;
use crate::name;
use crate::query::NameBuf;
use crate::tail::{FIELDS, POINTER, QUESTION_AT, split_name};

/// The substituted name is too long (RFC 6672, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTooLong;

/// Sets `to` to the target of a prepared CNAME record, whose owner is `from` or a wildcard that matches
/// it. Returns the record's fields.
pub(crate) fn target<'z>(alias: &Answer<'z>, from: &[u8], to: &mut NameBuf) -> &'z [u8] {
    let shift = from.len() - alias.name_len();
    let (fields, data) = alias.tail().bytes[POINTER..].split_at(FIELDS);
    let len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
    match split_name(&data[..len]) {
        // The CNAME is the first record of the prepared answer, so the qname is the only name
        // before it. A pointer in its data thus leads into the qname.
        (literal, Some(pointer)) => {
            to.set(&[literal, &from[usize::from(pointer) - QUESTION_AT + shift..]]);
        }
        (literal, None) => to.set(&[literal, name::ROOT]),
    }
    fields
}

/// Sets `to` to the name that replaces `from` by a prepared DNAME record, whose owner is above `from`.
/// Returns the record's fields.
///
/// # Errors
///
/// Returns an error if the new name is too long. `to` then keeps its name.
pub(crate) fn substitute<'z>(
    dname: &Answer<'z>,
    from: &[u8],
    to: &mut NameBuf,
) -> Result<&'z [u8], NameTooLong> {
    let record = dname.tail().bytes;
    // The record's owner is a pointer, unless the owner is the root, which is never compressed.
    let fields_at = if record[0] == 0 { 1 } else { POINTER };
    let (fields, target) = record[fields_at..].split_at(FIELDS);
    // The record is the only one, so the target is the rest.
    let prefix = &from[..from.len() - dname.name_len()];
    if prefix.len() + target.len() > name::MAX_NAME {
        return Err(NameTooLong);
    }
    to.set(&[prefix, target]);
    Ok(fields)
}
