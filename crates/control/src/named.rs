//! The name, the default port and the version of a program.

/// The name, the default port and the version of a program, for [`tcp()`](crate::tcp()) and
/// [`udp()`](crate::udp()).
pub trait Named {
    /// The program's name, at most 12 bytes long.
    const NAME: &'static str;
    /// The port that is served without `--port`: 1 to 65535.
    const PORT: u16;
    /// The version that the start block shows, usually that of the package:
    /// `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str = "(no version)";
}
