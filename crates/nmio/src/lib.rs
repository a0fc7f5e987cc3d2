//! Packet I/O: ports, frames, the event loop and timers. No protocol.
pub mod copies;
pub mod device;
pub mod event_loop;
pub mod fault;
pub mod frame;
pub mod pcap;
pub mod port;
pub mod sim;
mod sys;
pub mod tap;
pub mod time;
pub mod timer;
pub mod xdp;

pub use copies::Copies;
pub use event_loop::{Handler, LoopConfig, Turn, run};
pub use fault::{Fault, FaultConfig, FaultCounters, FaultError, FaultRates};
pub use frame::{Frame, Pool, PoolLayout, Resident};
pub use pcap::{Pcap, PcapError, PcapSummary};
pub use port::{Batch, Capabilities, MAX_BATCH, Port, PortCounters, SendError, Wait};
pub use time::{Clock, Instant, TscClock};
pub use timer::TimerWheel;
