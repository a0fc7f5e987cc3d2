//! Tests responses with files on the disk. The chunks are read between two steps of the virtual clock.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nmio::{Bell, Clock as _, Drain, Handler as _, Instant};
use tcpip::SendMode;
use testkit::SERVER;
use testkit::noise;
use testkit::smol::{Client, Talk};

use crate::disk::{CHUNK_LEN, Chunks, Reads};
use crate::etag::ETag;
use crate::improving::Done;
use crate::limits::Limits;
use crate::memory_budget::MemoryBudget;
use crate::settings::Settings;
use crate::site::NextSite;
use crate::tagging::Tagging;
use crate::testing::{World, request, take_response};
use crate::{Http, Site, SiteOnly, Status};

/// Time between two looks at the server.
const STEP: Duration = Duration::from_millis(5);
const MODES: [SendMode; 2] = [SendMode::PreCopy, SendMode::MemCopy];

/// Loads a folder whose files do not fit into memory.
fn load(folder: &Path) -> Site {
    let settings = Settings {
        memory: Some(MemoryBudget::new(0)),
        ..Settings::default()
    };
    Site::load_with(folder, &Limits::default(), &settings, |_| {}).unwrap()
}

/// Serves a site with `capacity` bytes for chunks of files.
fn world(site: &Arc<Site>, mode: SendMode, capacity: usize) -> World {
    let reads = Arc::new(Reads::default());
    let chunks = |http: Http, bell: &Bell| http.with_chunks(Chunks::new(&reads, capacity, bell));
    let work = Arc::clone(&reads);
    World::new(site, SiteOnly, mode, chunks, move || drop(work.work_all()))
}

#[test]
fn files_on_the_disk_are_sent_whole_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [
        300,
        1_000,
        CHUNK_LEN - 1,
        CHUNK_LEN,
        CHUNK_LEN + 1,
        5 * CHUNK_LEN + 77,
    ];
    let contents: Vec<_> = (0..)
        .zip(sizes)
        .map(|(seed, len)| noise(seed, len))
        .collect();
    for (len, content) in sizes.iter().zip(&contents) {
        fs::write(folder.path().join(format!("{len}.bin")), content).unwrap();
    }
    let site = Arc::new(load(folder.path()));
    assert_eq!(site.totals().disk_files, sizes.len() as u64);
    assert_eq!(site.totals().disk_bytes, sizes.iter().sum::<usize>() as u64);
    for mode in MODES {
        // The capacity is less than the files have, so chunks are evicted and read again.
        let mut world = world(&site, mode, 0);
        let mut requests = String::new();
        for len in sizes {
            let path = format!("/{len}.bin");
            requests += &request("GET", &path, "");
            requests += &request("HEAD", &path, "");
            requests += &request("GET", &path, &format!("Range: bytes={}-\r\n", len / 3));
            requests += &request("GET", &path, &format!("Range: bytes={len}-\r\n"));
            requests += &request(
                "GET",
                &path,
                "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
            );
        }
        let long = *sizes.last().unwrap();
        let path = format!("/{long}.bin");
        requests += &request("GET", &path, "Range: bytes=0-9,100000-200000,-5\r\n");
        requests += &request("GET", &path, "Connection: close\r\n");
        world.connect(&requests);
        world.connect(&requests);
        assert!(world.run(|_| false), "{mode:?}");
        for index in 0..2 {
            let mut rest = world.received(index);
            for (len, content) in sizes.iter().zip(&contents) {
                let (line, fields, body) = take_response(&mut rest, true);
                assert_eq!(line, "HTTP/1.1 200 OK");
                assert!(body == content, "{len}");
                assert!(fields.contains("Last-Modified: "));
                assert!(!fields.contains("ETag"), "nothing has read the file yet");
                let (line, of_head, _) = take_response(&mut rest, false);
                assert_eq!((line, of_head), ("HTTP/1.1 200 OK", fields));
                let (line, fields, body) = take_response(&mut rest, true);
                assert_eq!(line, "HTTP/1.1 206 Partial Content");
                assert!(body == &content[len / 3..], "{len}");
                let range = format!("Content-Range: bytes {}-{}/{len}\r\n", len / 3, len - 1);
                assert!(fields.contains(&range), "{fields}");
                let (line, fields, _) = take_response(&mut rest, true);
                assert_eq!(line, "HTTP/1.1 416 Range Not Satisfiable");
                assert!(fields.contains(&format!("Content-Range: bytes */{len}\r\n")));
                let (line, fields, _) = take_response(&mut rest, false);
                assert_eq!(line, "HTTP/1.1 304 Not Modified");
                assert!(fields.contains("Last-Modified: "), "{fields}");
            }
            let content = contents.last().unwrap();
            let (line, _, body) = take_response(&mut rest, true);
            assert_eq!(line, "HTTP/1.1 206 Partial Content");
            for part in [0..10, 100_000..200_001, long - 5..long] {
                let part = &content[part];
                assert!(body.windows(part.len()).any(|bytes| bytes == part));
            }
            let (line, _, body) = take_response(&mut rest, true);
            assert_eq!(line, "HTTP/1.1 200 OK");
            assert!(body == content && rest.is_empty());
        }
        let web = world.server.transports.stack().app();
        assert_eq!(
            web.counters().of(Status::Ok),
            2 * (2 * sizes.len() as u64 + 1)
        );
        let (chunks, gave_way) = web.disk_counts().unwrap();
        assert!(chunks.counts().read > 0 && chunks.counts().failed == 0);
        assert_eq!(gave_way, 0);
    }
}

#[test]
fn clients_that_want_more_memory_than_there_is_take_turns() {
    const CLIENTS: usize = 80;
    const PART: usize = 3 * CHUNK_LEN;
    let folder = tempfile::tempdir().unwrap();
    let content = noise(1, CLIENTS * PART);
    fs::write(folder.path().join("a.bin"), &content).unwrap();
    let site = Arc::new(load(folder.path()));
    let mut world = world(&site, SendMode::MemCopy, 0);
    for client in 0..CLIENTS {
        let (from, end) = (client * PART, (client + 1) * PART);
        let fields = format!("Range: bytes={from}-{}\r\nConnection: close\r\n", end - 1);
        world.connect(&request("GET", "/a.bin", &fields));
    }
    let mut most = 0;
    let server_memory = |world: &World| {
        let (chunks, _) = world.server.transports.stack().app().disk_counts().unwrap();
        chunks.bytes()
    };
    while !world.client.done() {
        let start = world.link.clock.now();
        let is_later = |client: &Client, now: Instant| client.done() || now > start + STEP;
        assert!(
            world.run_until(is_later),
            "some clients have to wait for ever"
        );
        most = most.max(server_memory(&world));
    }
    assert!((63 << 16..=64 << 16).contains(&most), "{most}");
    for client in 0..CLIENTS {
        let mut rest = world.received(client);
        let (line, _, body) = take_response(&mut rest, true);
        assert_eq!(line, "HTTP/1.1 206 Partial Content");
        assert!(
            body == &content[client * PART..(client + 1) * PART],
            "{client}"
        );
    }
    let web = world.server.transports.stack().app();
    let (_, gave_way) = web.disk_counts().unwrap();
    assert_eq!(gave_way, 0, "all of them make progress");
    assert_eq!(web.retry_downloads_at(), None);
}

#[test]
fn a_file_that_was_removed_or_made_shorter_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gone", "short", "renamed"] {
        fs::write(folder.path().join(name), noise(1, 1_000)).unwrap();
    }
    let site = Arc::new(load(folder.path()));
    fs::remove_file(folder.path().join("gone")).unwrap();
    let short = fs::File::options()
        .write(true)
        .open(folder.path().join("short"));
    short.unwrap().set_len(999).unwrap();
    // A new name and back changes only the time of the metadata.
    let [name, other] = ["renamed", "other"].map(|name| folder.path().join(name));
    fs::rename(&name, &other).unwrap();
    fs::rename(&other, &name).unwrap();
    let mut world = world(&site, SendMode::MemCopy, 0);
    world.connect(
        &[
            request("GET", "/gone", ""),
            request("GET", "/short", ""),
            request("GET", "/renamed", "Connection: close\r\n"),
        ]
        .concat(),
    );
    assert!(world.run(|_| false));
    let mut rest = world.received(0);
    for expected in [
        "503 Service Unavailable",
        "503 Service Unavailable",
        "200 OK",
    ] {
        let (line, _, _) = take_response(&mut rest, true);
        assert_eq!(line.strip_prefix("HTTP/1.1 "), Some(expected));
    }
}

#[test]
fn short_files_come_into_memory_first_and_a_reload_keeps_all() {
    let folder = tempfile::tempdir().unwrap();
    for (name, len) in [("a", 400_000), ("b", 10_000), ("c", 50_000), ("d", 20_000)] {
        fs::write(folder.path().join(name), noise(1, len)).unwrap();
    }
    let settings = Settings {
        memory: Some(MemoryBudget::new(160_000)),
        ..Settings::default()
    };
    let site = Site::load_with(folder.path(), &Limits::default(), &settings, |_| {}).unwrap();
    let totals = site.totals();
    assert_eq!((totals.files, totals.content_bytes), (4, 480_000));
    assert_eq!((totals.disk_files, totals.disk_bytes), (1, 400_000));
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert_eq!(next.site.totals().disk_bytes, 400_000);
    assert_eq!(next.site.totals().content_bytes, 480_000);
}

/// Reads the files of a site on the disk. Returns the sites with tags, the newest one last.
fn tag(tagging: &Tagging, site: &Arc<Site>) -> Vec<NextSite> {
    let mut sites: Vec<NextSite> = Vec::new();
    loop {
        let newest = sites.last().map_or(site, |next| &next.site);
        match tagging.step(newest) {
            Done::Some => {}
            Done::Site(next) => sites.push(*next),
            Done::Nothing => return sites,
        }
    }
}

#[test]
fn files_on_the_disk_get_tags_and_charsets_when_they_have_been_read() {
    let folder = tempfile::tempdir().unwrap();
    // A character lies at the border between two chunks.
    let text = ["x".repeat(CHUNK_LEN - 1), "\u{20ac}".repeat(CHUNK_LEN)].concat();
    let files = [
        (
            "index.html",
            text.as_bytes().to_vec(),
            "text/html; charset=utf-8",
        ),
        ("latin.txt", b"gr\xfc\xdfe".repeat(100), "text/plain"),
        ("empty.txt", Vec::new(), "text/plain; charset=utf-8"),
        ("a.bin", noise(1, 5 * CHUNK_LEN), "application/octet-stream"),
    ];
    for (name, content, _) in &files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    fs::write(folder.path().join("gone.txt"), [b'x'; 300]).unwrap();
    let site = Arc::new(load(folder.path()));
    fs::remove_file(folder.path().join("gone.txt")).unwrap();
    let tagging = Tagging::default();
    let sites = tag(&tagging, &site);
    assert_eq!(sites.len(), 1);
    assert_eq!((sites[0].added(), sites[0].leaving.len()), (6, 6));
    let site = &sites[0].site;
    assert_eq!(site.untagged().count(), 1);
    let mut world = world(site, SendMode::MemCopy, 0);
    let tags = files
        .each_ref()
        .map(|(_, content, _)| ETag::of(content).to_string());
    let mut requests = String::new();
    for ((name, ..), tag) in files.iter().zip(&tags) {
        let path = format!("/{name}");
        requests += &request("GET", &path, "");
        requests += &request("GET", &path, &format!("If-None-Match: {tag}\r\n"));
        let range = format!("Range: bytes=0-0\r\nIf-Range: {tag}\r\n");
        requests += &request("GET", &path, &range);
    }
    requests += &request("GET", "/", "Connection: close\r\n");
    world.connect(&requests);
    assert!(world.run(|_| false));
    let mut rest = world.received(0);
    for ((name, content, media_type), tag) in files.iter().zip(&tags) {
        let (line, fields, body) = take_response(&mut rest, true);
        assert_eq!((line, body), ("HTTP/1.1 200 OK", &content[..]), "{name}");
        assert!(fields.contains(&format!("ETag: {tag}\r\n")), "{fields}");
        assert!(
            fields.contains(&format!("Content-Type: {media_type}\r\n")),
            "{fields}"
        );
        let (line, fields, _) = take_response(&mut rest, false);
        assert_eq!(line, "HTTP/1.1 304 Not Modified", "{name}");
        assert!(fields.contains(&format!("ETag: {tag}\r\n")), "{fields}");
        let (line, _, body) = take_response(&mut rest, true);
        let (status, part) = match content.first() {
            Some(first) => ("HTTP/1.1 206 Partial Content", std::slice::from_ref(first)),
            None => ("HTTP/1.1 200 OK", body),
        };
        assert_eq!((line, body), (status, part), "{name}");
    }
    let (_, fields, body) = take_response(&mut rest, true);
    assert!(body == files[0].1 && fields.contains(&tags[0]) && rest.is_empty());

    // Files are read again if a reload cannot tell whether they have changed.
    fs::write(folder.path().join("new.txt"), [b'x'; 300]).unwrap();
    let next = site.load_next(folder.path(), &Limits::default(), |_| {});
    let next = next.unwrap().site;
    let sites = tag(&tagging, &next);
    assert_eq!(sites.last().unwrap().site.untagged().count(), 0);
}

/// Writes a text with coded forms, and files that look like coded forms. Returns the text, and the forms
/// by gzip and Brotli.
fn write_coded(folder: &Path) -> (String, Vec<u8>, Vec<u8>) {
    let text = "\u{20ac}uro ".repeat(CHUNK_LEN);
    // Only the first bytes tell the coding.
    let gzip = [&[0x1f, 0x8b][..], &noise(1, 2 * CHUNK_LEN)].concat();
    let brotli = noise(2, 3 * CHUNK_LEN);
    let write = |name: &str, content: &[u8]| fs::write(folder.join(name), content).unwrap();
    for name in ["a.html", "b.html", "c.html", "d.html"] {
        write(name, text.as_bytes());
    }
    write("a.html.gz", &gzip);
    write("a.html.br", &brotli);
    write("b.html.gz", &noise(3, 1_000));
    write("c.html.br", &noise(4, text.len()));
    write("d.html.br", &noise(5, 1_000));
    let old = fs::File::options()
        .write(true)
        .open(folder.join("d.html.br"));
    old.unwrap().set_modified(UNIX_EPOCH).unwrap();
    (text, gzip, brotli)
}

/// Sends requests to a site, and returns the status lines, the fields and the bodies of the responses.
fn responses(
    site: &Arc<Site>,
    requests: &[(&str, &str, String)],
) -> Vec<(String, String, Vec<u8>)> {
    let mut world = world(site, SendMode::MemCopy, 0);
    let texts = requests
        .iter()
        .map(|(method, path, fields)| request(method, path, fields));
    world.connect(&(texts.collect::<String>() + &request("HEAD", "/", "Connection: close\r\n")));
    assert!(world.run(|_| false));
    let mut rest = world.received(0);
    let take = |(method, ..): &(&str, &str, String)| {
        let is_304 = rest.starts_with(b"HTTP/1.1 304");
        let (line, fields, body) = take_response(&mut rest, *method == "GET" && !is_304);
        (line.to_owned(), fields.to_owned(), body.to_vec())
    };
    requests.iter().map(take).collect()
}

#[test]
fn coded_forms_beside_files_on_the_disk_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (text, gzip, brotli) = write_coded(folder.path());
    let with = |codings: &str, more: &str| format!("Accept-Encoding: {codings}\r\n{more}");
    // Without memory, all files are on the disk. Otherwise the first form of the text is in memory.
    for budget in [0, 400_000] {
        let settings = Settings {
            memory: Some(MemoryBudget::new(budget)),
            ..Settings::default()
        };
        let site = Site::load_with(folder.path(), &Limits::default(), &settings, |_| {});
        let site = Arc::new(site.unwrap());
        assert_eq!(site.totals().coded, 2);
        let is_in_memory = budget > 0;
        assert_eq!(site.totals().disk_files, if is_in_memory { 6 } else { 9 });
        let range = "Range: bytes=70000-70009\r\n";
        let later = "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
        let found = responses(
            &site,
            &[
                ("GET", "/a.html", with("gzip, br", "")),
                ("HEAD", "/a.html", with("gzip, br", "")),
                ("GET", "/a.html", with("br", "")),
                ("GET", "/a.html", with("zstd", "")),
                ("GET", "/a.html", with("br", range)),
                ("GET", "/a.html", with("br", later)),
                ("GET", "/b.html", with("gzip", "")),
                ("GET", "/c.html", with("br", "")),
                ("GET", "/d.html", with("br", "")),
            ],
        );
        let expected: [(&str, &[u8]); 9] = [
            ("gzip", &gzip),
            ("gzip", b""),
            ("br", &brotli),
            ("", text.as_bytes()),
            ("br", &brotli[70_000..70_010]),
            ("304", b""),
            ("none", text.as_bytes()),
            ("none", text.as_bytes()),
            ("none", text.as_bytes()),
        ];
        for ((line, fields, body), (coding, content)) in found.iter().zip(expected) {
            assert!(body == content, "{coding}: {line} {fields}");
            let has_vary = fields.contains("\r\nVary: Accept-Encoding\r\n");
            assert_eq!(has_vary, coding != "none", "{fields}");
            if coding == "304" {
                assert_eq!(line, "HTTP/1.1 304 Not Modified");
            } else {
                assert!(
                    fields.contains("\r\nContent-Type: text/html\r\n"),
                    "{fields}"
                );
            }
            let field = format!("\r\nContent-Encoding: {coding}\r\n");
            let is_coded = ["gzip", "br"].contains(&coding);
            assert_eq!(
                fields.contains("\r\nContent-Encoding"),
                is_coded,
                "{fields}"
            );
            assert!(!is_coded || fields.contains(&field), "{fields}");
            let is_tagged = is_in_memory && coding == "gzip";
            assert_eq!(fields.contains("\r\nETag"), is_tagged, "{fields}");
            assert!(
                is_tagged || fields.contains("\r\nLast-Modified: "),
                "{fields}"
            );
        }
        check_tagged_forms(&site, &text, &gzip, &brotli);
    }
}

/// Checks the responses with the coded forms after all files have been read.
fn check_tagged_forms(site: &Arc<Site>, text: &str, gzip: &[u8], brotli: &[u8]) {
    let sites = tag(&Tagging::default(), site);
    let site = &sites.last().unwrap().site;
    assert_eq!(site.untagged().count(), 0);
    assert_eq!(site.totals().coded, 2);
    let contents = [
        ("gzip", gzip),
        ("br", brotli),
        ("identity", text.as_bytes()),
    ];
    let tags = contents.map(|(_, content)| ETag::of(content).to_string());
    let mut requests = Vec::new();
    for (coding, _) in contents {
        let with = |more: &str| format!("Accept-Encoding: {coding}\r\n{more}");
        requests.push(("GET", "/a.html", with("")));
        for tag in &tags {
            requests.push(("GET", "/a.html", with(&format!("If-None-Match: {tag}\r\n"))));
        }
        for tag in &tags {
            let range = format!("Range: bytes=5-6\r\nIf-Range: {tag}\r\n");
            requests.push(("GET", "/a.html", with(&range)));
        }
    }
    let found = responses(site, &requests);
    for (((coding, content), own), found) in contents.iter().zip(&tags).zip(found.chunks(7)) {
        for (index, (line, fields, body)) in found.iter().enumerate() {
            // The tag of this request, if it has one, is the first, second or third.
            let is_own = index > 0 && &tags[(index - 1) % 3] == own;
            let (status, part): (_, &[u8]) = match index {
                1..=3 if is_own => ("304 Not Modified", b""),
                4.. if is_own => ("206 Partial Content", &content[5..7]),
                _ => ("200 OK", content),
            };
            assert_eq!(
                line.strip_prefix("HTTP/1.1 "),
                Some(status),
                "{coding} {index}"
            );
            assert!(body == part, "{coding} {index}");
            assert!(fields.contains(&format!("\r\nETag: {own}\r\n")), "{fields}");
            assert!(fields.contains("\r\nVary: Accept-Encoding\r\n"), "{fields}");
            let media_type = "\r\nContent-Type: text/html; charset=utf-8\r\n";
            assert!(
                is_own && index < 4 || fields.contains(media_type),
                "{fields}"
            );
        }
    }
}

#[test]
fn a_reload_keeps_coded_forms_on_the_disk_unless_they_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    write_coded(folder.path());
    // Only files of some age are recognised.
    std::thread::sleep(Duration::from_secs(3));
    let site = load(folder.path());
    let next = |site: &Site| {
        let next = site.load_next(folder.path(), &Limits::default(), |_| {});
        next.unwrap()
    };
    let same = next(&site);
    assert_eq!((same.added(), same.leaving.len()), (0, 0));
    assert_eq!(same.site.totals().coded, 2);
    let path = folder.path().join("a.html.gz");
    let gzip = [&[0x1f, 0x8b][..], &noise(9, 2 * CHUNK_LEN)].concat();
    fs::write(&path, &gzip).unwrap();
    let changed = next(&same.site);
    // The file itself has two new replies, and the form one. The form's reply with 304 has no tag yet,
    // so it stays.
    assert_eq!((changed.added(), changed.leaving.len()), (3, 3));
    let gzip_only = "Accept-Encoding: gzip\r\n".to_owned();
    let found = responses(&changed.site, &[("GET", "/a.html", gzip_only)]);
    assert!(found[0].2 == gzip);
}

#[test]
fn after_a_reload_files_are_read_where_they_are_even_if_only_a_folder_has_another_name() {
    let top = tempfile::tempdir().unwrap();
    let at = |path: &str| top.path().join(path);
    let content = noise(1, CHUNK_LEN + 5);
    for folder in ["1/media", "2"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("1/media/a.bin"), &content).unwrap();
    symlink("1", at("www")).unwrap();
    // Only files of some age are recognised.
    std::thread::sleep(Duration::from_secs(3));
    let next = |site: &Site, paths: &[&str]| {
        let next = site.load_next(&at("www"), &Limits::default(), |_| {});
        let next = next.unwrap();
        assert_eq!(next.site.totals().disk_files, paths.len() as u64);
        let requests: Vec<_> = paths.iter().map(|p| ("GET", *p, String::new())).collect();
        for (line, _, body) in responses(&next.site, &requests) {
            assert!(body == content, "{line}");
        }
        next
    };
    let site = load(&at("www"));
    // Another folder takes the place of the served one, and the file moves there.
    fs::rename(at("1/media"), at("2/media")).unwrap();
    fs::remove_file(at("www")).unwrap();
    symlink("2", at("www")).unwrap();
    let moved = next(&site, &["/media/a.bin"]);
    // A link takes the place of a folder inside.
    fs::rename(at("2/media"), at("2/old")).unwrap();
    symlink("old", at("2/media")).unwrap();
    let linked = next(&moved.site, &["/media/a.bin", "/old/a.bin"]);
    // The served folder has another name.
    fs::rename(at("2"), at("3")).unwrap();
    fs::remove_file(at("www")).unwrap();
    symlink("3", at("www")).unwrap();
    let renamed = next(&linked.site, &["/media/a.bin", "/old/a.bin"]);
    assert_eq!((renamed.added(), renamed.leaving.len()), (0, 0));
}

#[test]
fn many_connections_of_one_client_leave_memory_to_others() {
    const CROWD: usize = 200;
    const LEN: usize = 40 * CHUNK_LEN;
    let folder = tempfile::tempdir().unwrap();
    let content = noise(1, CROWD * LEN);
    fs::write(folder.path().join("a.bin"), &content).unwrap();
    let site = Arc::new(load(folder.path()));
    let mut world = world(&site, SendMode::MemCopy, 0);
    let range = |number: usize| {
        let (from, last) = (number * LEN, (number + 1) * LEN - 1);
        let fields = format!("Range: bytes={from}-{last}\r\nConnection: close\r\n");
        request("GET", "/a.bin", &fields)
    };
    // Each of them is slow, but fast enough to keep its memory.
    for number in 0..CROWD {
        let talk = Talk {
            bytes: range(number).into_bytes(),
            buffers: (3_000, 1_000),
            ..Talk::default()
        };
        world.client.connect(80, talk);
    }
    let start = Duration::from_secs(1);
    let talk = Talk {
        server: SERVER[1],
        start: Instant::ZERO + start,
        bytes: range(0).into_bytes(),
        ..Talk::default()
    };
    world.client.connect(80, talk);
    let is_done = |client: &Client| client.connections[CROWD].received.len() > LEN;
    assert!(world.run(is_done));
    let took = world.link.clock.now().since(Instant::ZERO + start);
    // Without shares, it takes 48 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let first = &world.client.connections[0].received;
    assert!(first.len() < LEN, "the other connections are slow");
    let web = world.server.transports.stack().app();
    let (_, gave_way) = web.disk_counts().unwrap();
    assert_eq!(gave_way, 0, "all of them make progress");
}

/// A response is under way when the server begins to stop. Its head has kept the connection open.
#[test]
fn requests_behind_a_file_on_the_disk_are_answered_while_the_server_stops() {
    let folder = tempfile::tempdir().unwrap();
    let content = noise(1, 400_000);
    fs::write(folder.path().join("long.bin"), &content).unwrap();
    let mut world = world(&Arc::new(load(folder.path())), SendMode::MemCopy, 1 << 24);
    for others in [0, 1] {
        let others = request("GET", "/none", "").repeat(others);
        let talk = Talk {
            bytes: (request("GET", "/long.bin", "") + &others).into_bytes(),
            buffers: (20_000, 1 << 16),
            ..Talk::default()
        };
        world.client.connect(80, talk);
    }
    // The server begins to stop as soon as it looks at an idle connection.
    world.connect("");
    assert!(world.run(|client| {
        let received = client.connections[..2].iter();
        received.map(|one| one.received.len()).min() > Some(100_000)
    }));
    for _ in 0..300 {
        let now = world.link.clock.now();
        let drained = world.server.handle_drain(&mut world.link.server, now);
        if drained == Drain::Done {
            break;
        }
        world.run_until(|_, at| at >= now + STEP);
    }
    assert!(world.run(|_| false));
    for others in [0, 1] {
        let mut rest = world.received(others);
        let (_, fields, body) = take_response(&mut rest, true);
        assert!(fields.contains("Connection: keep-alive\r\n") && body == content);
        for _ in 0..others {
            let (line, fields, _) = take_response(&mut rest, true);
            assert_eq!(line, "HTTP/1.1 404 Not Found");
            assert!(fields.contains("Connection: close "), "{fields}");
        }
        assert!(rest.is_empty());
    }
}

#[path = "disk_change_tests.rs"]
mod changes;
