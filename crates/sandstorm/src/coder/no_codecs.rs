//! Stands for the codecs on systems that have none.

use super::effort::Effort;
use crate::coding::Coding;

/// Makes no coded form.
pub(super) fn encode(_: Coding, _: Effort, _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Accepts any coded form, because nothing here can decode it.
pub(crate) fn is_form_of(_: &[u8], _: Coding, _: &[u8]) -> bool {
    true
}
