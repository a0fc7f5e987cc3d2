//! Tables of whole segments in and out, each named after the rule that it
//! proves.

mod admission;
mod anything;
mod closing;
mod deadlines;
mod flooding;
mod keeping;
mod losing;
mod misbehaving;
mod opening;
mod outside;
mod pressure;
mod progress;
mod receiving;
mod runs;
mod sending;
mod slices;
mod widths;
mod windows;
