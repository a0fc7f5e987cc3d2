//! Tests of files on the disk that change while they are served.

use std::cell::Cell;
use std::rc::Rc;

use control::FileVersion;

use super::*;
use crate::disk::DiskFile;
use crate::root::Root;
use crate::site::Builder;

#[test]
fn a_file_that_has_changed_is_refused_and_one_that_changes_ends_with_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    let content = noise(1, 40 * CHUNK_LEN);
    fs::write(&path, &content).unwrap();
    let site = Arc::new(load(folder.path()));
    let mut world = world(&site, SendMode::MemCopy, 0);
    world.connect(&request("GET", "/a.bin", ""));
    let has_some = |client: &Client| client.connections[0].received.len() > 2 * CHUNK_LEN;
    assert!(world.run(has_some));
    // The time is set, because two versions may otherwise have the same one.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&noise(2, content.len()), 0).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    assert!(world.run(|_| false));
    let mut rest = world.received(0);
    let end = rest
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    rest = &rest[end..];
    assert!(
        rest.len() < content.len() && content.starts_with(rest),
        "bytes are mixed"
    );
    let aborted = world.server.transports.stack().counters().aborted;
    assert!(aborted > 0, "the response did not end with a reset");

    // Nothing of this range is in memory.
    let last = format!(
        "Range: bytes={}-\r\nConnection: close\r\n",
        content.len() - 1
    );
    world.connect(&request("GET", "/a.bin", &last));
    assert!(world.run(|_| false));
    let mut rest = world.received(1);
    let (line, _, _) = take_response(&mut rest, true);
    assert_eq!(line, "HTTP/1.1 503 Service Unavailable");
    let counters = world.server.transports.stack().app().counters();
    assert_eq!(counters.of(Status::ServiceUnavailable), 1);
    assert_eq!(counters.of(Status::PartialContent), 0);

    // Its start is in memory, but no client gets a start without an end.
    for range in ["", "Range: bytes=0-9\r\n"] {
        let close = format!("{range}Connection: close\r\n");
        let requests = request("HEAD", "/a.bin", "") + &request("GET", "/a.bin", &close);
        world.connect(&requests);
        assert!(world.run(|_| false));
        let mut rest = world.received(world.client.connections.len() - 1);
        let lines = [false, true].map(|has_body| take_response(&mut rest, has_body).0);
        let expected = ["HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable"];
        assert_eq!(lines, expected, "{range}");
    }
}

#[test]
fn a_file_that_had_another_version_for_a_while_is_served_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let root = Arc::new(Root::open(folder.path()).unwrap());
    let version = FileVersion {
        file: (1, 2),
        len: 7,
        modified: (1, 0),
        changed: (1, 0),
    };
    let file = Arc::new(DiskFile::new(&root, "a".as_ref(), version));
    let now = UNIX_EPOCH + Duration::from_secs(1_000);
    let mut builder = Builder::new(now);
    builder.add_disk_file(b"/a", now, Arc::clone(&file));
    builder.note_version(b"/a", version);
    let site = builder.build();
    file.note_change(true);
    for (known, has_changed) in [(None, true), (Some(version), false)] {
        assert!(Builder::new(now).keep_file(b"/a", &site, known));
        assert_eq!(file.has_changed(), has_changed);
    }
}

#[test]
fn a_file_that_is_replaced_or_removed_is_sent_to_its_end() {
    for is_removed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let content = noise(1, 150 * CHUNK_LEN);
        fs::write(&path, &content).unwrap();
        let site = Arc::new(load(folder.path()));
        let reads = Arc::new(Reads::default());
        let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, 0, bell));
        let work = Arc::clone(&reads);
        let work = move || drop(work.work_all());
        let mut world = World::new(&site, SiteOnly, SendMode::MemCopy, chunks, work);
        world.connect(&request("GET", "/a.bin", "Connection: close\r\n"));
        let has = |client: &Client, chunks: usize| {
            client.connections[0].received.len() > chunks * CHUNK_LEN
        };
        assert!(world.run(|client| has(client, 2)));
        if is_removed {
            fs::remove_file(&path).unwrap();
        } else {
            let next = folder.path().join("next");
            fs::write(&next, noise(2, content.len())).unwrap();
            fs::rename(&next, &path).unwrap();
        }
        // A second client needs chunks that have left the memory. They are read through the page cache.
        assert!(world.run(|client| has(client, 100)));
        world.connect(&request("GET", "/a.bin", "Connection: close\r\n"));
        assert!(world.run(|_| false));
        for number in 0..2 {
            let mut rest = world.received(number);
            let (line, _, body) = take_response(&mut rest, true);
            assert_eq!(line, "HTTP/1.1 200 OK");
            assert!(body == content, "{number}: other bytes");
        }

        // Nobody is sent the file any more, so it is closed.
        reads.close_unused();
        let last = format!("Range: bytes=0-{CHUNK_LEN}\r\nConnection: close\r\n");
        world.connect(&request("GET", "/a.bin", &last));
        assert!(world.run(|_| false));
        let (line, _, _) = take_response(&mut world.received(2), true);
        assert_eq!(line, "HTTP/1.1 503 Service Unavailable");
    }
}

/// Changes a file on the disk. The time is set, because two versions may otherwise have the same one.
fn change(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
}

#[test]
fn a_file_that_changes_while_it_is_read_leaves_the_next_response_alone() {
    let folder = tempfile::tempdir().unwrap();
    let content = noise(1, 2 * CHUNK_LEN);
    for name in ["changed", "same"] {
        fs::write(folder.path().join(name), &content).unwrap();
    }
    let site = Arc::new(load(folder.path()));
    let (reads, may_read) = (Arc::new(Reads::default()), Rc::new(Cell::new(false)));
    let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, 0, bell));
    let (queue, gate) = (Arc::clone(&reads), Rc::clone(&may_read));
    let work = move || {
        if gate.get() {
            queue.work_all();
        }
    };
    let mut world = World::new(&site, SiteOnly, SendMode::MemCopy, chunks, work);
    let requests = request("GET", "/none", "") + &request("GET", "/changed", "");
    world.connect(&(requests + &request("GET", "/same", "Connection: close\r\n")));
    assert!(world.run(|client| !client.connections[0].received.is_empty()));
    // Another worker finds it, and the client acknowledges the first response.
    change(&folder.path().join("changed"));
    site.disk_file(b"/changed").unwrap().note_change(true);
    assert!(world.run_until(|_, now| now > Instant::from_millis(500)));
    may_read.set(true);
    assert!(world.run(|_| false));
    let mut rest = world.received(0);
    let responses = [(); 3].map(|()| take_response(&mut rest, true));
    let lines = responses.map(|one| one.0);
    let expected = ["404 Not Found", "503 Service Unavailable", "200 OK"];
    assert_eq!(lines, expected.map(|status| format!("HTTP/1.1 {status}")));
    assert!(responses[2].2 == content);
}

#[test]
fn a_changed_file_behind_many_responses_waits_for_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    fs::write(&path, noise(1, 2 * CHUNK_LEN)).unwrap();
    let site = Arc::new(load(folder.path()));
    change(&path);
    site.disk_file(b"/a.bin").unwrap().note_change(true);
    for before in 64..69 {
        let mut world = world(&site, SendMode::MemCopy, 0);
        // The last request fills the segments before it, so the client does not wait with them.
        let last = format!("Connection: close\r\nX: {}\r\n", "x".repeat(3_000));
        let requests = request("GET", "/none", "").repeat(before) + &request("GET", "/a.bin", "");
        world.connect(&(requests + &request("GET", "/none", &last)));
        assert!(world.run(|_| false));
        let mut rest = world.received(0);
        for _ in 0..before {
            let (line, _, _) = take_response(&mut rest, true);
            assert_eq!(line, "HTTP/1.1 404 Not Found");
        }
        let (line, _, _) = take_response(&mut rest, true);
        assert_eq!(line, "HTTP/1.1 503 Service Unavailable", "{before}");
        let counters = world.server.transports.stack().app().counters();
        assert_eq!(counters.of(Status::ServiceUnavailable), 1);
    }
}

#[test]
fn a_file_that_was_away_for_a_while_is_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let [path, away] = ["a.bin", "away"].map(|name| folder.path().join(name));
    let content = noise(1, 2 * CHUNK_LEN);
    fs::write(&path, &content).unwrap();
    let site = Arc::new(load(folder.path()));
    let mut world = world(&site, SendMode::MemCopy, 0);
    let close = request("GET", "/a.bin", "Connection: close\r\n");
    fs::rename(&path, &away).unwrap();
    for (index, status) in ["503 Service Unavailable", "200 OK"].iter().enumerate() {
        world.connect(&close);
        assert!(world.run(|_| false));
        let mut rest = world.received(index);
        let (line, _, body) = take_response(&mut rest, true);
        assert_eq!(line, format!("HTTP/1.1 {status}"));
        assert_eq!(body == content, index == 1);
        let _ = fs::rename(&away, &path);
    }
}

#[test]
fn a_file_that_was_made_shorter_counts_as_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    fs::write(&path, noise(1, 2 * CHUNK_LEN)).unwrap();
    let site = Arc::new(load(folder.path()));
    let mut world = world(&site, SendMode::MemCopy, 0);
    fs::write(&path, "short").unwrap();
    world.connect(&request("GET", "/a.bin", "Connection: close\r\n"));
    assert!(world.run(|_| false));
    assert!(site.disk_file(b"/a.bin").unwrap().has_changed());
}
