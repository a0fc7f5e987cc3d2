//! Forms of a response: the whole file, a part, a compressed form, or 304.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use clap::Args;

use super::head::MAX_HEAD;
use crate::load::LoadError;

/// Time limit for the response that shows the server's validator.
const VALIDATOR_LIMIT: Duration = Duration::from_secs(5);

/// Name and value of a field that a correct head must have.
pub(super) type Field = (&'static str, String);

/// Form of the response that a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Form {
    /// The whole file, with status 200.
    #[default]
    Whole,
    /// No body, with status 304, because the file still has this entity tag.
    SameTag(String),
    /// No body, with status 304, because the file has not been modified since this date.
    NotSince(String),
    /// One part of the file, with status 206.
    Part {
        /// Offset of the first byte.
        first: u32,
        /// Offset of the last byte.
        last: u32,
        /// Length of the whole file in bytes.
        of: u32,
    },
    /// A compressed form, with status 200. The text is the name of the content coding.
    Coded(String),
}

impl Form {
    /// Returns the field that the request needs, with its line end. It is empty for the whole file.
    pub(super) fn request_field(&self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::SameTag(tag) => format!("If-None-Match: {tag}\r\n"),
            Self::NotSince(date) => format!("If-Modified-Since: {date}\r\n"),
            Self::Part { first, last, .. } => format!("Range: bytes={first}-{last}\r\n"),
            Self::Coded(coding) => format!("Accept-Encoding: {coding}\r\n"),
        }
    }

    /// Returns the status of a correct response.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Whole | Self::Coded(_) => 200,
            Self::Part { .. } => 206,
            Self::SameTag(_) | Self::NotSince(_) => 304,
        }
    }

    /// Returns the field that shows that the response has this form. A 304 repeats the entity tag,
    /// but need not repeat the date (RFC 9110, section 15.4.5).
    pub(super) fn response_field(&self) -> Option<Field> {
        match self {
            Self::Whole | Self::NotSince(_) => None,
            Self::SameTag(tag) => Some(("ETag", tag.clone())),
            Self::Part { first, last, of } => {
                Some(("Content-Range", format!("bytes {first}-{last}/{of}")))
            }
            Self::Coded(coding) => Some(("Content-Encoding", coding.clone())),
        }
    }

    /// Returns the field by which the server recognizes an unchanged file.
    pub fn validator(&self) -> Option<&'static str> {
        match self {
            Self::SameTag(_) => Some("ETag"),
            Self::NotSince(_) => Some("Last-Modified"),
            _ => None,
        }
    }
}

/// Options that choose the [`Form`] of all responses.
#[derive(Args, Clone, Debug, Default)]
pub struct FormOptions {
    /// Ask whether the file has changed, and expect 304. The generator first asks the server for
    /// its entity tag. If there is no strong one, the generator uses the date.
    #[arg(long, group = "form")]
    pub unchanged: bool,

    /// Request one part of this length, from the middle of the file.
    #[arg(long, value_name = "BYTES", group = "form")]
    pub part: Option<u32>,

    /// Request the form with this content coding, which lies beside the file.
    #[arg(long, value_name = "CODING", group = "form", value_parser = ["gzip", "br"])]
    pub coding: Option<String>,
}

impl FormOptions {
    /// Returns the extension of the file with the expected body.
    pub(super) fn extension(&self) -> &'static str {
        match self.coding.as_deref() {
            Some("gzip") => ".gz",
            Some(_) => ".br",
            None => "",
        }
    }

    /// Returns the form for the file at `path`, which has `len` bytes. Asks `server` for a
    /// validator if the form needs one.
    ///
    /// # Errors
    /// Fails if the part is longer than the file, or if the server sends no validator.
    pub(super) fn form(
        &self,
        server: SocketAddrV4,
        path: &str,
        len: u32,
    ) -> Result<Form, LoadError> {
        let invalid = |why: &str| LoadError::Asked(format!("`{path}`: {why}"));
        if self.unchanged {
            return validator(server, path)
                .map_err(|error| invalid(&error.to_string()))?
                .ok_or_else(|| invalid("the server sends neither entity tag nor date"));
        }
        if let Some(part) = self.part {
            let rest = len.checked_sub(part).filter(|_| part > 0);
            let rest = rest.ok_or_else(|| invalid("the file has no part of this length"))?;
            let first = rest / 2;
            let last = first + part - 1;
            let of = len;
            return Ok(Form::Part { first, last, of });
        }
        Ok(self.coding.clone().map_or(Form::Whole, Form::Coded))
    }
}

/// Asks the server for the validator of a file, over a connection of this host's kernel.
fn validator(server: SocketAddrV4, path: &str) -> std::io::Result<Option<Form>> {
    let mut stream = TcpStream::connect_timeout(&server.into(), VALIDATOR_LIMIT)?;
    stream.set_read_timeout(Some(VALIDATOR_LIMIT))?;
    write!(
        stream,
        "HEAD {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
    )?;
    let mut head = Vec::new();
    stream.take(MAX_HEAD as u64).read_to_end(&mut head)?;
    Ok(validator_in(&String::from_utf8_lossy(&head)))
}

/// Returns the form that the validator in this head allows: by a strong entity tag, or else by date.
fn validator_in(head: &str) -> Option<Form> {
    let value = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim().to_owned())
    };
    let tag = value("ETag").filter(|tag| tag.starts_with('"'));
    let date = || value("Last-Modified").map(Form::NotSince);
    tag.map(Form::SameTag).or_else(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strong_entity_tag_is_preferred_to_a_date() {
        let date = "Last-Modified: Fri, 27 Nov 2026 08:00:00 GMT\r\n";
        let by_date = Some(Form::NotSince("Fri, 27 Nov 2026 08:00:00 GMT".into()));
        for (fields, form) in [
            (
                format!("{date}etag: \"a:b\"\r\n"),
                Some(Form::SameTag("\"a:b\"".into())),
            ),
            (format!("ETag: W/\"a\"\r\n{date}"), by_date.clone()),
            (date.to_owned(), by_date),
            ("Date: now\r\n".to_owned(), None),
        ] {
            assert_eq!(
                validator_in(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")),
                form
            );
        }
    }

    #[test]
    fn a_part_is_in_the_middle_of_the_file() {
        let server = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 80);
        let form = |part, len| {
            let options = FormOptions {
                part: Some(part),
                ..FormOptions::default()
            };
            options.form(server, "/a", len)
        };
        let part = form(10, 100).unwrap();
        assert_eq!(part.request_field(), "Range: bytes=45-54\r\n");
        assert_eq!(part.response_field().unwrap().1, "bytes 45-54/100");
        assert_eq!(part.status(), 206);
        assert!(form(0, 10).is_err() && form(11, 10).is_err());
    }
}
