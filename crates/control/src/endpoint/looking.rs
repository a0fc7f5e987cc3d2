//! The answers of the control socket that show single connections and packets.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::TRAILER;
use tokio::sync::mpsc;

use super::body::WAITING_FRAMES;
use super::query::for_each_part;
use super::reply::{Reply, set, stream, text};
use crate::args::number;
use crate::observed::Observed;
use crate::table::filter::Filter;
use crate::table::list::ListRequest;
use crate::trace::session::{MAX_SECONDS, MAX_SNAP, MIN_SNAP, TRAILERS, TraceRequest};

/// Maximum number of connections in a list, if the query sets no other.
const DEFAULT_LIMIT: u64 = 10_000;
/// The rule for the address of a trace's client.
const PEER: &str = "give the client's address, such as 192.0.2.7";

/// Lists the connections, as a line of JSON for each.
pub(super) fn connections(query: Option<&str>, server: &Arc<Observed>) -> Reply {
    let mut request = ListRequest {
        filter: Filter::default(),
        limit: DEFAULT_LIMIT,
    };
    let known = "peer, port, state and limit";
    let parsed = for_each_part(query, known, |name, value| match name {
        "limit" => {
            request.limit = number(1..=u64::MAX)(value)?;
            Ok(())
        }
        _ => request.filter.set(name, value),
    });
    if let Err(why) = parsed {
        return text(StatusCode::BAD_REQUEST, why);
    }
    let (out, frames) = mpsc::channel(WAITING_FRAMES);
    let server = Arc::clone(server);
    tokio::spawn(async move { server.lister().list(request, out).await });
    stream("application/x-ndjson", frames)
}

/// Sends a capture of the packets of one client, until the query's `count` or `seconds` have passed.
pub(super) fn trace(query: Option<&str>, server: &Arc<Observed>) -> Reply {
    let mut peer = None;
    let (mut count, mut time, mut snap) = (u64::MAX, None, MAX_SNAP);
    let parsed = for_each_part(query, "peer, count, seconds and snap", |name, value| {
        match name {
            "peer" => peer = Some(value.parse().map_err(|_| PEER.to_owned())?),
            "count" => count = number(1..=u64::MAX)(value)?,
            "seconds" => {
                let seconds = number(1..=MAX_SECONDS)(value)?;
                time = Some(Duration::from_secs(seconds.into()));
            }
            "snap" => snap = number(MIN_SNAP..=MAX_SNAP)(value)?,
            _ => return Err(None),
        }
        Ok(())
    });
    if let Err(why) = parsed {
        return text(StatusCode::BAD_REQUEST, why);
    }
    let Some(peer) = peer else {
        return text(
            StatusCode::BAD_REQUEST,
            format!("peer is missing: {PEER}\n"),
        );
    };
    let request = TraceRequest {
        peer,
        count,
        time,
        snap,
    };
    let Some(place) = server.tracer().begin() else {
        let why = "another trace is running; end it first\n".to_owned();
        return text(StatusCode::CONFLICT, why);
    };
    let (out, frames) = mpsc::channel(WAITING_FRAMES);
    let server = Arc::clone(server);
    tokio::spawn(async move { server.tracer().trace(request, place, out).await });
    let mut reply = stream("application/x-pcapng", frames);
    set(&mut reply, TRAILER, TRAILERS);
    reply
}

/// Ends the trace that is running.
pub(super) fn stop_trace(server: &Observed) -> Reply {
    if server.tracer().stop() {
        text(StatusCode::OK, "stopped\n".to_owned())
    } else {
        text(StatusCode::NOT_FOUND, "no trace is running\n".to_owned())
    }
}
