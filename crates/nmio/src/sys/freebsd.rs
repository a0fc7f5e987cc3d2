//! System calls and constants that differ on FreeBSD.

/// Kinds of advice with which the kernel moves memory to large pages. None is needed, because the
/// kernel promotes pages to superpages by itself.
pub(crate) const LARGE_PAGE_ADVICE: &[i32] = &[];
