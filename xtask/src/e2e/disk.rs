//! A site that does not fit into memory: many files, and one of 30 GB. Sandbox, threads and device are
//! real.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::Env;
use super::checks::Checks;
use super::http::Connection;
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use super::web::{body, in_threads};
use crate::interrupt;
use crate::server::Server;
use crate::shell;

/// Number of files, and the length of each in bytes. With the memory of [`MEMORY`], only some stay in
/// memory.
const FILES: usize = 40;
const FILE_LEN: usize = 1_000_000;
const MEMORY: &str = "16MiB";
/// Length of the long file in bytes. It is sparse.
const LONG: u64 = 30_000_000_000;
/// Number of clients that ask for parts of the long file and receive nothing. They want more memory
/// than there is.
const SILENT: u64 = 200;
/// Time limit for the tags of the short files.
const TAGS: Duration = Duration::from_mins(1);
/// Time limit for a reload.
const RELOAD: Duration = Duration::from_secs(10);

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let site = env.folder.join("disk");
    make(&site)?;
    // Only what is on the disk can leave the page cache. The files are then read directly.
    rustix::fs::sync();
    shell::set_cached(&site, false)?;
    let scenario = Scenario::WEB.on("tap");
    let rig = Rig::build(&scenario)?;
    let words = [site.display().to_string(), "--memory".into(), MEMORY.into()];
    let words = [words.to_vec(), device_options(&scenario)].concat();
    let (server, place) = rig.serve(env, "sandstorm", words)?;
    checks.check("files on the disk arrive whole", || {
        rig.as_client(|| in_threads(vec![(); 4], |()| fetch_all(&place)))??;
        Ok(())
    });
    checks.check("a file of 30 GB is sent in parts", || {
        rig.as_client(|| fetch_parts(&place))?
    });
    checks.check("files on the disk get tags", || {
        rig.as_client(|| wait_for_tags(&place))?
    });
    checks.check("files on the disk are sent in coded forms", || {
        rig.as_client(|| fetch_coded(&place))?
    });
    checks.check("silent clients give way", || {
        rig.as_client(|| beside_silent(&place))?
    });
    checks.check("a changed file is served after a reload", || {
        rig.as_client(|| change(&server, &place, &site))?
    });
    checks.check("the server stops well", || server.stop_well().map(drop));
    fs::remove_dir_all(&site).context("removing the site")
}

/// The content of the file with this number.
fn content(number: usize) -> Vec<u8> {
    body(FILE_LEN + number)
}

/// The coded forms of a file on the disk: the end of the name, the coding, and the content. The first one
/// is in memory. The server looks only at the first bytes.
fn forms() -> [(&'static str, &'static str, Vec<u8>); 2] {
    let gzip = [&[0x1f, 0x8b][..], &body(FILE_LEN / 10)].concat();
    [("gz", "gzip", gzip), ("br", "br", content(FILES))]
}

/// The content of a file with coded forms, which is longer than all of them.
fn text() -> Vec<u8> {
    content(FILES + 1)
}

/// Marks that the long file has at some places, which are in different chunks.
fn marks() -> impl Iterator<Item = (u64, String)> {
    let places = [0, 65_530, 5_000_000_000, LONG - 20];
    places.into_iter().map(|at| (at, format!("{at:020}")))
}

fn make(site: &Path) -> Result<()> {
    shell::make_folder(site)?;
    for number in 0..FILES {
        shell::write(&site.join(format!("{number}.bin")), content(number))?;
    }
    shell::write(&site.join("text.html"), text())?;
    for (end, _, content) in forms() {
        shell::write(&site.join(format!("text.html.{end}")), content)?;
    }
    let long = File::create(site.join("long.bin"))?;
    long.set_len(LONG)?;
    for (at, mark) in marks() {
        long.write_all_at(mark.as_bytes(), at)?;
    }
    Ok(())
}

fn fetch_all(place: &Place) -> Result<()> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    for number in 0..FILES {
        let response = connection.request("GET", &format!("/{number}.bin"), "")?;
        response.expect_body(&content(number))?;
    }
    Ok(())
}

/// Waits until the server has read the short files, and asks for the longest one again by its tag.
fn wait_for_tags(place: &Place) -> Result<()> {
    let url = "/text.html";
    let tag = || {
        let mut connection = Connection::open(place.socket(place.v4))?;
        let response = connection.request("HEAD", url, "")?;
        Ok(response.field("ETag").ok().map(str::to_owned))
    };
    let tag = interrupt::wait_for(TAGS, tag)?.context("there is no tag")?;
    let mut connection = Connection::open(place.socket(place.v4))?;
    let field = format!("If-None-Match: {tag}\r\n");
    let response = connection.request("GET", url, &field)?;
    response.expect_status(304)
}

/// Fetches a file in each of its forms, and asks for each again by its tag.
fn fetch_coded(place: &Place) -> Result<()> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    for (_, coding, content) in forms() {
        let accept = format!("Accept-Encoding: {coding}\r\n");
        let response = connection.request("GET", "/text.html", &accept)?;
        response.expect_body(&content)?;
        ensure!(response.field("Content-Encoding")? == coding, "{coding}");
        ensure!(response.field("Vary")? == "Accept-Encoding", "{coding}");
        let tag = response.field("ETag")?;
        let again = format!("{accept}If-None-Match: {tag}\r\n");
        let response = connection.request("GET", "/text.html", &again)?;
        response.expect_status(304)?;
    }
    let response = connection.request("GET", "/text.html", "")?;
    ensure!(
        response.field("Vary")? == "Accept-Encoding",
        "without a coding"
    );
    response.expect_body(&text())
}

fn fetch_parts(place: &Place) -> Result<()> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    for (at, mark) in marks() {
        let range = format!("Range: bytes={at}-{}\r\n", at + 19);
        let response = connection.request("GET", "/long.bin", &range)?;
        response.expect_status(206)?;
        let expected = format!("bytes {at}-{}/{LONG}", at + 19);
        ensure!(response.field("Content-Range")? == expected, "{at}");
        ensure!(response.body == mark.as_bytes(), "wrong bytes at {at}");
    }
    Ok(())
}

/// Fetches files while other clients hold the memory.
fn beside_silent(place: &Place) -> Result<()> {
    let mut silent = Vec::new();
    for number in 0..SILENT {
        let mut connection = Connection::open(place.socket(place.v4))?;
        let from = number * 100_000_000;
        connection.send(format!(
            "GET /long.bin HTTP/1.1\r\nHost: storm.test\r\nRange: bytes={from}-\r\n\r\n"
        ))?;
        silent.push(connection);
    }
    fetch_all(place)
}

/// Changes a file, and asks for it before and after the server knows about it.
fn change(server: &Server, place: &Place, site: &Path) -> Result<()> {
    let path = site.join(format!("{}.bin", FILES - 1));
    let url = format!("/{}.bin", FILES - 1);
    let new = content(2 * FILES);
    shell::write(&path, &new)?;
    let mut connection = Connection::open(place.socket(place.v4))?;
    // A byte is in a single chunk. Its old version may be in memory or not.
    let range = "Range: bytes=500000-500000\r\n";
    let status = connection.request("GET", &url, range)?.status;
    ensure!([206, 503].contains(&status), "status {status}");
    server.signal(Signal::HUP)?;
    let is_new = || {
        let mut connection = Connection::open(place.socket(place.v4))?;
        // Until the reload is done, a response with the old version may end with a reset.
        let response = connection.request("GET", &url, "").ok();
        Ok(response
            .filter(|response| response.status == 200 && response.body == new)
            .map(drop))
    };
    interrupt::wait_for(RELOAD, is_new)?.context("the new version is not served")
}
