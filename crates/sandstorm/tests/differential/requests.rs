//! Random requests, made of the pieces in `requests.txt`.

use fastrand::Rng;

use super::folder::{File, Folder, at};
use super::peers::Tags;

pub(crate) struct Request {
    pub(crate) method: &'static str,
    target: String,
    version: &'static str,
    lines: Vec<String>,
    line_end: &'static str,
    /// The path of the file for which it asks.
    file: String,
    /// Names of its pieces and of its fields, by which differences are explained.
    names: Vec<&'static str>,
    /// Length of its first piece on the way to the server.
    pub(crate) cut: usize,
}

/// Returns one of the pieces of this kind: its name and its text.
fn piece(kind: &str, rng: &mut Rng) -> (&'static str, &'static str) {
    let of_kind = |line: &'static str| {
        let mut cells = line.splitn(3, '|');
        let (first, name, text) = (cells.next()?, cells.next()?, cells.next()?);
        (first.trim() == kind).then_some((name.trim(), text.strip_prefix(' ').unwrap_or(text)))
    };
    *rng.choice(
        &include_str!("requests.txt")
            .lines()
            .filter_map(of_kind)
            .collect::<Vec<_>>(),
    )
    .unwrap()
}

/// Percent-encodes the bytes that must be encoded, and a few others.
fn encoded(path: &str, rng: &mut Rng) -> String {
    let encode = |byte: u8| {
        let may_stay = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
        match rng.u8(..20) {
            _ if byte == b'/' => "/".to_owned(),
            1.. if may_stay => char::from(byte).to_string(),
            0..10 => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        }
    };
    path.bytes().map(encode).collect()
}

impl Request {
    pub(crate) fn plain(file: &File, coded: bool) -> Self {
        let lines = ["Host: a.test", "Accept-Encoding: gzip"].map(str::to_owned);
        Self {
            method: "GET",
            target: encoded(&file.path, &mut Rng::with_seed(1)),
            version: "HTTP/1.1",
            lines: lines[..=usize::from(coded)].to_vec(),
            line_end: "\r\n",
            file: file.path.clone(),
            names: Vec::new(),
            cut: 0,
        }
    }

    pub(crate) fn random(folder: &Folder, rng: &mut Rng) -> Self {
        let mut file = &folder.files[rng.usize(..folder.files.len())];
        let parent = &folder.folders[rng.usize(1..folder.folders.len())];
        let mut one = Self::plain(file, false);
        (one.target, one.cut) = (encoded(&file.path, rng), rng.usize(..300));
        let odd = rng.u8(..40);
        match odd {
            0 => "/.hidden".clone_into(&mut one.target),
            1 => one.target = encoded(&parent[..parent.len() - 1], rng),
            2 => one.target = encoded(parent, rng),
            3 => one.target = encoded(&format!("{parent}missing"), rng),
            4 => one.line_end = "\n",
            5..8 => one.target += ["?", "?a=1&b=%20", "?/../", "?a?b"][rng.usize(..4)],
            8..14 => one.method = "HEAD",
            _ => {}
        }
        let names = ["hidden", "folder", "folder", "", "bare LF"];
        one.names.extend(names.get(usize::from(odd)));
        one.names.push(one.method);
        let path = format!("{parent}index.html");
        let index = folder.files.iter().find(|file| file.path == path);
        if let (2, Some(index)) = (odd, index) {
            (file, one.file) = (index, path);
        }
        one.add_fields(file, rng);
        one.add_piece(odd, rng);
        let is_other = file.coded == Some(false)
            || file.coded.is_some() && one.names.contains(&"other coding");
        one.names.extend(is_other.then_some("other form"));
        one
    }

    /// Adds a piece that may be unusual or wrong.
    fn add_piece(&mut self, odd: u8, rng: &mut Rng) {
        let kinds = [
            "path", "path", "path", "origin", "method", "version", "host", "host", "line", "line",
        ];
        let Some(kind) = kinds.get(usize::from(odd.wrapping_sub(14))) else {
            return;
        };
        let (name, text) = piece(kind, rng);
        self.names.push(name);
        match *kind {
            "path" => {
                let ends = self
                    .target
                    .match_indices('/')
                    .map(|(at, _)| at)
                    .skip(text.starts_with('/').into());
                let ends: Vec<_> = ends.chain([self.target.len()]).collect();
                let at = ends[rng.usize(..ends.len())];
                let text = text.replace("\\u{1}", "\u{1}").replace("\\u{7f}", "\u{7f}");
                self.target.insert_str(at, &text);
            }
            "origin" => self.target.insert_str(0, text),
            "method" => self.method = text,
            "version" => self.version = text,
            "host" => self.lines[0] = text.replace("\\n", "\r\n"),
            _ => self.lines.insert(1, text.to_owned()),
        }
    }

    /// Adds a field, with a value of this kind.
    fn add(&mut self, field: &'static str, kind: &str, rng: &mut Rng) {
        let (name, text) = piece(kind, rng);
        self.names.extend([field, name]);
        self.lines.push(format!("{field}: {text}"));
    }

    /// Adds ranges, conditions, codings and options of the connection.
    fn add_fields(&mut self, file: &File, rng: &mut Rng) {
        for (field, kind) in [
            ("If-Match", "tag"),
            ("If-None-Match", "tag"),
            ("If-Range", "tag"),
        ] {
            if rng.u8(..9) == 0 {
                self.add(field, kind, rng);
            }
        }
        for field in ["If-Modified-Since", "If-Unmodified-Since", "If-Range"] {
            let is_new = !self.names.contains(&field);
            match rng.u8(..64) {
                0 if is_new => self.add(field, "date", rng),
                1..6 if is_new => {
                    let date = httpdate::fmt_http_date(at(file.modified + 1 - rng.u64(..3)));
                    self.lines.push(format!("{field}: {date}"));
                    self.names.extend([
                        field,
                        if field == "If-Range" {
                            "If-Range date"
                        } else {
                            ""
                        },
                    ]);
                }
                _ => {}
            }
        }
        if rng.u8(..3) == 0 {
            let ranges = self.ranges(file.len, rng);
            self.names.extend([
                "Range",
                if ranges.contains(',') {
                    "several ranges"
                } else {
                    ""
                },
            ]);
            self.lines.push(format!("Range: {ranges}"));
        }
        if rng.bool() {
            self.add("Accept-Encoding", "coding", rng);
        }
        if rng.u8(..8) == 0 {
            self.add("Connection", "connection", rng);
        }
        self.names.extend((file.len == 0).then_some("empty file"));
        self.names
            .retain(|name| *name != "gzip" || file.coded == Some(true));
    }

    /// Returns the value of `Range` for a file of `len` bytes.
    fn ranges(&mut self, len: usize, rng: &mut Rng) -> String {
        let near = [
            0,
            1,
            len / 2,
            len.saturating_sub(1),
            len,
            len + 1,
            len + 1_000,
        ];
        let place = |rng: &mut Rng| [rng.usize(..=len), near[rng.usize(..7)]][rng.usize(..2)];
        let one = |names: &mut Vec<_>, rng: &mut Rng| match (place(rng), place(rng), rng.u8(..16)) {
            (first, _, 0..3) => format!("{first}-"),
            (first, _, 3..6) => format!("-{first}"),
            (_, _, 6) => {
                let (name, text) = piece("range", rng);
                names.push(name);
                text.to_owned()
            }
            (first, last, _) => format!("{}-{}", first.min(last), first.max(last)),
        };
        let count = [1, 1, 1, 1, 2, 2, 3, 40][rng.usize(..8)];
        let list: Vec<_> = (0..count).map(|_| one(&mut self.names, rng)).collect();
        let has_empty = list.iter().any(|range| range == "-0");
        self.names.extend(has_empty.then_some("last 0 bytes"));
        let unit = if rng.u8(..8) == 0 {
            self.names.push("other unit");
            piece("unit", rng).1
        } else {
            "bytes="
        };
        unit.to_owned() + &list.join([",", ", "][rng.usize(..2)])
    }

    /// Returns true if it has all of these names, which are separated by `+`.
    pub(crate) fn is(&self, names: &str) -> bool {
        names
            .split(" + ")
            .all(|name| name.is_empty() || self.names.contains(&name))
    }

    /// Returns the request as it is sent to a server that has given the files these tags.
    pub(crate) fn bytes(&self, tags: &Tags) -> Vec<u8> {
        let mut text = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for line in &self.lines {
            let line = match tags.get(&self.file) {
                Some([plain, coded]) => line.replace("TAG", plain).replace("CODED", coded),
                None => line.clone(),
            };
            text.extend([&line, "\r\n"]);
        }
        let body = if self.is("body") { "12345" } else { "" };
        (text + "\r\n" + body)
            .replace("\r\n", self.line_end)
            .into_bytes()
    }
}
