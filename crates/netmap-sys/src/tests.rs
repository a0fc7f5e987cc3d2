//! Checks that the bindings are what the kernel expects, and tests the functions of this crate.
#![allow(unsafe_code)]

mod constants;
mod layouts;
mod memory;
mod requests;
