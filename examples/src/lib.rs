//! Servers to start from. Each one is a single file in `src/bin`, and a test in `tests` runs it.

/// Makes sure that the code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Makes sure that the code in the guide compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extending.md")]
struct Guide;
