//! HTTP on the endpoints.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};

use super::accept::metrics_format;
use super::admission::{Admission, Admitted};
use super::client_stream::ClientStream;
use super::host::Hosts;
use super::listener::{AsyncListener, Stream};
use super::looking;
use super::page::Page;
use super::query::for_each_part;
use super::reply::{Reply, json, not_allowed, of_type, text};
use crate::metrics;
use crate::observed::Observed;
use crate::program::ContentList;
use crate::status::{Phase, ReloadResult};

/// What a client of an endpoint may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read metrics and status.
    Look,
    /// Also change the server.
    Control,
}

/// Maximum time for a client to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Maximum time of a connection, except for one that waits for a reload.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Pause after an error of the listening socket, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// A worker that has not published its counts for this time is stuck, or gets no CPU time.
const STUCK: Duration = Duration::from_secs(2);

/// Serves all connections of a listener, until the task is dropped. While no connection can give
/// way, one more connection waits for a place, and others wait in the kernel. `hosts` has the names
/// under which the endpoint answers, or `None` for all names.
pub(super) async fn serve(
    listener: AsyncListener,
    access: Access,
    hosts: Option<Arc<Hosts>>,
    server: Arc<Observed>,
) {
    let admission = Admission::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let place = admission.admit().await;
                let (hosts, server) = (hosts.clone(), Arc::clone(&server));
                tokio::spawn(async move {
                    let hosts = hosts.as_deref();
                    tokio::select! {
                        biased;
                        () = place.must_leave() => {
                            tracing::debug!("a connection to an endpoint has given way to another");
                        }
                        () = serve_connection(stream, access, &place, hosts, &server) => {}
                    }
                });
            }
            Err(error) => {
                tracing::debug!("an endpoint cannot accept a connection: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_connection(
    stream: Stream,
    access: Access,
    place: &Admitted,
    hosts: Option<&Hosts>,
    server: &Arc<Observed>,
) {
    let service = service_fn(|request| async move {
        place.use_for_answer();
        let checked = hosts.map_or(Ok(()), |hosts| hosts.check(&request));
        Ok::<_, Infallible>(match checked {
            Ok(()) => answer(&request, access, server).await,
            Err(why) => text(StatusCode::MISDIRECTED_REQUEST, why + "\n"),
        })
    });
    let stream = TokioIo::new(ClientStream::new(stream, place));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .keep_alive(false)
        .serve_connection(stream, service);
    // A client that is slow or breaks the protocol concerns nobody else.
    match access {
        Access::Look => drop(timeout(CONNECTION_TIME, connection).await),
        Access::Control => drop(connection.await),
    }
}

/// Answers a request. Bodies of requests are not read.
async fn answer<B>(request: &Request<B>, access: Access, server: &Arc<Observed>) -> Reply {
    let (path, query) = (request.uri().path(), request.uri().query());
    if access == Access::Control {
        match (path, request.method()) {
            ("/reload", &Method::POST) => return reload(query, server).await,
            ("/reload", _) => return not_allowed("POST"),
            ("/connections", &Method::GET) => return looking::connections(query, server),
            ("/connections", _) => return not_allowed("GET"),
            ("/trace", &Method::GET) => return looking::trace(query, server),
            ("/trace", &Method::DELETE) => return looking::stop_trace(query, server),
            ("/trace", _) => return not_allowed("GET, DELETE"),
            _ => {}
        }
        let is_at = |list: &&Arc<dyn ContentList>| path.strip_prefix('/') == Some(list.name());
        if let Some(list) = server.content_lists().iter().find(is_at) {
            return match *request.method() {
                Method::GET => looking::content(query, &**list, server),
                _ => not_allowed("GET"),
            };
        }
    }
    let reply = match path {
        "/" => page(),
        "/metrics" => metrics(request, server),
        "/health" => health(server),
        "/ready" => ready(server),
        "/status" => status(server),
        _ => return text(StatusCode::NOT_FOUND, paths(access, server)),
    };
    match *request.method() {
        Method::GET | Method::HEAD => reply,
        _ => not_allowed("GET, HEAD"),
    }
}

fn paths(access: Access, server: &Observed) -> String {
    let control = match access {
        Access::Look => String::new(),
        Access::Control => {
            let lists = server.content_lists().iter();
            let lists: Vec<_> = lists
                .map(|list| list.name())
                .chain(["connections"])
                .collect();
            format!(", /{} and /trace; POST /reload", lists.join(", /"))
        }
    };
    format!("There are /, /metrics, /health, /ready, /status{control}.\n")
}

fn page() -> Reply {
    let policy = |page: &Page| HeaderValue::try_from(&page.policy).ok();
    let page = Page::new()
        .ok()
        .and_then(|page| Some((policy(&page)?, page)));
    let Some((policy, page)) = page else {
        let why = "the system returns no random bytes\n";
        return text(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned());
    };
    let mut reply = of_type(StatusCode::OK, "text/html; charset=utf-8", page.html);
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    reply
}

fn metrics<B>(request: &Request<B>, server: &Observed) -> Reply {
    let format = metrics_format(request.headers());
    let body = metrics::encode(&server.status(), format);
    of_type(StatusCode::OK, format.content_type(), body)
}

/// Says whether the workers run.
fn health(server: &Observed) -> Reply {
    if server.phase() == Phase::Starting {
        return text(StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned());
    }
    if server.phase() == Phase::Waiting {
        // A restart would not bring the interface back.
        return text(StatusCode::OK, waiting(server));
    }
    let stuck = server.stuck_workers(STUCK);
    if stuck.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    let mut message = String::new();
    for worker in stuck {
        // Writing to a string cannot fail.
        let _ = writeln!(message, "worker {worker} does not run");
    }
    text(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Says whether new clients are welcome.
fn ready(server: &Observed) -> Reply {
    match server.phase() {
        Phase::Serving => health(server),
        Phase::Starting => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned()),
        Phase::Waiting => text(StatusCode::SERVICE_UNAVAILABLE, waiting(server)),
        Phase::Stopping | Phase::Ended => {
            text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
        }
    }
}

fn waiting(server: &Observed) -> String {
    format!("waiting for interface {}\n", server.interface().read().name)
}

fn status(server: &Observed) -> Reply {
    json(StatusCode::OK, &server.status())
}

/// Reloads all content, or the content in the query `only=NAME`. Answers when the reload has ended.
async fn reload(query: Option<&str>, server: &Observed) -> Reply {
    let Some(requests) = server.reloads() else {
        let why = "this program cannot reload its content; restart it\n";
        return text(StatusCode::NOT_IMPLEMENTED, why.to_owned());
    };
    let mut only = None;
    let parsed = for_each_part(query, "only", |name, value| match name {
        "only" if only.is_none() => {
            only = Some(value.to_owned());
            Ok(())
        }
        "only" => Err(Some("give one name, or none for all content".to_owned())),
        _ => Err(None),
    });
    if let Err(why) = parsed {
        return text(StatusCode::BAD_REQUEST, why);
    }
    let busy = || {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many reloads wait\n".to_owned(),
        )
    };
    let Some(outcome) = requests.ask(only) else {
        return busy();
    };
    match outcome.await {
        Ok(outcome) if outcome.result == ReloadResult::Succeeded => json(StatusCode::OK, &outcome),
        Ok(outcome) => json(StatusCode::CONFLICT, &outcome),
        // The server is stopping.
        Err(_) => busy(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use http_body_util::BodyExt as _;
    use tokio::runtime::Builder;

    use super::*;
    use crate::endpoint::admission::MAX_CONNECTIONS;
    use crate::endpoint::listener::Listener;
    use crate::live::Published;
    use crate::program::{Counted, Tally};

    /// A list of 1,000 letters, of which a query may name some. The name `long` is that of a longer list.
    struct Letters;

    impl ContentList for Letters {
        fn name(&self) -> &'static str {
            "letters"
        }

        fn lines(
            &self,
            names: Vec<String>,
            counts: &Tally,
        ) -> Box<dyn Iterator<Item = String> + Send> {
            let requests = counts.of("requests").unwrap_or(0);
            if names == ["long"] {
                let line = || "x".repeat(100);
                return Box::new(std::iter::repeat_with(line).take(100_000));
            }
            let letters = ('a'..='j').cycle().take(1_000).map(String::from);
            let is_named = move |one: &String| names.is_empty() || names.contains(one);
            Box::new(
                letters
                    .filter(is_named)
                    .map(move |one| format!("{one}{requests}")),
            )
        }
    }

    fn server(reloads: Option<crate::reload::Requests>) -> (Arc<Observed>, Arc<[Published]>) {
        let published: Arc<[Published]> = Published::for_workers(1).into();
        let server = Observed::new(
            ("web", "1.2"),
            Arc::clone(&published),
            Arc::default(),
            reloads,
            (Vec::new(), vec![Arc::new(Letters)]),
        );
        (server, published)
    }

    fn publish(published: &[Published]) {
        let requests = |tally: &mut Tally| tally.event("requests", 5);
        let mut slot = published[0].lock();
        let (port, times) = Default::default();
        slot.fill(port, &times, Counted::default(), requests);
    }

    /// Returns the status and the body of the answer to a request.
    fn ask(line: &str, access: Access, server: &Arc<Observed>) -> (u16, String) {
        let (method, target) = line.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(target);
        let request = request.body(()).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let reply = answer(&request, access, server).await;
            let code = reply.status().as_u16();
            let body = reply.into_body().collect().await.unwrap().to_bytes();
            (code, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    #[test]
    fn a_server_is_ready_from_its_start_to_its_stop() {
        let (server, published) = server(None);
        let codes = || ["GET /health", "GET /ready"].map(|line| ask(line, Access::Look, &server).0);
        assert_eq!(codes(), [503, 503], "starting");
        server.note_serving(std::iter::empty());
        assert_eq!(codes(), [503, 503], "the worker does not run");
        publish(&published);
        assert_eq!(codes(), [200, 200]);
        server.note_stopping();
        assert_eq!(codes(), [200, 503], "stopping");
    }

    #[test]
    fn metrics_and_status_show_the_counts() {
        let (server, published) = server(None);
        publish(&published);
        let (code, text) = ask("GET /metrics", Access::Look, &server);
        assert_eq!(code, 200);
        assert!(
            text.contains("web_requests_total{worker=\"0\"} 5\n"),
            "{text}"
        );
        let (code, text) = ask("GET /status", Access::Look, &server);
        assert!(text.ends_with("}\n"), "{text}");
        let status: crate::status::Status = serde_json::from_str(&text).unwrap();
        assert_eq!((code, status.workers[0].counts[0].count), (200, 5));
    }

    #[test]
    fn a_list_of_content_has_all_lines_or_those_that_are_named() {
        let (server, published) = server(None);
        publish(&published);
        let (code, all) = ask("GET /letters", Access::Control, &server);
        assert_eq!((code, all.lines().count()), (200, 1_000));
        assert!(
            all.starts_with("a5\nb5\n") && all.ends_with("j5\n"),
            "{all}"
        );
        let (_, some) = ask(
            "GET /letters?name=c&name=x&name=%61",
            Access::Control,
            &server,
        );
        assert_eq!(some, "a5\nc5\n".repeat(100));
        let (_, paths) = ask("GET /nothing", Access::Control, &server);
        assert!(paths.contains(", /letters, /connections and "), "{paths}");
    }

    #[test]
    fn other_requests_are_refused() {
        let (server, _) = server(None);
        for (line, access, code) in [
            ("GET /nothing", Access::Look, 404),
            ("POST /metrics", Access::Look, 405),
            ("POST /reload", Access::Look, 404),
            ("GET /reload", Access::Control, 405),
            ("POST /reload", Access::Control, 501),
            ("GET /connections", Access::Look, 404),
            ("GET /trace?peer=192.0.2.7", Access::Look, 404),
            ("GET /letters", Access::Look, 404),
            ("POST /letters", Access::Control, 405),
            ("GET /letters?color=red", Access::Control, 400),
            ("POST /trace", Access::Control, 405),
            ("GET /trace", Access::Control, 400),
            ("GET /trace?peer=localhost", Access::Control, 400),
            ("GET /trace?peer=::1&snap=300000", Access::Control, 400),
            ("GET /trace?peer=::1&count=0", Access::Control, 400),
            ("DELETE /trace", Access::Control, 404),
            ("DELETE /trace?number=1", Access::Control, 404),
            ("DELETE /trace?number=0", Access::Control, 400),
            ("DELETE /trace?peer=::1", Access::Control, 400),
            ("POST /connections", Access::Control, 405),
            ("GET /connections?color=red", Access::Control, 400),
            ("GET /connections?limit=all", Access::Control, 400),
        ] {
            assert_eq!(ask(line, access, &server).0, code, "{line}");
        }
        let (_, methods) = ask("PUT /metrics", Access::Look, &server);
        assert_eq!(methods, "use GET, HEAD\n");
        for (line, rule) in [
            ("GET /connections?limit=0", "from 1 to 18446744073709551615"),
            (
                "GET /trace?peer=::1&count=0",
                "from 1 to 18446744073709551615",
            ),
            ("GET /trace?peer=::1&snap=9", "from 14 to 262144"),
            ("GET /trace?peer=::1&seconds=0", "from 1 to 604800"),
            ("GET /trace?peer=a", "such as 192.0.2.7"),
            ("GET /trace", "peer is missing"),
        ] {
            let (code, why) = ask(line, Access::Control, &server);
            assert!(code == 400 && why.contains(rule), "{line}: {why}");
        }
    }

    /// Sends a request, and returns the answer.
    fn exchange(mut stream: UnixStream, line: &str) -> String {
        stream.write_all(line.as_bytes()).unwrap();
        stream.write_all(b" HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Runs `clients` while a server answers at this socket.
    fn serve_at(path: &Path, access: Access, clients: impl FnOnce() + Send + 'static) {
        let listener = Listener::bind(&crate::ListenAddress::Unix(path.to_owned())).unwrap();
        let clients = std::thread::spawn(clients);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let (server, _) = server(None);
        let listener = listener.into_async().unwrap();
        runtime.spawn(serve(listener, access, None, server));
        while !clients.is_finished() {
            runtime.block_on(sleep(Duration::from_millis(1)));
        }
        clients.join().unwrap();
    }

    #[test]
    fn clients_that_do_not_read_keep_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let to = path.clone();
        serve_at(&path, Access::Control, move || {
            let ask = |target: &str| {
                let mut stream = UnixStream::connect(&to).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .unwrap();
                stream
                    .write_all(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes())
                    .unwrap();
                stream
            };
            let mut begun: Vec<_> = (0..MAX_CONNECTIONS)
                .map(|_| ask("/letters?name=long"))
                .collect();
            for stream in &mut begun {
                stream.read_exact(&mut [0; 15]).unwrap();
            }
            let mut answer = [0; 12];
            ask("/health").read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 503");
            let mut rest = Vec::new();
            let cut = begun.iter_mut().filter_map(|one| {
                rest.clear();
                one.read_to_end(&mut rest).unwrap();
                (!rest.ends_with(b"\r\n0\r\n\r\n")).then_some(())
            });
            assert_eq!(cut.count(), 1);
        });
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let to = path.clone();
        serve_at(&path, Access::Look, move || {
            let connect = || UnixStream::connect(&to).unwrap();
            let mut idle: Vec<_> = (0..MAX_CONNECTIONS).map(|_| connect()).collect();
            let answer = exchange(connect(), "GET /health");
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert_eq!(idle.remove(0).read(&mut [0]).unwrap(), 0, "closed");
            for second in idle {
                let answer = exchange(second, "GET /health");
                assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            }
        });
    }

    #[test]
    fn a_reload_that_cannot_be_asked_for_is_refused() {
        let requests = crate::reload::Requests::for_tests();
        let (server, _) = server(Some(requests.clone()));
        for (line, code) in [
            ("POST /reload?all", 400),
            ("POST /reload?only=%ff", 400),
            ("POST /reload?only=a&only=b", 400),
        ] {
            assert_eq!(ask(line, Access::Control, &server).0, code, "{line}");
        }
        assert_eq!(requests.waiting(), 0);
        while requests.ask(None).is_some() {}
        assert_eq!(ask("POST /reload", Access::Control, &server).0, 503);
    }
}
