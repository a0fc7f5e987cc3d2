//! Example servers to start from. Each server is a single file in `src/bin`. A test in `tests` runs
//! the server.

/// Includes `README.md`, so that a doc test compiles its code.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Includes the guide `docs/extending.md`, so that a doc test compiles its code.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extending.md")]
struct Guide;
