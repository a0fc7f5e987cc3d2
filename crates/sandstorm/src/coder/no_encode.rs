//! Stands for the encoders on systems that have none.

use super::effort::Effort;
use crate::coding::Coding;

/// Makes no coded form.
pub(super) fn encode(_: Coding, _: Effort, _: &[u8]) -> Option<Vec<u8>> {
    None
}
