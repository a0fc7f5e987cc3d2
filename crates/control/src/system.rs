//! Everything in which operating systems differ, apart from ports and the sandbox. Both children define the
//! same names.

#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "freebsd")]
use freebsd as system;
#[cfg(target_os = "linux")]
use linux as system;
pub use system::{CONFINES_EACH_THREAD, FileHints, free_memory};
pub(crate) use system::{
    give_way, read_direct, read_if_cached, set_direct, set_process_name, socket_address, threads,
};
