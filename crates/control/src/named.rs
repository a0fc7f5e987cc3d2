//! What a program of one application or service is called.

/// What a program is called, and where it serves: see [`tcp()`](crate::tcp()) and
/// [`udp()`](crate::udp()).
pub trait Named {
    /// The program's name, at most 12 bytes long.
    const NAME: &'static str;
    /// The port that is served without `--port`.
    const PORT: u16;
    /// The program's version, for the start block: `env!("CARGO_PKG_VERSION")` is the
    /// package's.
    const VERSION: &'static str = "(no version)";
}
