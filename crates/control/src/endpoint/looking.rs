//! The answers of the control socket that show single connections, packets, and parts of the content.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::TRAILER;
use tokio::sync::mpsc;

use super::body::WAITING_FRAMES;
use super::query::for_each_part;
use super::reply::{Reply, set, stream, text};
use crate::observed::Observed;
use crate::program::ContentList;
use crate::table::filter::ConnectionFilter;
use crate::table::list::ListRequest;
use crate::trace::session::{MAX_SECONDS, MAX_SNAP, MIN_SNAP, NUMBER, TRAILERS, TraceRequest};
use crate::units::number;

/// Maximum number of connections in a list, if the query sets no other.
const DEFAULT_LIMIT: u64 = 10_000;
/// Number of lines of a list of content that are made without a pause.
const LINES_TOGETHER: usize = 256;
/// The rule for the address of a trace's client.
const PEER: &str = "give the client's address, such as 192.0.2.7";

/// Lists the connections, as a line of JSON for each.
pub(super) fn connections(query: Option<&str>, server: &Arc<Observed>) -> Reply {
    let mut request = ListRequest {
        filter: ConnectionFilter::default(),
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

/// Sends the lines of a list of content, or those of the parts that the query names.
pub(super) fn content(query: Option<&str>, list: &dyn ContentList, server: &Observed) -> Reply {
    let mut names = Vec::new();
    let parsed = for_each_part(query, "name", |name, value| match name {
        "name" => {
            names.push(value.to_owned());
            Ok(())
        }
        _ => Err(None),
    });
    if let Err(why) = parsed {
        return text(StatusCode::BAD_REQUEST, why);
    }
    let mut lines = list.lines(names, &server.snapshot().tally()).peekable();
    let (out, frames) = mpsc::channel(WAITING_FRAMES);
    tokio::spawn(async move {
        while lines.peek().is_some() {
            let mut bytes = Vec::new();
            for line in lines.by_ref().take(LINES_TOGETHER) {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            // The client may have gone away.
            if out.send(Frame::data(bytes.into())).await.is_err() {
                return;
            }
            // Even a client that reads at once lets other tasks go on.
            tokio::task::yield_now().await;
        }
    });
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
    let mut request = TraceRequest::of(peer).with_count(count).with_snap(snap);
    if let Some(time) = time {
        request = request.with_time(time);
    }
    let Ok(place) = server.tracer().begin() else {
        let why = "another trace is running; end it with Ctrl-C, or with DELETE /trace on the control \
                   socket\n";
        return text(StatusCode::CONFLICT, why.to_owned());
    };
    let (out, frames) = mpsc::channel(WAITING_FRAMES);
    let mut reply = stream("application/x-pcapng", frames);
    set(&mut reply, TRAILER, TRAILERS);
    reply.headers_mut().insert(NUMBER, place.number.into());
    let server = Arc::clone(server);
    tokio::spawn(async move { server.tracer().trace(request, place, out).await });
    reply
}

/// Ends the trace with the query's `number`, or else the one that is running.
pub(super) fn stop_trace(query: Option<&str>, server: &Observed) -> Reply {
    let mut wanted = None;
    let parsed = for_each_part(query, "number", |name, value| match name {
        "number" => {
            wanted = Some(number(1..=u64::MAX)(value)?);
            Ok(())
        }
        _ => Err(None),
    });
    if let Err(why) = parsed {
        return text(StatusCode::BAD_REQUEST, why);
    }
    if server.tracer().stop(wanted) {
        text(StatusCode::OK, "stopped\n".to_owned())
    } else {
        text(
            StatusCode::NOT_FOUND,
            "no such trace is running\n".to_owned(),
        )
    }
}
