//! Checks Sandstorm with curl, and with a client of our own on kernel sockets.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Env;
use super::checks::Checks;
use super::http::{Connection, Response, same};
use super::rig::Place;
use crate::shell;
use anyhow::{Context as _, Result, anyhow, ensure};

/// Sizes of the generated bodies in bytes: empty, one byte, around one segment, many segments, and
/// far more than any window.
pub(crate) const SIZES: [usize; 7] = [0, 1, 1459, 1460, 1461, 65_536, 30_000_000];

/// Number of simultaneous connections. [`CLIENT_THREADS`] threads share them.
const AT_ONCE: usize = 500;
const CLIENT_THREADS: usize = 20;

/// A file outside the site, which no request may reach. [`SECRET`] is its content.
pub(crate) const SECRET_FILE: &str = "secret.txt";
pub(crate) const SECRET: &str = "nobody may read this";

/// Copies the sample site. Adds the generated bodies, and files whose names need percent-encoding.
pub(crate) fn make_site(sample: &Path, site: &Path) -> Result<()> {
    copy_folder(sample, site)?;
    for size in SIZES {
        shell::write(&site.join(format!("size-{size}.bin")), body(size))?;
    }
    shell::write(&site.join("a name & more.txt"), "spaces\n")?;
    shell::write(&site.join("d\u{fc}ne.txt"), "beyond ASCII\n")
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    shell::make_folder(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let source = entry.with_context(|| from.display().to_string())?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(|| source.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns `size` pseudo-random bytes, so no two segments are alike. Every call with the same size
/// returns the same bytes.
pub(crate) fn body(size: usize) -> Vec<u8> {
    let mut state = size as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Requests on one connection. Each has a method and a path, further header lines, the expected
/// status, and the file with the expected body, if any.
type Exchanges<'a> = &'a [(&'a str, &'a str, u16, &'a str)];

const SMALL: (&str, &str, u16, &str) = ("GET /size-1.bin", "", 200, "size-1.bin");

const INDEXES: Exchanges<'_> = &[
    ("GET /", "", 200, "index.html"),
    ("GET /index.html", "", 200, "index.html"),
    ("GET /docs/", "", 200, "docs/index.html"),
    // The redirect adds the final slash. Without it, relative links on the page would break.
    ("GET /docs", "", 301, ""),
];
/// The connection must stay open after a 404, so the last request is answered.
const NOT_FOUND: Exchanges<'_> = &[
    ("GET /nothing-here", "", 404, ""),
    ("GET /docs/nothing", "", 404, ""),
    ("GET /style.css/", "", 404, ""),
    ("GET /index.html/x", "", 404, ""),
    SMALL,
];
/// If the server sent a body after HEAD, it would be parsed as the next response's head.
const HEAD: Exchanges<'_> = &[
    ("HEAD /size-65536.bin", "", 200, ""),
    SMALL,
    ("HEAD /nothing-here", "", 404, ""),
    SMALL,
];
const PERCENT: Exchanges<'_> = &[
    (
        "GET /a%20name%20%26%20more.txt",
        "",
        200,
        "a name & more.txt",
    ),
    ("GET /a%20name%20&%20more.txt", "", 200, "a name & more.txt"),
    (
        "GET /%61%20name%20%26%20more.txt",
        "",
        200,
        "a name & more.txt",
    ),
    ("GET /d%C3%BCne.txt", "", 200, "d\u{fc}ne.txt"),
    ("GET /style.css?version=2", "", 200, "style.css"),
];
/// Conditional header fields, and the expected status. TAG and DATE stand for the file's `ETag` and
/// `Last-Modified`.
const CONDITIONS: &[(&str, u16)] = &[
    ("If-None-Match: TAG\r\n", 304),
    ("If-None-Match: \"other\", TAG\r\n", 304),
    ("If-None-Match: *\r\n", 304),
    ("If-None-Match: \"other\"\r\n", 200),
    ("If-Modified-Since: DATE\r\n", 304),
    ("If-Modified-Since: Mon, 01 Jan 1990 00:00:00 GMT\r\n", 200),
    // `If-None-Match` takes precedence over `If-Modified-Since` (RFC 9110, section 13.2.2).
    (
        "If-None-Match: \"other\"\r\nIf-Modified-Since: DATE\r\n",
        200,
    ),
];
/// Requests after which the server closes the connection, and the expected status. Each lacks its
/// final empty line.
const REFUSED: &[(&str, u16)] = &[
    ("nonsense\r\n", 400),
    ("GET /\r\n", 400),
    ("GET / HTTP/1.1\r\nHost storm.test\r\n", 400),
    // An HTTP/1.1 request must have a Host field (RFC 9112, section 3.2).
    ("GET / HTTP/1.1\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: storm.test:http\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1\r\n", 400),
    ("GET /%zz HTTP/1.1\r\nHost: storm.test\r\n", 400),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n",
        400,
    ),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n",
        501,
    ),
    ("GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n", 417),
    ("GET / HTTP/2.0\r\nHost: a\r\n", 505),
];
/// Paths that try to leave the site's folder.
const TRAVERSAL: &str = "/../secret.txt /docs/../../secret.txt /%2e%2e/secret.txt /..%2fsecret.txt \
    /%2e%2e%2fsecret.txt /.%2e/secret.txt /docs/..%2f..%2fsecret.txt /..\\secret.txt \
    /%252e%252e/secret.txt //../secret.txt /./../secret.txt /.. /%00/../../secret.txt \
    //etc/passwd /size-1.bin%00.html";

/// A check of one behaviour, as a method of [`Client`].
type Case = fn(&Client) -> Result<()>;

const CASES: &[(&str, Case)] = &[
    ("the index of the site and of a folder", Client::indexes),
    ("Content-Type, Date, Last-Modified, ETag", Client::fields),
    ("HEAD", Client::head),
    ("304", Client::not_modified),
    ("404", |client| client.ask_all(NOT_FOUND).map(drop)),
    ("405", Client::method_not_allowed),
    ("ranges by curl", Client::ranges),
    ("a download by curl that goes on", Client::resume),
    ("the habits of a CDN", Client::cdn),
    ("400, 417, 501, 505", Client::refused),
    ("a redirect that keeps the query", Client::redirect),
    ("percent signs in a path", |client| {
        client.ask_all(PERCENT).map(drop)
    }),
    ("no way out of the folder", Client::traversal),
    ("many requests on one connection", Client::keep_alive),
    ("pipelining", Client::pipelining),
    ("a request in many segments", Client::split_request),
    ("Connection: close", Client::connection_close),
    ("a client that has closed its half", Client::half_closed),
    ("HTTP/1.0 and HTTP/1.2", Client::other_versions),
];

/// Runs all checks against the server at `place`.
pub(crate) fn check(place: &Place, env: &Env, checks: &mut Checks) {
    for address in place.addresses() {
        let to = place.socket(address);
        for size in SIZES {
            checks.check(format_args!("{size} bytes by curl from {address}"), || {
                same(&curl(to, &format!("/size-{size}.bin"), &[])?, &body(size))
            });
        }
        checks.check(
            format_args!("all sizes on one connection from {address}"),
            || all_sizes(to),
        );
        checks.check(
            format_args!("{AT_ONCE} connections at once to {address}"),
            || many_at_once(to),
        );
    }
    let (site, to) = (env.site.clone(), place.socket(place.v4));
    let client = Client { site, to };
    for (name, case) in CASES {
        checks.check(name, || case(&client));
    }
}

fn curl(to: SocketAddr, path: &str, more: &[&str]) -> Result<Vec<u8>> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--globoff"]);
    curl.args(["--max-time", "60"]).args(more);
    shell::capture(curl.arg(format!("http://{to}{path}")))
}

fn all_sizes(to: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(to)?;
    for size in SIZES {
        let response = connection.request("GET", &format!("/size-{size}.bin"), "")?;
        let right = response.expect_body(&body(size));
        right.with_context(|| format!("{size} bytes"))?;
    }
    Ok(())
}

/// Opens all connections, sends a request on each, and then reads all responses.
fn many_at_once(to: SocketAddr) -> Result<()> {
    let sizes = [1_461, 65_536];
    let bodies = sizes.map(body);
    let threads = vec![(); CLIENT_THREADS];
    let opened: Vec<Vec<Connection>> = in_threads(threads, |()| {
        let share = 0..AT_ONCE / CLIENT_THREADS;
        share.map(|_| Connection::open(to)).collect()
    })?;
    let requested = in_threads(opened, |mut connections| {
        for (connection, size) in connections.iter_mut().zip(sizes.iter().cycle()) {
            connection.send(get(&format!("/size-{size}.bin")))?;
        }
        Ok(connections)
    })?;
    in_threads(requested, |mut connections| {
        for (connection, body) in connections.iter_mut().zip(bodies.iter().cycle()) {
            connection.receive(true)?.expect_body(body)?;
        }
        Ok(())
    })
    .map(drop)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: storm.test\r\n\r\n")
}

struct Client {
    site: PathBuf,
    to: SocketAddr,
}

impl Client {
    fn connect(&self) -> Result<Connection> {
        Connection::open(self.to)
    }

    fn get(&self, path: &str) -> Result<Response> {
        self.connect()?.request("GET", path, "")
    }

    /// Sends requests on one connection, checks the responses and returns them.
    fn ask_all(&self, exchanges: Exchanges<'_>) -> Result<Vec<Response>> {
        let mut connection = self.connect()?;
        let ask = |(request, more, status, file): &(&str, &str, u16, &str)| {
            let (method, path) = request.split_once(' ').context("no path")?;
            let response = connection
                .request(method, path, more)
                .with_context(|| request.to_string())?;
            response
                .expect_status(*status)
                .with_context(|| request.to_string())?;
            if !file.is_empty() {
                let body = fs::read(self.site.join(file)).with_context(|| file.to_string())?;
                same(&response.body, &body).with_context(|| request.to_string())?;
            }
            Ok(response)
        };
        exchanges.iter().map(ask).collect()
    }

    fn indexes(&self) -> Result<()> {
        let responses = self.ask_all(INDEXES)?;
        let to = responses[INDEXES.len() - 1].field("Location")?;
        ensure!(to.ends_with("/docs/"), "Location: {to}");
        Ok(())
    }

    fn fields(&self) -> Result<()> {
        for (path, media_type) in [
            ("/", "text/html"),
            ("/style.css", "text/css"),
            ("/dune.svg", "image/svg+xml"),
            ("/empty.txt", "text/plain"),
            ("/size-1.bin", "application/octet-stream"),
        ] {
            let response = self.get(path)?;
            response.expect_status(200)?;
            let found = response.field("Content-Type")?;
            ensure!(found.starts_with(media_type), "{path} is {found}");
            for field in ["Date", "Last-Modified"] {
                let date = response.field(field)?;
                let is_fixdate = date.len() == 29 && date.ends_with(" GMT");
                ensure!(is_fixdate, "{path}: {field}: {date} is no IMF-fixdate");
            }
            let tag = response.field("ETag")?.trim_start_matches("W/");
            let is_quoted = tag.starts_with('"') && tag.ends_with('"');
            ensure!(is_quoted, "{path}: ETag: {tag} is not quoted");
        }
        Ok(())
    }

    fn head(&self) -> Result<()> {
        let length = self.ask_all(HEAD)?[0].field("Content-Length")?.to_owned();
        ensure!(length == "65536", "Content-Length: {length} for HEAD");
        Ok(())
    }

    fn not_modified(&self) -> Result<()> {
        let (path, body) = ("/size-1461.bin", body(1_461));
        let mut connection = self.connect()?;
        let first = connection.request("GET", path, "")?;
        let (tag, date) = (first.field("ETag")?, first.field("Last-Modified")?);
        for (condition, status) in CONDITIONS {
            let condition = condition.replace("TAG", tag).replace("DATE", date);
            let response = connection.request("GET", path, &condition)?;
            if *status == 304 {
                response
                    .expect_status(304)
                    .with_context(|| condition.clone())?;
                response.field("ETag")?;
            } else {
                response
                    .expect_body(&body)
                    .with_context(|| condition.clone())?;
            }
        }
        Ok(())
    }

    fn method_not_allowed(&self) -> Result<()> {
        for method in ["POST", "PUT", "DELETE"] {
            let response = self
                .connect()?
                .request(method, "/", "Content-Length: 0\r\n")?;
            response.expect_status(405)?;
            let allowed = response.field("Allow")?;
            let is_right = allowed.contains("GET") && allowed.contains("HEAD");
            ensure!(is_right, "Allow: {allowed}");
        }
        Ok(())
    }

    fn ranges(&self) -> Result<()> {
        let (path, whole) = ("/size-65536.bin", body(65_536));
        for (range, expected) in [
            ("0-0", &whole[..1]),
            ("1000-40000", &whole[1_000..=40_000]),
            ("65000-", &whole[65_000..]),
            ("-100", &whole[65_436..]),
        ] {
            let part = curl(self.to, path, &["--range", range]);
            part.and_then(|part| same(&part, expected))
                .with_context(|| range.to_owned())?;
        }
        let several = curl(self.to, path, &["--range", "0-9,60000-60009"])?;
        for expected in [&whole[..10], &whole[60_000..60_010]] {
            let is_there = several.windows(10).any(|window| window == expected);
            ensure!(is_there, "a part is missing");
        }
        let mut connection = self.connect()?;
        let refused = connection.request("GET", path, "Range: bytes=65536-\r\n")?;
        refused.expect_status(416)?;
        same(refused.field("Content-Range")?.as_bytes(), b"bytes */65536")
    }

    /// A download that ended halfway resumes there.
    fn resume(&self) -> Result<()> {
        let (folder, whole) = (shell::scratch("resume")?, body(65_536));
        let file = folder.path().join("half");
        shell::write(&file, &whole[..30_000])?;
        let output = file.display().to_string();
        let options = ["--continue-at", "-", "--output", &output];
        curl(self.to, "/size-65536.bin", &options)?;
        let received = std::fs::read(&file).with_context(|| output.clone())?;
        same(&received, &whole)
    }

    /// Fetches a file as CDNs do: HEAD, then parts of 1 MiB, of which the last one is shorter, and later
    /// revalidations.
    fn cdn(&self) -> Result<()> {
        const STEP: usize = 1 << 20;
        let (path, whole) = ("/size-30000000.bin", body(30_000_000));
        let mut connection = self.connect()?;
        let head = connection.request("HEAD", path, "Accept-Encoding: gzip\r\n")?;
        head.expect_status(200)?;
        let (tag, date) = (head.field("ETag")?, head.field("Last-Modified")?);
        same(head.field("Content-Length")?.as_bytes(), b"30000000")?;
        same(head.field("Accept-Ranges")?.as_bytes(), b"bytes")?;
        // Not all parts, because some scenarios have slow links.
        for part in [0, 1, 2, whole.len() / STEP] {
            let part = part * STEP..((part + 1) * STEP).min(whole.len());
            let (first, last) = (part.start, part.end - 1);
            let range = format!("Range: bytes={first}-{}\r\n", part.start + STEP - 1);
            let fields = format!("{range}If-Range: {tag}\r\nAccept-Encoding: gzip\r\n");
            let response = connection.request("GET", path, &fields)?;
            response.expect_status(206)?;
            let content_range = format!("bytes {first}-{last}/30000000");
            same(
                response.field("Content-Range")?.as_bytes(),
                content_range.as_bytes(),
            )?;
            same(response.field("ETag")?.as_bytes(), tag.as_bytes())?;
            same(&response.body, &whole[part])?;
        }
        let range = "Range: bytes=0-1048575\r\n";
        for (fields, status) in [
            (format!("If-None-Match: {tag}\r\n{range}"), 304),
            (format!("If-None-Match: W/{tag}\r\n"), 304),
            (format!("If-Modified-Since: {date}\r\n{range}"), 304),
            (format!("If-Match: \"other\"\r\n{range}"), 412),
            (format!("If-Match: {tag}\r\n{range}"), 206),
            ("Range: bytes=30000000-\r\n".to_owned(), 416),
        ] {
            let response = connection.request("GET", path, &fields)?;
            response
                .expect_status(status)
                .with_context(|| fields.clone())?;
        }
        // With another version, the whole file must come.
        let fields = format!("If-Range: \"other\"\r\n{range}");
        let response = connection.request("GET", "/size-65536.bin", &fields)?;
        response.expect_body(&body(65_536))
    }

    fn refused(&self) -> Result<()> {
        for (request, status) in REFUSED {
            let mut connection = self.connect()?;
            connection.send(format!("{request}\r\n"))?;
            let response = connection.receive(true);
            response
                .and_then(|response| response.expect_status(*status))
                .and_then(|()| connection.expect_end())
                .with_context(|| format!("{request:?}"))?;
        }
        Ok(())
    }

    fn redirect(&self) -> Result<()> {
        let report = [
            "--location",
            "--output",
            "/dev/null",
            "--write-out",
            "%{url_effective}",
        ];
        let reached = curl(self.to, "/docs?a=1&b=%20c", &report)?;
        let expected = format!("http://{}/docs/?a=1&b=%20c", self.to);
        same(&reached, expected.as_bytes())
    }

    fn traversal(&self) -> Result<()> {
        for path in TRAVERSAL.split_whitespace() {
            let response = self.get(path)?;
            let found = String::from_utf8_lossy(&response.body);
            let leaks = found.contains(SECRET) || found.contains("root:");
            let status = response.status;
            ensure!(status != 200 && !leaks, "{path}: status {status}");
        }
        Ok(())
    }

    fn keep_alive(&self) -> Result<()> {
        let pair = [
            ("GET /size-1460.bin", "", 200, "size-1460.bin"),
            ("GET /", "", 200, "index.html"),
        ];
        self.ask_all(&pair.repeat(100)).map(drop)
    }

    fn pipelining(&self) -> Result<()> {
        let sizes = [0, 1_459, 65_536, 1].repeat(16);
        let requests = sizes.iter().map(|size| get(&format!("/size-{size}.bin")));
        let mut connection = self.connect()?;
        connection.send(requests.collect::<String>())?;
        for (i, size) in sizes.into_iter().enumerate() {
            let right = connection.receive(true)?.expect_body(&body(size));
            right.with_context(|| format!("request {i}"))?;
        }
        Ok(())
    }

    fn split_request(&self) -> Result<()> {
        let request = get("/size-1461.bin").replace("\r\n\r\n", "\r\nAccept: */*\r\n\r\n");
        for step in [1, 7, 61] {
            let mut connection = self.connect()?;
            for part in request.as_bytes().chunks(step) {
                connection.send(part)?;
                // Pause for long enough that the kernel does not merge the pieces.
                std::thread::sleep(Duration::from_millis(2));
            }
            let right = connection.receive(true)?.expect_body(&body(1_461));
            right.with_context(|| format!("by {step}"))?;
        }
        Ok(())
    }

    fn connection_close(&self) -> Result<()> {
        let mut connection = self.connect()?;
        let response = connection.request("GET", "/size-65536.bin", "Connection: close\r\n")?;
        response.expect_body(&body(65_536))?;
        connection.expect_end()
    }

    fn half_closed(&self) -> Result<()> {
        let mut connection = self.connect()?;
        connection.send(get("/size-65536.bin"))?;
        connection.finish()?;
        connection.receive(true)?.expect_body(&body(65_536))?;
        connection.expect_end()
    }

    fn other_versions(&self) -> Result<()> {
        let mut connection = self.connect()?;
        connection.send("GET /size-1461.bin HTTP/1.0\r\n\r\n")?;
        connection.receive(true)?.expect_body(&body(1_461))?;
        connection.expect_end()?;
        // The server answers a higher minor version with HTTP/1.1.
        let mut connection = self.connect()?;
        connection.send("GET /size-1461.bin HTTP/1.2\r\nHost: a\r\n\r\n")?;
        connection.receive(true)?.expect_body(&body(1_461))?;
        connection
            .request("GET", "/size-1.bin", "")?
            .expect_body(&body(1))
    }
}

/// Runs `work` on each input in a separate thread, and collects the results.
pub(crate) fn in_threads<I: Send, O: Send>(
    inputs: Vec<I>,
    work: impl Fn(I) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    std::thread::scope(|scope| {
        let work = &work;
        let spawn = |input| scope.spawn(move || work(input));
        let threads: Vec<_> = inputs.into_iter().map(spawn).collect();
        let panicked = |_| anyhow!("a client thread panicked");
        let mut outcomes = threads
            .into_iter()
            .map(|thread| thread.join().map_err(panicked)?);
        outcomes.by_ref().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_differ() {
        for size in SIZES {
            assert_eq!(body(size).len(), size);
        }
        let long = body(65_536);
        assert_ne!(long[..1_460], long[1_460..2_920]);
        assert_ne!(body(1_460), body(1_461)[..1_460]);
    }
}
