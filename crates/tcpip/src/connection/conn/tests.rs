//! Tests of a single connection, without a port or an application. The name of each test states the
//! rule that the test checks.

mod congestion;
mod path_mtu;
mod segmenting;
mod tcb;
mod timers;
mod windows;
