//! Chromium loads a page of a hundred scripts. Meanwhile slow readers and halves of requests hold
//! connections. Each second, all files change and are reloaded.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::Env;
use super::abusers::{self, Abuse};
use super::checks::Checks;
use super::chromium;
use super::http::Connection;
use super::matrix::Scenario;
use super::peers::servers::is_installed;
use super::rig::{Place, Rig, device_options};
use super::web::body;
use crate::server::Server;
use crate::shell;

const SCRIPTS: usize = 100;
/// The file that slow readers ask for, and the length of its second version in bytes.
const LONG: &str = "size-30000000.bin";
const LONG_LEN: usize = 30_000_001;
/// Time from one reload to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// A request timeout that ends no half of a request during the test.
const HOURS: &str = "3600";
const RELOAD_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for a page in seconds. It includes the start of the browser.
const PAGE_LIMIT: u32 = 20;
/// Pause of the other client between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// Clients beside the browser, and the number of times that it loads the page.
struct Case {
    slow_readers: usize,
    halves: usize,
    loads: usize,
}

const SAMPLE: Case = Case {
    slow_readers: 300,
    halves: 100,
    loads: 2,
};
const WHOLE: Case = Case {
    slow_readers: 10_000,
    halves: 4_000,
    loads: 10,
};

pub(crate) fn sample(env: &Env, checks: &mut Checks) -> Result<()> {
    run(&SAMPLE, env, checks)
}

pub(crate) fn whole(env: &Env, checks: &mut Checks) -> Result<()> {
    run(&WHOLE, env, checks)
}

fn run(case: &Case, env: &Env, checks: &mut Checks) -> Result<()> {
    if !is_installed("Chromium beside slow readers", "chromium", "chromium") {
        return Ok(());
    }
    let site = Site::make(env)?;
    let rig = Rig::build(&Scenario::WEB)?;
    let abuses = case.abuses();
    abusers::allow(&abuses)?;
    abusers::add_addresses(&rig)?;
    let site_and_limit = [
        &site.path().display().to_string(),
        "--request-timeout",
        HOURS,
    ];
    let device = device_options(&Scenario::WEB);
    let words = site_and_limit
        .into_iter()
        .chain(device.iter().map(String::as_str));
    let (server, place) = rig.serve(env, "sandstorm", words)?;
    checks.check("every page is whole, and every request is answered", || {
        let to = place.socket(place.v6);
        let load = || case.load_pages(&site, &rig, &server, &place);
        rig.as_client(|| abusers::beside(to, &abuses, load))?
    });
    checks.check("the server stops well", || server.stop_well().map(drop));
    Ok(())
}

impl Case {
    fn abuses(&self) -> [(Abuse, usize); 3] {
        let slow = self.slow_readers / 2;
        let halves = (Abuse::HalfHead, self.halves);
        [(Abuse::Sip, slow), (Abuse::ZeroWindow, slow), halves]
    }

    /// Loads the page again and again. Meanwhile the site changes, and another client sends requests.
    fn load_pages(&self, site: &Site, rig: &Rig, server: &Server, place: &Place) -> Result<()> {
        let ended = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| site.keep_changing(server, ended));
            let asker = scope.spawn(|| site.keep_asking(place, ended));
            let loads = (0..self.loads).map(|_| site.load(rig, place));
            let times = loads.collect::<Result<Vec<_>>>();
            let held = held(rig);
            ended.store(true, Ordering::Relaxed);
            let reloads = changer.join().expect("the changer does not panic")?;
            let waits = asker.join().expect("the asker does not panic")?;
            let (times, held) = (times?, held?);
            let longest = |times: &[Duration]| times.iter().max().copied();
            println!(
                "browser beside {held} connections: {} pages, each in {:?} at most; {} reloads, each in \
                 {:?} at most; {} other requests, answered in {:?} at most",
                times.len(),
                longest(&times).unwrap_or_default(),
                reloads.len(),
                longest(&reloads).unwrap_or_default(),
                waits.len(),
                longest(&waits).unwrap_or_default(),
            );
            ensure!(reloads.len() > self.loads, "too few reloads");
            ensure!(waits.len() > SCRIPTS, "too few requests");
            // The server may have closed some, which are being opened again.
            let abusers = self.slow_readers + self.halves;
            ensure!(held >= abusers / 10 * 9, "{held} of {abusers} are open");
            Ok(())
        })
    }
}

/// The page and its scripts.
struct Site {
    folder: TempDir,
    /// Both versions of each script.
    scripts: Vec<[String; 2]>,
    /// Both versions of the file that slow readers ask for.
    long: [PathBuf; 2],
}

impl Site {
    fn make(env: &Env) -> Result<Self> {
        let folder = shell::scratch_in(&env.folder, "browser")?;
        let site = Self {
            scripts: (0..SCRIPTS).map(script).collect(),
            long: [env.site.join(LONG), folder.path().with_extension("long")],
            folder,
        };
        shell::write(&site.long[1], body(LONG_LEN))?;
        let mut page = "<!doctype html><script>function show(id, text) {\n\
            const pre = document.createElement('pre')\npre.id = id\npre.textContent = text\n\
            document.body.append(pre)\n}</script><body>"
            .to_owned();
        for number in 0..SCRIPTS {
            write!(page, "<script async src={number}.js></script>")?;
        }
        shell::write(&site.path().join("index.html"), page)?;
        site.change(0)?;
        Ok(site)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces each file by its version `version`.
    fn change(&self, version: usize) -> Result<()> {
        let next = self.path().with_extension("next");
        for (number, versions) in self.scripts.iter().enumerate() {
            shell::write(&next, &versions[version])?;
            let script = self.path().join(format!("{number}.js"));
            fs::rename(&next, script).context("replacing a script")?;
        }
        fs::hard_link(&self.long[version], &next).context("linking a file")?;
        fs::rename(&next, self.path().join(LONG)).context("replacing a file")
    }

    /// Changes and reloads the site once a second, until `ended` is set. Returns how long the reloads
    /// took.
    fn keep_changing(&self, server: &Server, ended: &AtomicBool) -> Result<Vec<Duration>> {
        let mut reloads = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            let start = Instant::now();
            self.change((reloads.len() + 1) % 2)?;
            reloads.push(server.hang_up_until("\nreloaded: ", RELOAD_LIMIT)?);
            std::thread::sleep(PERIOD.saturating_sub(start.elapsed()));
        }
        Ok(reloads)
    }

    /// Asks for one script after the other, two on each connection, until `ended` is set. Returns how long
    /// each response took.
    fn keep_asking(&self, place: &Place, ended: &AtomicBool) -> Result<Vec<Duration>> {
        let mut waits = Vec::new();
        for (number, versions) in self.scripts.iter().enumerate().cycle() {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let mut start = Instant::now();
            let mut connection = Connection::open(place.socket(place.v4))?;
            for _ in 0..2 {
                let response = connection.request("GET", &format!("/{number}.js"), "")?;
                waits.push(std::mem::replace(&mut start, Instant::now()).elapsed());
                let right = response.expect_body(versions[0].as_bytes());
                right.or_else(|_| response.expect_body(versions[1].as_bytes()))?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(waits)
    }

    /// Lets a new browser load the page. Returns how long that takes, or an error if a script lacks or
    /// differs from both of its versions.
    fn load(&self, rig: &Rig, place: &Place) -> Result<Duration> {
        let profile = shell::scratch("chromium")?;
        let start = Instant::now();
        let mut browser = chromium::command(rig, profile.path(), PAGE_LIMIT, &["chromium"]);
        let url = format!("http://{}/", place.socket(place.v4));
        let page = shell::capture_text(browser.args(["--dump-dom", &url]));
        let page = page.with_context(|| format!("status 124 means more than {PAGE_LIMIT} s"))?;
        let taken = start.elapsed();
        for (number, versions) in self.scripts.iter().enumerate() {
            let shown = page.split_once(&format!("<pre id=\"{number}\">"));
            let (_, rest) = shown.with_context(|| format!("no script {number} in\n{page}"))?;
            let text = rest.split('<').next().unwrap_or_default();
            let shown = format!("show({number}, \"{text}\")\n");
            ensure!(versions.contains(&shown), "wrong bytes in script {number}");
        }
        Ok(taken)
    }
}

/// Returns the number of abusers' connections that are open. Only abusers use IPv6.
fn held(rig: &Rig) -> Result<usize> {
    let list = rig
        .client()
        .run("ss --no-header --tcp --ipv6 state established");
    list.map(|list| list.lines().count())
}

/// Returns both versions of a script, which differ in length.
fn script(number: usize) -> [String; 2] {
    [0, 1].map(|version| {
        let words = body(250 * number + 10 + version).into_iter();
        let words: Vec<_> = words.map(|byte| byte.to_string()).collect();
        format!("show({number}, \"{}\")\n", words.join(" "))
    })
}
