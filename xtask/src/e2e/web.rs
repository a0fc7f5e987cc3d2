//! What sandstorm must answer, asked by curl and over sockets.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Content;
use super::checks::Checks;
use super::http::{Connection, Response, same};
use super::rig::Place;
use crate::shell::{self, Context as _, Failure, Result};

/// Sizes of the generated bodies: nothing, one byte, one segment and one byte
/// on either side of it, many segments, and far more than any window.
pub(crate) const SIZES: [usize; 7] = [0, 1, 1459, 1460, 1461, 65_536, 30_000_000];

/// Connections that are open at the same time.
const AT_ONCE: usize = 500;

/// Threads that serve as clients for [`AT_ONCE`] connections.
const CLIENT_THREADS: usize = 20;

/// A file beside the site, which no request may reach, and what it holds.
pub(crate) const SECRET_FILE: &str = "secret.txt";
pub(crate) const SECRET: &str = "nobody may read this";

/// Copies the sample and adds the sized bodies, and names that must be
/// written with percent signs.
pub(crate) fn make_site(sample: &Path, site: &Path) -> Result<()> {
    copy_folder(sample, site)?;
    let write = |name: &str, body: &[u8]| {
        fs::write(site.join(name), body).context(format_args!("writing {name}"))
    };
    for size in SIZES {
        write(&format!("size-{size}.bin"), &body(size))?;
    }
    write("a name & more.txt", b"spaces\n")?;
    write("d\u{fc}ne.txt", b"beyond ASCII\n")
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).context(format_args!("making {}", to.display()))?;
    for entry in fs::read_dir(from).context(format_args!("reading {}", from.display()))? {
        let entry = entry.context(format_args!("reading {}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).context(format_args!("copying {}", source.display()))?;
        }
    }
    Ok(())
}

/// Bytes in which no segment resembles another: a linear congruential
/// sequence, the same in each run.
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

/// One thing that is checked.
type Case<'a> = fn(&Client<'a>) -> Result<()>;

/// Everything that is checked of one server.
pub(crate) fn check(place: &Place, content: &Content, checks: &mut Checks) {
    let client = Client { place, content };
    for address in place.addresses() {
        for size in SIZES {
            checks.check(&format!("{size} bytes by curl from {address}"), || {
                client.body_by_curl(address, size)
            });
        }
        checks.check(
            &format!("all sizes on one connection from {address}"),
            || client.bodies_on_one_connection(address),
        );
        checks.check(
            &format!("{AT_ONCE} connections at once to {address}"),
            || client.many_at_once(address),
        );
    }
    let cases: &[(&str, Case<'_>)] = &[
        ("the index of the site and of a folder", Client::indexes),
        ("Content-Type, Date, Last-Modified, ETag", Client::fields),
        ("HEAD", Client::head),
        ("304", Client::not_modified),
        ("404", Client::not_found),
        ("405", Client::method_not_allowed),
        ("400, 417, 501, 505", Client::refused),
        ("a redirect that keeps the query", Client::redirect),
        ("percent signs in a path", Client::percent),
        ("no way out of the folder", Client::traversal),
        ("many requests on one connection", Client::keep_alive),
        ("pipelining", Client::pipelining),
        ("a request in many segments", Client::split_request),
        ("Connection: close", Client::connection_close),
        ("a client that has closed its half", Client::half_closed),
        ("HTTP/1.0 and HTTP/1.2", Client::other_versions),
    ];
    for (name, case) in cases {
        checks.check(name, || case(&client));
    }
}

struct Client<'a> {
    place: &'a Place,
    content: &'a Content,
}

impl Client<'_> {
    fn connect(&self) -> Result<Connection> {
        Connection::open(self.place.socket(self.place.v4))
    }

    fn get(&self, path: &str) -> Result<Response> {
        self.connect()?.request("GET", path, "")
    }

    fn file(&self, name: &str) -> Result<Vec<u8>> {
        fs::read(self.content.site.join(name)).context(format_args!("reading {name}"))
    }

    fn url(&self, address: IpAddr, path: &str) -> String {
        format!("http://{}{path}", self.place.socket(address))
    }

    fn body_by_curl(&self, address: IpAddr, size: usize) -> Result<()> {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--fail",
            "--globoff",
            "--max-time",
            "60",
        ]);
        curl.arg(self.url(address, &format!("/size-{size}.bin")));
        same(&shell::capture(&mut curl)?, &body(size))
    }

    fn bodies_on_one_connection(&self, address: IpAddr) -> Result<()> {
        let mut connection = Connection::open(self.place.socket(address))?;
        for size in SIZES {
            let response = connection.request("GET", &format!("/size-{size}.bin"), "")?;
            response
                .expect_body(&body(size))
                .context(format_args!("{size} bytes"))?;
        }
        Ok(())
    }

    /// Opens all connections, sends a request on each, and only then reads.
    fn many_at_once(&self, address: IpAddr) -> Result<()> {
        const SHARE: usize = AT_ONCE / CLIENT_THREADS;
        let to = self.place.socket(address);
        let sizes = [1_461, 65_536];
        let bodies = sizes.map(body);
        let opened: Result<Vec<Vec<Connection>>> = in_threads(vec![(); CLIENT_THREADS], |()| {
            (0..SHARE).map(|_| Connection::open(to)).collect()
        });
        let asked = in_threads(opened?, |mut connections| {
            for (i, connection) in connections.iter_mut().enumerate() {
                let size = sizes[i % sizes.len()];
                let path = format!("GET /size-{size}.bin HTTP/1.1\r\nHost: many\r\n\r\n");
                connection.send(path.as_bytes())?;
            }
            Ok(connections)
        });
        in_threads(asked?, |mut connections| {
            for (i, connection) in connections.iter_mut().enumerate() {
                connection
                    .receive(true)?
                    .expect_body(&bodies[i % sizes.len()])?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn indexes(&self) -> Result<()> {
        self.get("/")?.expect_body(&self.file("index.html")?)?;
        self.get("/index.html")?
            .expect_body(&self.file("index.html")?)?;
        self.get("/docs/")?
            .expect_body(&self.file("docs/index.html")?)?;
        // Without the slash, links in the page would lead astray: the client
        // is sent on.
        let response = self.get("/docs")?;
        response.expect_status(301)?;
        let to = response.require("Location")?;
        if to.ends_with("/docs/") {
            Ok(())
        } else {
            Err(Failure::new(format!("Location: {to}")))
        }
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
            let found = response.require("Content-Type")?;
            if !found.starts_with(media_type) {
                return Err(Failure::new(format!("{path} is {found}, not {media_type}")));
            }
            for field in ["Date", "Last-Modified"] {
                let date = response.require(field)?;
                if date.len() != 29 || !date.ends_with(" GMT") {
                    return Err(Failure::new(format!(
                        "{path}: {field}: {date} is no IMF-fixdate"
                    )));
                }
            }
            let tag = response.require("ETag")?;
            if !tag.trim_start_matches("W/").starts_with('"') || !tag.ends_with('"') {
                return Err(Failure::new(format!("{path}: ETag: {tag} is not quoted")));
            }
        }
        Ok(())
    }

    fn head(&self) -> Result<()> {
        let mut connection = self.connect()?;
        let response = connection.request("HEAD", "/size-65536.bin", "")?;
        response.expect_status(200)?;
        if response.require("Content-Length")? != "65536" {
            return Err(Failure::new("HEAD gives another Content-Length than GET"));
        }
        // A body would be taken for the next response's head.
        connection
            .request("GET", "/size-1.bin", "")?
            .expect_body(&body(1))?;
        let missing = connection.request("HEAD", "/nothing-here", "")?;
        missing.expect_status(404)?;
        connection
            .request("GET", "/size-1.bin", "")?
            .expect_body(&body(1))
    }

    fn not_modified(&self) -> Result<()> {
        let mut connection = self.connect()?;
        let first = connection.request("GET", "/size-1461.bin", "")?;
        let tag = first.require("ETag")?;
        let date = first.require("Last-Modified")?;
        let mut ask = |more: &str| connection.request("GET", "/size-1461.bin", more);
        let matching = ask(&format!("If-None-Match: {tag}\r\n"))?;
        matching.expect_status(304)?;
        matching.require("ETag")?;
        ask(&format!("If-None-Match: \"other\", {tag}\r\n"))?.expect_status(304)?;
        ask("If-None-Match: *\r\n")?.expect_status(304)?;
        ask("If-None-Match: \"other\"\r\n")?.expect_body(&body(1_461))?;
        ask(&format!("If-Modified-Since: {date}\r\n"))?.expect_status(304)?;
        ask("If-Modified-Since: Mon, 01 Jan 1990 00:00:00 GMT\r\n")?.expect_body(&body(1_461))?;
        // RFC 9110, section 13.2.2: the tag decides where both are given.
        ask(&format!(
            "If-None-Match: \"other\"\r\nIf-Modified-Since: {date}\r\n"
        ))?
        .expect_body(&body(1_461))
    }

    fn not_found(&self) -> Result<()> {
        let mut connection = self.connect()?;
        for path in [
            "/nothing-here",
            "/docs/nothing",
            "/style.css/",
            "/index.html/x",
        ] {
            connection.request("GET", path, "")?.expect_status(404)?;
        }
        // The connection lives on.
        connection
            .request("GET", "/size-1.bin", "")?
            .expect_body(&body(1))
    }

    fn method_not_allowed(&self) -> Result<()> {
        for method in ["POST", "PUT", "DELETE"] {
            let response = self
                .connect()?
                .request(method, "/", "Content-Length: 0\r\n")?;
            response.expect_status(405)?;
            let allowed = response.require("Allow")?;
            if !allowed.contains("GET") || !allowed.contains("HEAD") {
                return Err(Failure::new(format!("Allow: {allowed}")));
            }
        }
        Ok(())
    }

    fn refused(&self) -> Result<()> {
        for (request, status) in [
            ("nonsense\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost storm.test\r\n\r\n", 400),
            // RFC 9112, section 3.2: HTTP/1.1 without Host.
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: storm.test:http\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
            ("GET /%zz HTTP/1.1\r\nHost: storm.test\r\n\r\n", 400),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                400,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
                 0\r\n\r\n",
                501,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ] {
            let mut connection = self.connect()?;
            connection.send(request.as_bytes())?;
            let response = connection.receive(true);
            response
                .and_then(|response| response.expect_status(status))
                .and_then(|()| connection.expect_end())
                .context(format_args!("{request:?}"))?;
        }
        Ok(())
    }

    /// As curl follows it.
    fn redirect(&self) -> Result<()> {
        let query = "?a=1&b=%20c";
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--globoff"]);
        curl.args(["--max-time", "60", "--location", "--write-out"]);
        curl.arg("%{url_effective}");
        curl.args(["--output", "/dev/null"]);
        curl.arg(self.url(self.place.v4, &format!("/docs{query}")));
        let reached = shell::capture(&mut curl)?;
        let expected = self.url(self.place.v4, &format!("/docs/{query}"));
        same(&reached, expected.as_bytes())
    }

    fn percent(&self) -> Result<()> {
        for path in [
            "/a%20name%20%26%20more.txt",
            "/a%20name%20&%20more.txt",
            "/%61%20name%20%26%20more.txt",
        ] {
            self.get(path)?.expect_body(b"spaces\n").context(path)?;
        }
        self.get("/d%C3%BCne.txt")?.expect_body(b"beyond ASCII\n")?;
        self.get("/style.css?version=2")?
            .expect_body(&self.file("style.css")?)
    }

    fn traversal(&self) -> Result<()> {
        for path in [
            "/../secret.txt",
            "/docs/../../secret.txt",
            "/%2e%2e/secret.txt",
            "/..%2fsecret.txt",
            "/%2e%2e%2fsecret.txt",
            "/.%2e/secret.txt",
            "/docs/..%2f..%2fsecret.txt",
            "/..\\secret.txt",
            "/%252e%252e/secret.txt",
            "//../secret.txt",
            "/./../secret.txt",
            "/..",
            "/%00/../../secret.txt",
            "//etc/passwd",
            "/size-1.bin%00.html",
        ] {
            let response = self.get(path)?;
            let found = String::from_utf8_lossy(&response.body);
            if response.status == 200 || found.contains(SECRET) || found.contains("root:") {
                return Err(Failure::new(format!("{path}: status {}", response.status)));
            }
        }
        Ok(())
    }

    fn keep_alive(&self) -> Result<()> {
        let mut connection = self.connect()?;
        let (small, page) = (body(1_460), self.file("index.html")?);
        for _ in 0..100 {
            connection
                .request("GET", "/size-1460.bin", "")?
                .expect_body(&small)?;
            connection.request("GET", "/", "")?.expect_body(&page)?;
        }
        Ok(())
    }

    fn pipelining(&self) -> Result<()> {
        const REQUESTS: usize = 64;
        let sizes = [0, 1_459, 65_536, 1];
        let path = |i: usize| format!("/size-{}.bin", sizes[i % sizes.len()]);
        let request = |i| format!("GET {} HTTP/1.1\r\nHost: storm.test\r\n\r\n", path(i));
        let requests = (0..REQUESTS).map(request).collect::<Vec<_>>().concat();
        let mut connection = self.connect()?;
        connection.send(requests.as_bytes())?;
        for i in 0..REQUESTS {
            let response = connection.receive(true)?;
            response
                .expect_body(&body(sizes[i % sizes.len()]))
                .context(format_args!("request {i}"))?;
        }
        Ok(())
    }

    fn split_request(&self) -> Result<()> {
        let request = b"GET /size-1461.bin HTTP/1.1\r\nHost: storm.test\r\nAccept: */*\r\n\r\n";
        for step in [1, 7, 61] {
            let mut connection = self.connect()?;
            for part in request.chunks(step) {
                connection.send(part)?;
                // Long enough that the kernel does not join them.
                std::thread::sleep(Duration::from_millis(2));
            }
            connection
                .receive(true)?
                .expect_body(&body(1_461))
                .context(format_args!("by {step}"))?;
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
        connection.send(b"GET /size-65536.bin HTTP/1.1\r\nHost: storm.test\r\n\r\n")?;
        connection.finish()?;
        connection.receive(true)?.expect_body(&body(65_536))?;
        connection.expect_end()
    }

    fn other_versions(&self) -> Result<()> {
        let mut connection = self.connect()?;
        connection.send(b"GET /size-1461.bin HTTP/1.0\r\n\r\n")?;
        connection.receive(true)?.expect_body(&body(1_461))?;
        connection.expect_end()?;
        // A later version than ours is answered as ours.
        let mut connection = self.connect()?;
        connection.send(b"GET /size-1461.bin HTTP/1.2\r\nHost: a\r\n\r\n")?;
        connection.receive(true)?.expect_body(&body(1_461))?;
        connection
            .request("GET", "/size-1.bin", "")?
            .expect_body(&body(1))
    }
}

/// Does one thing for each input, all at the same time.
pub(crate) fn in_threads<I: Send, O: Send>(
    inputs: Vec<I>,
    work: impl Fn(I) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = inputs
            .into_iter()
            .map(|input| scope.spawn(move || work(input)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| Failure::new("a client thread has panicked"))?
            })
            .collect()
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
