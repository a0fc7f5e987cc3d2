//! Links options to a request.
#![allow(unsafe_code)]

use crate::options::nmreq_option;
use crate::requests::nmreq_header;

/// Adds an option to a request, as the first of its list.
///
/// ```
/// # use netmap_sys::*;
/// let mut offsets = nmreq_opt_offsets::new(64, 0);
/// let mut header = nmreq_header::new(NETMAP_REQ_REGISTER, "vale0:1", 0).unwrap();
/// // SAFETY: the option starts with its header.
/// unsafe { nmreq_push_option(&mut header, (&raw mut offsets).cast()) };
/// assert_eq!(header.nr_options, (&raw mut offsets).addr() as u64);
/// ```
///
/// # Safety
/// `option` is valid for reads and writes. It points to a whole option, which stays in place until
/// the request is done, because the kernel reads and writes it.
pub unsafe fn nmreq_push_option(header: &mut nmreq_header, option: *mut nmreq_option) {
    // SAFETY: the caller guarantees that `option` points to an option.
    unsafe { (*option).nro_next = header.nr_options };
    header.nr_options = option.expose_provenance() as u64;
}
