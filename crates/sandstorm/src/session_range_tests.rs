//! Tests of range requests (RFC 9110, section 14).

use super::*;

const TAG: &str = "\"8a59fb4fec8a43ae\"";
const STYLE: &str = "p { color: tan }\n";

fn part(path: &str, fields: &str) -> String {
    respond(&get(path, fields))
}

/// Returns the status of the answer to GET of `/style.css` with these fields, and its body.
fn style(fields: &str) -> (u16, String) {
    let response = part("/style.css", fields);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn a_response_with_one_part_has_the_expected_bytes() {
    assert_eq!(
        part("/style.css", "Range: bytes=4-8\r\n"),
        "HTTP/1.1 206 Partial Content\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: keep-alive\r\n\
         Content-Type: text/css; charset=utf-8\r\n\
         Content-Range: bytes 4-8/17\r\n\
         Content-Length: 5\r\n\
         Last-Modified: Wed, 18 Nov 2026 20:00:00 GMT\r\n\
         ETag: \"8a59fb4fec8a43ae\"\r\n\
         Accept-Ranges: bytes\r\n\
         \r\n\
         color"
    );
}

#[test]
fn a_response_with_several_parts_has_the_expected_bytes() {
    let lines: Vec<_> = (0..200).map(|n| format!("{n:04}\n")).collect();
    let text = lines.concat();
    let site = Builder::keyed(at(NOW), [1, 2, 3, 4])
        .file(b"/lines.txt", at(MODIFIED), text.as_bytes())
        .build();
    let request = get("/lines.txt", "Range: bytes=995-, 0-4,500-504\r\n");
    let sent = String::from_utf8(talk(&site, [request.as_bytes()]).0).unwrap();
    let boundary = format!("{:016x}", site.boundary());
    let body = format!(
        "\r\n--{boundary}\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Range: bytes 995-999/1000\r\n\
         \r\n\
         0199\n\
         \r\n--{boundary}\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Range: bytes 0-4/1000\r\n\
         \r\n\
         0000\n\
         \r\n--{boundary}\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Range: bytes 500-504/1000\r\n\
         \r\n\
         0100\n\
         \r\n--{boundary}--\r\n"
    );
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: keep-alive\r\n\
         Content-Type: multipart/byteranges; boundary={boundary}\r\n\
         Content-Length: {}\r\n\
         Last-Modified: Wed, 18 Nov 2026 20:00:00 GMT\r\n\
         ETag: {}\r\n\
         Accept-Ranges: bytes\r\n\
         \r\n",
        body.len(),
        field(&sent, "ETag"),
    );
    assert_eq!(sent, head + &body);
}

#[test]
fn parts_that_cost_more_than_the_whole_file_are_the_whole_file() {
    let answer = part("/style.css", "Range: bytes=0-0,5-5\r\n");
    assert_eq!(answer, part("/style.css", ""));
}

#[test]
fn a_range_behind_the_end_is_refused_with_the_length() {
    let refused = part("/style.css", "Range: bytes=17-\r\n");
    assert!(refused.starts_with("HTTP/1.1 416 Range Not Satisfiable\r\n"));
    assert_eq!(field(&refused, "Content-Range"), "bytes */17");
    let (_, body) = refused.split_once("\r\n\r\n").unwrap();
    assert_eq!(field(&refused, "Content-Length"), body.len().to_string());
    assert_eq!(part("/empty.txt", "Range: bytes=0-\r\n")[9..12], *"200");
}

#[test]
fn ranges_apply_to_get_of_files_only() {
    let fields = "Range: bytes=0-0\r\n";
    let head = respond(&get("/style.css", fields).replace("GET", "HEAD"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(field(&head, "Content-Length"), "17");
    for (path, expected) in [("/docs", 301), ("/nothing", 404), ("/docs/", 206)] {
        assert_eq!(status(path, fields), expected, "{path}");
    }
}

#[test]
fn ranges_that_the_server_does_not_know_are_ignored() {
    for fields in [
        "Range: lines=0-1\r\n",
        "Range: bytes=1-0\r\n",
        "Range: bytes=0-1\r\nRange: bytes=0-1\r\n",
    ] {
        assert_eq!(style(fields), (200, STYLE.to_owned()), "{fields}");
    }
}

#[test]
fn if_range_must_name_the_current_version() {
    let whole = (200, STYLE.to_owned());
    let one = (206, "p".to_owned());
    for (value, expected) in [
        (TAG, &one),
        ("\"0000000000000000\"", &whole),
        // A weak tag never matches, and neither does a date, which cannot tell two versions of the
        // same second apart.
        (&format!("W/{TAG}"), &whole),
        ("Wed, 18 Nov 2026 20:00:00 GMT", &whole),
        ("*", &whole),
        ("", &whole),
    ] {
        let fields = format!("If-Range: {value}\r\nRange: bytes=0-0\r\n");
        assert_eq!(style(&fields), *expected, "{value}");
    }
    let twice = format!("If-Range: {TAG}\r\nIf-Range: {TAG}\r\nRange: bytes=0-0\r\n");
    assert_eq!(style(&twice), whole);
    assert_eq!(style(&format!("If-Range: {TAG}\r\n")), whole);
}

#[test]
fn preconditions_come_before_ranges() {
    let range = "Range: bytes=0-0\r\n";
    for (condition, expected) in [
        (format!("If-None-Match: {TAG}\r\n"), 304),
        (
            "If-Modified-Since: Wed, 18 Nov 2026 20:00:00 GMT\r\n".to_owned(),
            304,
        ),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        ("If-None-Match: \"x\"\r\n".to_owned(), 206),
        (format!("If-Match: {TAG}\r\n"), 206),
    ] {
        assert_eq!(
            style(&(condition.clone() + range)).0,
            expected,
            "{condition}"
        );
    }
}
