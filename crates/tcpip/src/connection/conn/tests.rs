//! Tests of a single connection, without a port or an application. Each test is named after the
//! rule that it checks.

mod congestion;
mod path_mtu;
mod segmenting;
mod tcb;
mod timers;
mod windows;
