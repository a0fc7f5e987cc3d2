//! Encodes contents, and checks coded ones.

mod decode;
mod encode;

pub(crate) use decode::is_form_of;
pub(super) use encode::encode;
