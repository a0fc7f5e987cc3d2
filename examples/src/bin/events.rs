//! Server-sent events: each second the same event goes to all clients.
//!
//! ```text
//! # cargo run --release -p examples --bin events
//! # curl -N http://198.18.0.2:8081/
//! ```
//!
//! An event is made once, and cut into packets once. A client that does not keep up
//! misses events, and learns that from their numbers.

use std::process::ExitCode;
use std::time::Duration;

use tcpip::{Application, CongestionControl, Connection, ConnectionId, Connections, Timer};

const TICK: Timer = Timer::new(0);
const PERIOD: Duration = Duration::from_secs(1);
/// Of one worker.
const MAX_CLIENTS: usize = 10_000;
const MAX_HEAD: usize = 8_192;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n";

#[derive(Default)]
struct Events {
    clients: Vec<ConnectionId>,
    number: u64,
}

impl Application for Events {
    /// Whether it gets events.
    type State = bool;
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, bool>, data: &[u8]) -> usize {
        // Whatever it asks for, it gets the events.
        let is_whole = data.windows(4).any(|bytes| bytes == b"\r\n\r\n");
        if !is_whole && data.len() < MAX_HEAD && !*conn.state() {
            return 0;
        }
        if *conn.state() {
            return data.len();
        }
        let has_place = self.clients.len() < MAX_CLIENTS && is_whole;
        if conn
            .write_bytes(if has_place { HEAD } else { BUSY })
            .is_err()
            || !has_place
        {
            conn.close();
            return data.len();
        }
        *conn.state() = true;
        if self.clients.is_empty() {
            conn.set_timer(TICK, PERIOD);
        }
        self.clients.push(conn.id());
        data.len()
    }

    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, bool, C>,
        _: Timer,
    ) {
        self.number += 1;
        let event = format!("id: {0}\ndata: tick {0}\n\n", self.number);
        let event = connections
            .contents_mut()
            .add(event.as_bytes().into(), None);
        self.clients.retain(|id| {
            let Some(mut conn) = connections.get(*id) else {
                return false;
            };
            // Without room this client goes without this event.
            let _ = event.map(|event| conn.write(event, 0));
            true
        });
        let _ = event.map(|event| connections.contents_mut().remove(event));
        if !self.clients.is_empty() {
            connections.set_timer(TICK, PERIOD);
        }
    }
}

impl control::Named for Events {
    const NAME: &'static str = "events";
    const PORT: u16 = 8_081;
}

fn main() -> ExitCode {
    control::tcp(|_, _| Ok(Events::default()))
}
