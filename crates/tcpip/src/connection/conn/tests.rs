//! Tests of a single connection, without a port or an application. Each is named after the
//! rule that it proves.

mod checking;
mod congestion;
mod idle;
mod path_mtu;
mod receiving;
mod recovering;
mod segmenting;
mod tcb;
mod timers;
mod windows;
