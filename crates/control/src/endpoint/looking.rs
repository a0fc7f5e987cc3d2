//! The answers of the control socket that show single connections and packets.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::TRAILER;
use tokio::sync::mpsc;

use super::body::WAITING_FRAMES;
use super::query::for_each_part;
use super::reply::{Reply, set, stream, text};
use crate::observed::Observed;
use crate::table::filter::Filter;
use crate::table::list::ListRequest;
use crate::trace::session::{MAX_SNAP, TRAILERS, TraceRequest};

/// Maximum number of connections in a list, if the query sets no other.
const DEFAULT_LIMIT: u64 = 10_000;

/// Lists the connections, as a line of JSON for each.
pub(super) fn connections(query: Option<&str>, server: &Arc<Observed>) -> Reply {
    let mut request = ListRequest {
        filter: Filter::default(),
        limit: DEFAULT_LIMIT,
    };
    let parsed = for_each_part(query, |name, value| match name {
        "limit" => value.parse().ok().map(|limit| request.limit = limit),
        _ => request.filter.set(name, value),
    });
    if let Err(part) = parsed {
        return bad_query(&part, "peer, port, state and limit");
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
    let parsed = for_each_part(query, |name, value| {
        match name {
            "peer" => peer = Some(value.parse().ok()?),
            "count" => count = value.parse().ok()?,
            "seconds" => time = Some(Duration::from_secs(value.parse::<u32>().ok()?.into())),
            "snap" => snap = value.parse().ok().filter(|snap| *snap <= MAX_SNAP)?,
            _ => return None,
        }
        Some(())
    });
    if let Err(part) = parsed {
        return bad_query(&part, "peer, count, seconds and snap");
    }
    let Some(peer) = peer else {
        return bad_query("peer", "peer, count, seconds and snap");
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
    server.tracer().stop();
    text(StatusCode::OK, "stopped\n".to_owned())
}

fn bad_query(part: &str, known: &str) -> Reply {
    let why = format!("{part}: this part of the query is not understood; there are {known}\n");
    text(StatusCode::BAD_REQUEST, why)
}
