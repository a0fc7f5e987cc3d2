//! Tables of whole segments in and out, each named after the rule that it
//! proves.

mod opening;
