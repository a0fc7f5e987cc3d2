//! A site of a million short files, 100 long ones and one of 30 GB, with memory for a small part of it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::Env;
use super::checks::Checks;
use super::http::Connection;
use super::many;
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use super::web::body;
use crate::interrupt;
use crate::shell;

const SHORT_FILES: usize = 1_000_000;
/// Number of short files in a folder.
const IN_FOLDER: usize = 1_000;
/// Of so many short files, the client asks for one.
const ASKED: usize = 97;
/// Number of long files, and the length of each in bytes. They are sparse.
const LONG_FILES: u64 = 100;
const LONG: u64 = 1_000_000_000;
const LONGEST: u64 = 30_000_000_000;
const MEMORY: &str = "2GiB";
/// Maximum memory of the server in bytes. Beside the files, it has the index and the buffers.
const MAX_MEMORY: u64 = 3 << 30;
/// Length of a mark in a long file, in bytes.
const MARK: u64 = 20;

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let scratch = shell::scratch_in(&env.folder, "large")?;
    make(scratch.path())?;
    let scenario = Scenario::WEB.on("tap");
    let rig = Rig::build(&scenario)?;
    let site = scratch.path().display().to_string();
    let options = [site.as_str(), "--memory", MEMORY, "--max-files", "2000000"];
    let options = options.map(str::to_owned).to_vec();
    let begun = Instant::now();
    let words = [options, device_options(&scenario)].concat();
    let (server, place) = rig.serve(env, "sandstorm", words)?;
    println!(
        "large site: it is served after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    checks.check("short files of a large site arrive whole", || {
        rig.as_client(|| fetch_short(&place))?
    });
    checks.check("long files are sent in parts", || {
        rig.as_client(|| fetch_parts(&place))?
    });
    checks.check("the server keeps to its memory", || {
        let (_, peak) = many::memory(server.id())?;
        println!("large site: {} MiB at most", peak >> 20);
        ensure!(peak <= MAX_MEMORY, "{peak} bytes");
        Ok(())
    });
    checks.check("the server stops well", || server.stop_well().map(drop));
    Ok(())
}

/// Returns the path of a short file below the site.
fn short(number: usize) -> String {
    format!("{}/{number}.bin", number / IN_FOLDER)
}

/// Returns the content of a short file.
fn content(number: usize) -> Vec<u8> {
    body(number % 700)
}

/// Returns the names and lengths of the long files.
fn long_files() -> impl Iterator<Item = (String, u64)> {
    let long = (0..LONG_FILES).map(|number| (format!("long-{number}.bin"), LONG));
    long.chain([("longest.bin".to_owned(), LONGEST)])
}

/// Returns the places of marks in a file of this length, with the marks.
fn marks(len: u64) -> impl Iterator<Item = (u64, String)> {
    let places = [0, len / 2 - MARK / 2, len - MARK];
    places.into_iter().map(|at| (at, format!("{at:020}")))
}

fn make(site: &Path) -> Result<()> {
    for number in 0..SHORT_FILES {
        let path = site.join(short(number));
        if number % IN_FOLDER == 0 {
            interrupt::check()?;
            shell::make_folder(path.parent().context("a file without a folder")?)?;
        }
        fs::write(&path, content(number)).with_context(|| path.display().to_string())?;
    }
    for (name, len) in long_files() {
        let file = File::create(site.join(&name)).context(name)?;
        file.set_len(len)?;
        for (at, mark) in marks(len) {
            file.write_all_at(mark.as_bytes(), at)?;
        }
    }
    Ok(())
}

fn fetch_short(place: &Place) -> Result<()> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    for number in (0..SHORT_FILES).step_by(ASKED) {
        let path = short(number);
        let response = connection.request("GET", &format!("/{path}"), "")?;
        response.expect_body(&content(number)).context(path)?;
    }
    Ok(())
}

fn fetch_parts(place: &Place) -> Result<()> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    for (name, len) in long_files() {
        for (at, mark) in marks(len) {
            let range = format!("Range: bytes={at}-{}\r\n", at + MARK - 1);
            let response = connection.request("GET", &format!("/{name}"), &range)?;
            response.expect_status(206)?;
            let is_right = response.body == mark.as_bytes();
            ensure!(is_right, "{name} has wrong bytes at {at}");
        }
    }
    Ok(())
}
