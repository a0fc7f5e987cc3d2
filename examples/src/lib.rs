//! Servers that users would start from: each is one file in `src/bin`, and
//! run by a test in `tests`.

/// What the README shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// So does what the guide shows.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extending.md")]
struct Guide;
