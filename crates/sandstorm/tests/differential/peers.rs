//! The servers: Sandstorm without a network, and another one behind a Unix socket.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::{Limits, Session, Site, Step};
use tempfile::TempDir;

use super::folder::Folder;
use super::requests::Request;

/// The tags of each file, for a client without codings and for one that accepts gzip.
pub(crate) type Tags = HashMap<String, [String; 2]>;

pub(crate) struct Answered {
    pub(crate) status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answered {
    fn of(head: &[u8], body: &[u8]) -> Self {
        let head = String::from_utf8(head.to_vec()).unwrap();
        Self {
            status: head[9..12].parse().unwrap(),
            head,
            body: body.to_vec(),
        }
    }

    /// Returns the value of a field. It is empty if the field is not there.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|field| field.0.eq_ignore_ascii_case(name))
            .map_or("", |field| field.1.trim())
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("Connection") == "close"
    }

    /// Returns the bytes of the file in the response, each at its place.
    pub(crate) fn file(&self) -> Vec<Option<u8>> {
        let mut file = Vec::new();
        for part in self.parts() {
            let range = part.field("Content-Range").trim_start_matches("bytes ");
            let first = range.split('-').next().unwrap().parse().unwrap_or(0);
            file.resize(file.len().max(first + part.body.len()), None);
            for (place, byte) in file[first..].iter_mut().zip(part.body) {
                *place = Some(byte);
            }
        }
        file
    }

    /// Returns the response, or each part of a response with several parts.
    fn parts(&self) -> Vec<Self> {
        let Some((_, boundary)) = self.field("Content-Type").split_once("; boundary=") else {
            return vec![Self::of(self.head.as_bytes(), &self.body)];
        };
        let (line, body) = (
            format!("\r\n--{boundary}"),
            [b"\r\n", &self.body[..]].concat(),
        );
        assert!(body.ends_with(format!("{line}--\r\n").as_bytes()));
        let lines: Vec<_> = memchr::memmem::find_iter(&body, &line).collect();
        let part = |ends: &[usize]| {
            let part = &body[ends[0] + line.len()..ends[1]];
            let (head, body) = part.split_at(head_len(part).unwrap());
            Self::of(&[b"HTTP/1.1 206", head].concat(), body)
        };
        lines.windows(2).map(part).collect()
    }
}

/// Returns the body that consists of these chunks (RFC 9112, section 7.1), if all of them are there.
fn from_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = memchr::memmem::find(rest, b"\r\n")?;
        let len = std::str::from_utf8(&rest[..end]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        let chunk = rest.get(end + 2..end + 2 + len)?;
        rest = rest.get(end + 2 + len + 2..)?;
        if len == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
    }
}

/// Returns the length of the head at the start of `bytes`, if it is complete.
fn head_len(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Returns Sandstorm's response to a request that arrives in two pieces.
pub(crate) fn ask_sandstorm(site: &Site, request: &Request, bytes: &[u8]) -> Answered {
    let mut session = Session::default();
    let first = session.next(site, &bytes[..request.cut.min(bytes.len() / 2)]);
    let second = if let Step::More { .. } = first {
        session.next(site, bytes)
    } else {
        first
    };
    let Step::Answer(answer) = second else {
        panic!("no response to {}", bytes.escape_ascii());
    };
    let (mut sent, stamp) = (Vec::new(), Stamp::new(1_800_000_000, answer.close));
    answer.write(site, bytes, stamp, &mut SlotWriter::new(), &mut sent);
    let (head, body) = sent.split_at(head_len(&sent).unwrap());
    Answered::of(head, body)
}

pub(crate) fn site(folder: &Folder) -> Site {
    Site::load(folder.root(), &Limits::default(), |_| ()).unwrap()
}

/// A server with which Sandstorm is compared.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// How it is installed.
    pub(crate) package: &'static str,
    /// The explained differences.
    pub(crate) explained: &'static str,
    /// The program, and where else it may be.
    programs: [&'static str; 2],
    /// Its arguments, in which `FOLDER` stands for its own folder.
    arguments: &'static str,
    /// Its configuration, in which `SOCKET` stands for its socket, and `ROOT` for the site.
    config: &'static str,
}

pub(crate) const NGINX: Peer = Peer {
    name: "nginx",
    package: "nginx-light",
    explained: include_str!("nginx.txt"),
    programs: ["nginx", "/usr/sbin/nginx"],
    arguments: "-p FOLDER -c FOLDER/config -e log",
    config: "
daemon off; master_process off; user root; pid pid; error_log log;
events {}
http {
  include /etc/nginx/mime.types; default_type application/octet-stream; access_log off;
  client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e;
  etag on; if_modified_since before; absolute_redirect off; keepalive_requests 1000000;
  gzip_static on; gzip_http_version 1.0; gzip_vary on; gzip_proxied any;
  server { listen unix:SOCKET; root \"ROOT\"; autoindex off; }
}
",
};

pub(crate) const CADDY: Peer = Peer {
    name: "Caddy",
    package: "caddy",
    explained: include_str!("caddy.txt"),
    programs: ["caddy", "/usr/bin/caddy"],
    arguments: "run --adapter caddyfile --config FOLDER/config",
    config: "
{
  admin off
  auto_https off
}
http:// {
  bind unix/SOCKET
  root * \"ROOT\"
  file_server {
    precompressed gzip
    hide .*
  }
}
",
};

/// A server that runs.
pub(crate) struct Running {
    process: Child,
    folder: TempDir,
    stream: UnixStream,
}

impl Peer {
    /// Starts the server for the folder. Returns `None` if it is not installed.
    pub(crate) fn start(&self, site: &Folder) -> Option<Running> {
        let folder = tempfile::tempdir().unwrap();
        let (socket, config) = (folder.path().join("socket"), folder.path().join("config"));
        let text = self
            .config
            .replace("SOCKET", socket.to_str()?)
            .replace("ROOT", site.root().to_str()?);
        std::fs::write(&config, text).unwrap();
        let arguments = self.arguments.replace("FOLDER", folder.path().to_str()?);
        let log = std::fs::File::create(folder.path().join("output")).unwrap();
        let start = |program: &&str| {
            let mut command = Command::new(program);
            command.args(arguments.split(' ')).stdin(Stdio::null());
            // It may keep files in the home folder.
            command.env("HOME", folder.path());
            command.stderr(log.try_clone().ok()?).spawn().ok()
        };
        let process = self.programs.iter().find_map(start)?;
        for _ in 0..500 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                return Some(Running {
                    process,
                    folder,
                    stream,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = ["log", "output"].map(|name| std::fs::read_to_string(folder.path().join(name)));
        panic!("{} does not start: {said:?}", self.name);
    }
}

impl Running {
    pub(crate) fn ask(&mut self, request: &Request, bytes: &[u8]) -> Answered {
        if let Some(answered) = self.try_to_ask(request, bytes) {
            return answered;
        }
        // It has closed the connection after the last response without saying so.
        self.connect();
        let answered = self.try_to_ask(request, bytes);
        answered.unwrap_or_else(|| panic!("no response to {}", bytes.escape_ascii()))
    }

    fn connect(&mut self) {
        self.stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
    }

    /// Returns `None` if the connection ends before the response.
    fn try_to_ask(&mut self, request: &Request, bytes: &[u8]) -> Option<Answered> {
        self.stream.write_all(bytes).ok()?;
        let (mut received, mut chunk) = (Vec::new(), [0; 16_384]);
        let mut receive = |received: &mut Vec<u8>| {
            let len = self.stream.read(&mut chunk).unwrap_or(0);
            received.extend_from_slice(&chunk[..len]);
            (len > 0).then_some(())
        };
        let head_len = loop {
            match head_len(&received) {
                Some(len) if received.starts_with(b"HTTP/1.1 100 ") => drop(received.drain(..len)),
                Some(len) => break len,
                None => receive(&mut received)?,
            }
        };
        let mut answered = Answered::of(&received[..head_len], &[]);
        let has_body = request.method != "HEAD" && !matches!(answered.status, 204 | 304);
        let body_len = answered.field("Content-Length").parse().unwrap_or(0);
        while has_body && received.len() < head_len + body_len {
            receive(&mut received)?;
        }
        let is_chunked = has_body && answered.field("Transfer-Encoding") == "chunked";
        answered.body = loop {
            if !is_chunked {
                break received.split_off(head_len);
            }
            if let Some(body) = from_chunks(&received[head_len..]) {
                break body;
            }
            receive(&mut received)?;
        };
        if answered.closes() {
            self.connect();
        }
        Some(answered)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
