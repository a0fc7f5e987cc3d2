//! Servers that users would start from: each is one file in `src/bin`, and
//! run by a test in `tests`.
