//! Tests of the stack. Most of them pass whole segments to a stack and check the segments that it
//! sends. Each test is named after the rule that it checks.

mod admission;
mod anything;
mod deadlines;
mod drain;
mod flooding;
mod frames;
mod misbehaving;
mod outside;
mod overview;
mod pressure;
mod runs;
mod sending;
mod shutdown;
mod slices;
mod widths;
