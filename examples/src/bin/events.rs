//! Server-sent events: once a second, a worker sends the same event to all its clients.
//!
//! ```text
//! # cargo run --release -p examples --bin events
//! # curl -N http://198.18.0.2:8081/
//! ```
//!
//! A worker creates and segments each event only once for all its clients. A client that is too
//! slow misses events, and sees a gap in their numbers.

use std::process::ExitCode;
use std::time::Duration;

use tcpip::{Application, CongestionControl, Connection, Connections, Timer};

const TICK: Timer = Timer::new(0);
const PERIOD: Duration = Duration::from_secs(1);
const MAX_HEAD: usize = 8_192;
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n";

#[derive(Default)]
struct Events {
    number: u64,
    /// Whether the timer is running.
    ticks: bool,
}

impl Application for Events {
    /// Whether the connection has subscribed to events.
    type State = bool;
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, bool>, data: &[u8]) -> usize {
        if *conn.state() {
            return data.len();
        }
        // Every request subscribes to the events, whatever its path. The answer starts when the
        // request's head is complete.
        if !data.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            if data.len() >= MAX_HEAD {
                conn.abort();
            }
            return 0;
        }
        if conn.write_bytes(HEAD).is_err() {
            return 0;
        }
        *conn.state() = true;
        if !self.ticks {
            conn.set_timer(TICK, PERIOD);
        }
        self.ticks = true;
        data.len()
    }

    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, bool, C>,
        _: Timer,
    ) {
        self.number += 1;
        let text = format!("id: {0}\ndata: tick {0}\n\n", self.number);
        let Ok(event) = connections.contents_mut().add(text.as_bytes().into(), None) else {
            // There is no room for the event, so all clients miss it.
            return connections.set_timer(TICK, PERIOD);
        };
        self.ticks = false;
        connections.for_each(|mut conn| {
            if *conn.state() {
                self.ticks = true;
                // If a client's send stream is full, the client misses this event.
                let _ = conn.write(event, 0);
            }
        });
        connections.contents_mut().remove(event);
        if self.ticks {
            connections.set_timer(TICK, PERIOD);
        }
    }
}

impl control::Named for Events {
    const NAME: &'static str = "events";
    const PORT: u16 = 8_081;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    control::tcp(|_, _| Ok(Events::default()))
}
