//! What a session and the memory of requests do together.

use super::*;
use crate::site::Builder;

/// The application, with a site whose only file is `/a`.
fn web() -> Web {
    let site = Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, b"content");
    Web::new(Arc::new(site.build()))
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Status of the answer to `data`, which is all of one request.
fn status(web: &mut Web, session: &mut Session, data: &[u8]) -> Option<Status> {
    match web.next(session, data) {
        Step::Answer(answer) => {
            assert_eq!(answer.consumed, data.len());
            Some(answer.of(&web.site).status())
        }
        Step::More { consumed } => {
            assert_eq!(consumed, 0);
            None
        }
    }
}

#[test]
fn a_request_in_two_pieces_leaves_nothing_behind() {
    let mut web = web();
    let long = get("/not-a-file");
    // The second session's answer may come from memory. What follows it never
    // does: it has to be read, from its first byte on.
    for next in ["/a?1", "/a?2"] {
        let mut session = Session::default();
        let half = &long[..long.len() - 1];
        assert_eq!(status(&mut web, &mut session, half), None);
        let found = status(&mut web, &mut session, &long);
        assert_eq!(found, Some(Status::NotFound));
        let found = status(&mut web, &mut session, &get(next));
        assert_eq!(found, Some(Status::Ok));
    }
}

#[test]
fn a_remembered_request_is_not_read_again() {
    let mut web = web();
    let request = get("/a");
    let mut missing = Answer::NONE;
    missing.reply = Site::shared(Status::NotFound, false);
    missing.consumed = request.len();
    // What is remembered is wrong here, so that it shows where it is used.
    web.recent.answer(&request, || Some(missing));
    let found = status(&mut web, &mut Session::default(), &request);
    assert_eq!(found, Some(Status::NotFound));
}
