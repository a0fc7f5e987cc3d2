//! One connection alone, without a port and without an application. Each test
//! is named after the rule that it proves.

mod checking;
mod cutting;
mod keeping;
mod tcb;
mod timers;
mod windows;
