//! A read-only key-value store over TCP. `GET key` returns the value from prepared packets.
//!
//! ```text
//! # cargo run --release -p examples --bin kv_get -- sand=yellow storm=grey
//! # printf 'GET sand\n' | nc 198.18.0.2 7000
//! ```
//!
//! Each request and each answer is one line. The answer is `VALUE` and the value, or `NOT FOUND`.
//! An invalid request is answered with `ERROR`, and the connection is closed.

use std::collections::HashMap;
use std::process::ExitCode;

use clap::Parser;
use control::{Named, NewWorker, ServeArgs, Tcp};
use tcpip::{Application, Connection, ContentId, Contents};

/// Number of received bytes without a line end after which the client gets `ERROR`.
const MAX_REQUEST: usize = 1_024;

/// The application. Maps each key to its value, which the stack has already segmented.
#[derive(Default)]
struct Store(HashMap<Vec<u8>, ContentId>);

impl Application for Store {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(len) = data[consumed..].iter().position(|byte| *byte == b'\n') {
            let Some(key) = data[consumed..consumed + len].strip_prefix(b"GET ") else {
                return refuse(conn, data);
            };
            let written = match self.0.get(key) {
                Some(value) => conn.write(*value, 0),
                None => conn.write_bytes(b"NOT FOUND\n"),
            };
            // If there is no room to send, the stack offers the unconsumed bytes again when there
            // is room.
            if written.is_err() {
                return consumed;
            }
            consumed += len + 1;
        }
        if data.len() - consumed >= MAX_REQUEST {
            return refuse(conn, data);
        }
        consumed
    }
}

fn refuse(conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
    // If the send stream has no room for the message, the connection is closed without it.
    let _ = conn.write_bytes(b"ERROR\n");
    conn.close();
    data.len()
}

/// A read-only key-value store over TCP.
#[derive(Parser)]
struct KvGet {
    /// The keys and values to store.
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = pair)]
    pairs: Vec<(String, String)>,

    #[command(flatten)]
    network: ServeArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("there is no = in it")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Named for Store {
    const NAME: &'static str = "kv-get";
    const PORT: u16 = 7_000;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

fn main() -> ExitCode {
    let KvGet { pairs, network } = KvGet::parse();
    let make = move |_: &mut NewWorker<()>, contents: &mut Contents| {
        let mut store = Store::default();
        for (key, value) in &pairs {
            let line = format!("VALUE {value}\n").into_bytes();
            let content = contents.add(line.into(), None)?;
            store.0.insert(key.clone().into_bytes(), content);
        }
        Ok(store)
    };
    let example = |address: &str, port| format!("printf 'GET sand\\n' | nc {address} {port}");
    let program = Tcp::new(make).with_try_command(example);
    control::serve_loaded(&network, program)
}
