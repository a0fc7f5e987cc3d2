//! A static web server that answers from prepared packets.

pub mod date;
mod load;
pub mod reply;
mod request;
pub mod server;
mod session;
mod site;

pub use load::{Limits, LoadError};
pub use request::{HEAD_LIMIT, MAX_FIELDS};
pub use server::{Packets, Server, packets};
pub use session::{Answer, Session, Step};
pub use site::{Builder, MAX_FILE_LEN, ReplyId, Site, Totals};
