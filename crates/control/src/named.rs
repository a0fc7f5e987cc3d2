//! The name, the default port and the version of a program.

/// The name, the default port and the version of a program. An application or a service implements
/// this trait for [`tcp()`](crate::tcp()) or [`udp()`](crate::udp()).
pub trait Named {
    /// The program's name, at most 12 bytes long. A program with a longer name does not compile.
    const NAME: &'static str;
    /// The port that is served if no option sets another: 1 to 65535.
    const PORT: u16;
    /// The version that the start block shows, usually the package's version:
    /// `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str = "(no version)";
}
