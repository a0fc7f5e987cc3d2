//! What people do with Chromium, besides loading a page for the first time. They load a page again, seek
//! in a long recording, and resume downloads that a restart of the server has broken.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::Env;
use super::checks::Checks;
use super::chromium::Chromium;
use super::http::same;
use super::matrix::Scenario;
use super::peers::servers::is_installed;
use super::rig::{Rig, device_options};
use super::web::body;
use crate::server::Server;
use crate::{interrupt, shell};

/// The page, which has a square on a background. It loads the other files of [`PATHS`].
const PAGE: &str = "<!doctype html><title>page</title><link rel=icon href=data:,>\
    <link rel=stylesheet href=style.css><img src=square.svg>";
const PATHS: [&str; 3] = ["/", "/square.svg", "/style.css"];
const SQUARE: &str = "#d02020";
/// Width and height of the square and of a screenshot.
const SQUARE_SIZE: u32 = 50;
const SCREEN: [u32; 2] = [200, 100];
/// The background in both versions of the style sheet.
const BACKGROUNDS: [&str; 2] = ["#107040", "#e0c000"];
/// Without this, caches guess for how long a file stays the same.
const FIELDS: &str = "/*\n  Cache-Control: no-cache\n";

/// Decodes a screenshot, and counts its pixels by colour.
const COUNT_COLOURS: &str = "(async () => {
    const image = new Image();
    image.src = 'data:image/png;base64,IMAGE';
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
    canvas.drawImage(image, 0, 0);
    const {data} = canvas.getImageData(0, 0, image.width, image.height);
    const counts = {};
    for (let at = 0; at < data.length; at += 4) {
        const hex = [...data.slice(at, at + 3)].map(byte => byte.toString(16).padStart(2, '0'));
        const colour = '#' + hex.join('');
        counts[colour] = (counts[colour] ?? 0) + 1;
    }
    return counts;
})()";

/// Length of the recording in samples of one byte, and their number per second.
const SAMPLES: usize = 32_000_000;
const RATE: usize = 8_000;
/// Length of a recording's head in bytes.
const HEAD: usize = 44;
/// The time in the recording to which the page seeks, in seconds.
const SEEK: usize = 1_500;
/// Maximum number of bytes before that time which Chromium asks for, too.
const EARLIER: usize = 100_000;

/// The state of a video that has what follows.
const HAVE_FUTURE_DATA: u64 = 3;

/// Plays the recording, seeks, and continues to play.
const PLAY: &str = "(async () => {
    const video = document.createElement('video');
    const event = name => new Promise((resolve, reject) => {
        video.addEventListener(name, resolve, {once: true});
        video.addEventListener('error', () => reject(video.error.message), {once: true});
    });
    document.body.append(video);
    video.muted = true;
    video.src = '/recording.wav';
    await video.play();
    const seeked = event('seeked');
    video.currentTime = SEEK;
    await seeked;
    while (video.currentTime <= SEEK) {
        await event('timeupdate');
    }
    return [video.duration, Math.floor(video.currentTime), video.readyState];
})()";

const DOWNLOAD: &str = "(() => {
    const link = document.createElement('a');
    link.href = 'TARGET';
    link.download = '';
    link.click();
})()";
/// Chromium's page of downloads, and a script there that resumes the last download if it is broken.
const DOWNLOADS: &str = "chrome://downloads";
const RESUME: &str = "(() => {
    const inside = document.querySelector('downloads-manager')?.shadowRoot;
    const item = inside?.querySelector('downloads-item');
    if (item?.data?.resume) {
        item.shadowRoot.querySelector('#pause-or-resume').click();
    }
})()";
/// Minimum length of a download before it is broken, in bytes.
const PART: u64 = 1_000_000;
/// Minimum, default and maximum receive buffer of TCP: the kernel's own, and one that makes a download
/// slow enough to break it.
const USUAL_BUFFER: &str = "4096 131072 6291456";
const SMALL_BUFFER: &str = "4096 4096 4096";
/// Time limit for a reload, a download, or a line of the access log.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    if !is_installed("seeks and resumed downloads", "chromium", "chromium") {
        return Ok(());
    }
    let mut visit = Visit::start(env)?;
    checks.check("only a changed file is sent again", || visit.revalidate());
    checks.check("a seek fetches what follows", || visit.seek());
    checks.check("a download goes on after a restart", || visit.go_on());
    checks.check("a download of a changed file begins again", || {
        visit.begin_again()
    });
    checks.check("the server stops well", || visit.stop_server());
    Ok(())
}

/// A browser, a site, and its server.
struct Visit<'e> {
    browser: Chromium,
    /// `None` while the server restarts.
    server: Option<Server>,
    /// The site at the server's IPv4 address and at its IPv6 address.
    urls: [String; 2],
    rig: Rig,
    folder: TempDir,
    env: &'e Env,
}

impl<'e> Visit<'e> {
    fn start(env: &'e Env) -> Result<Self> {
        let folder = shell::scratch_in(&env.folder, "browsing")?;
        let rig = Rig::build(&Scenario::WEB)?;
        let mut visit = Self {
            browser: Chromium::start(&rig)?,
            server: None,
            urls: [String::new(), String::new()],
            rig,
            folder,
            env,
        };
        let rect = format!("<rect width=\"100%\" height=\"100%\" fill=\"{SQUARE}\"/>");
        let size = format!("width=\"{SQUARE_SIZE}\" height=\"{SQUARE_SIZE}\"");
        let square = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size}>{rect}</svg>");
        shell::make_folder(&visit.path("site"))?;
        shell::write(&visit.path("site/index.html"), PAGE)?;
        shell::write(&visit.path("site/square.svg"), square)?;
        shell::write(&visit.path("site/style.css"), style(BACKGROUNDS[0]))?;
        shell::write(&visit.path("site/_headers"), FIELDS)?;
        shell::write(&visit.path("site/recording.wav"), recording(SAMPLES)?)?;
        visit.start_server()?;
        Ok(visit)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_server(&mut self) -> Result<()> {
        let words = [self.path("site").display().to_string(), "--drain=0".into()];
        let log = format!("--access-log={}", self.path("log").display());
        let format = "--access-log-format=target,status,bytes".to_owned();
        let words = words.into_iter().chain([log, format]);
        let words = words.chain(device_options(&Scenario::WEB));
        let (server, place) = self.rig.serve(self.env, "sandstorm", words)?;
        let addresses = place.addresses();
        self.urls = addresses.map(|address| format!("http://{}/", place.socket(address)));
        self.server = Some(server);
        Ok(())
    }

    fn stop_server(&mut self) -> Result<()> {
        let server = self.server.take().context("no server")?;
        server.stop_well().map(drop)
    }

    /// Returns the status and the length of the body of all answers to requests for `target`.
    fn answers(&self, target: &str) -> Result<Vec<(u16, u64)>> {
        let log = shell::read(&self.path("log"))?;
        let lines = log.lines().filter_map(|line| line.strip_prefix(target));
        let numbers = lines.filter_map(|line| line.strip_prefix('\t')?.split_once('\t'));
        let parsed = numbers.map(|(status, length)| Ok((status.parse()?, length.parse()?)));
        parsed.collect()
    }

    /// Waits until the answers to requests for `target` have these statuses.
    fn expect_answers(&self, target: &str, statuses: &[u16]) -> Result<()> {
        let mut found = Vec::new();
        let are_right = interrupt::wait_for(LIMIT, || {
            found = self.answers(target)?;
            let is_right = found.iter().map(|(status, _)| status).eq(statuses);
            Ok(is_right.then_some(()))
        })?;
        are_right.with_context(|| format!("answers for {target}: {found:?}, not {statuses:?}"))
    }

    /// Loads the page three times. Before the last time, the style sheet changes.
    fn revalidate(&mut self) -> Result<()> {
        self.browser.open(&self.urls[0])?;
        self.look(BACKGROUNDS[0])?;
        self.browser.reload()?;
        self.look(BACKGROUNDS[0])?;
        shell::write(&self.path("site/style.css"), style(BACKGROUNDS[1]))?;
        let server = self.server.as_ref().context("no server")?;
        server.hang_up_until("\nreloaded: ", LIMIT)?;
        self.browser.reload()?;
        self.look(BACKGROUNDS[1])?;
        for path in PATHS {
            let last = if path == "/style.css" { 200 } else { 304 };
            self.expect_answers(path, &[200, 304, last])?;
        }
        Ok(())
    }

    /// Takes a screenshot, and returns an error unless it shows the square on this background.
    fn look(&mut self, background: &str) -> Result<()> {
        let [width, height] = SCREEN;
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let browser = &mut self.browser;
        let shot = browser.call("Page.captureScreenshot", json!({"clip": clip}))?;
        let image = shot["data"].as_str().context("no screenshot")?;
        let counts = browser.evaluate(&COUNT_COLOURS.replace("IMAGE", image))?;
        let square = SQUARE_SIZE * SQUARE_SIZE;
        let expected = json!({background: width * height - square, SQUARE: square});
        ensure!(counts == expected, "pixels: {counts}, not {expected}");
        Ok(())
    }

    /// Plays the recording, and seeks far behind what Chromium fetches at first.
    fn seek(&mut self) -> Result<()> {
        self.browser.open(&self.urls[0])?;
        let script = PLAY.replace("SEEK", &SEEK.to_string());
        let state = self.browser.evaluate(&script)?;
        let [duration, time, ready] = [0, 1, 2].map(|at| state[at].as_u64().unwrap_or_default());
        let is_ready = duration as usize == SAMPLES / RATE && ready >= HAVE_FUTURE_DATA;
        let has_sought = (SEEK..SEEK + LIMIT.as_secs() as usize).contains(&(time as usize));
        ensure!(is_ready && has_sought, "duration, time and state: {state}");
        let wanted = HEAD + SEEK * RATE;
        let mut answers = Vec::new();
        let is_asked = interrupt::wait_for(LIMIT, || {
            answers = self.answers("/recording.wav")?;
            let is_right = |&(_, length): &(u16, u64)| {
                let start = (HEAD + SAMPLES).saturating_sub(length as usize);
                (wanted - EARLIER..=wanted).contains(&start)
            };
            Ok(answers.iter().any(is_right).then_some(()))
        })?;
        let are_parts = answers.iter().all(|&(status, _)| status == 206);
        ensure!(is_asked.is_some() && are_parts, "no seek in {answers:?}");
        Ok(())
    }

    /// A download resumes where it was broken.
    fn go_on(&mut self) -> Result<()> {
        let [whole, rest] = self.break_and_resume(1, None, 206)?;
        ensure!(rest + PART <= whole, "lengths: {whole} and {rest}");
        Ok(())
    }

    /// A download begins again, because the file has changed.
    fn begin_again(&mut self) -> Result<()> {
        let changed = recording(SAMPLES + 1)?;
        self.break_and_resume(0, Some(changed), 200).map(drop)
    }

    /// Lets Chromium download the recording from the site at `self.urls[number]`, to which it has no
    /// connection yet. Meanwhile the server restarts, and the recording may change. Returns the lengths of
    /// both answers, of which the second one must have the status `resumed`.
    fn break_and_resume(
        &mut self,
        number: usize,
        changed: Option<Vec<u8>>,
        resumed: u16,
    ) -> Result<[u64; 2]> {
        let target = format!("recording.wav?{number}");
        let downloads = self.path(&target);
        shell::make_folder(&downloads)?;
        let to = json!({"behavior": "allow", "downloadPath": downloads});
        self.browser.call("Browser.setDownloadBehavior", to)?;
        self.set_buffer(SMALL_BUFFER)?;
        self.browser.open(&self.urls[number])?;
        let script = DOWNLOAD.replace("TARGET", &target);
        self.browser.evaluate(&script)?;
        let part = downloads.join("recording.wav.crdownload");
        let received = || fs::metadata(&part).map_or(0, |part| part.len());
        let has_part = || Ok((received() >= PART).then_some(()));
        interrupt::wait_for(LIMIT, has_part)?.context("the download does not begin")?;
        self.stop_server()?;
        self.set_buffer(USUAL_BUFFER)?;
        ensure!(part.exists(), "the download ended before the server");
        if let Some(changed) = changed {
            shell::write(&self.path("site/recording.wav"), changed)?;
        }
        self.start_server()?;
        self.browser.open(DOWNLOADS)?;
        let whole = downloads.join("recording.wav");
        let is_whole = interrupt::wait_for(LIMIT, || {
            self.browser.evaluate(RESUME)?;
            Ok(whole.exists().then_some(()))
        })?;
        is_whole.context("the download is not resumed")?;
        let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
        same(&read(&whole)?, &read(&self.path("site/recording.wav"))?)?;
        self.expect_resumption(&format!("/{target}"), resumed)
    }

    /// Waits until the first answer to requests for `target` has status 200, and the last one `resumed`.
    /// Returns the lengths of their bodies.
    fn expect_resumption(&self, target: &str, resumed: u16) -> Result<[u64; 2]> {
        let mut found = Vec::new();
        let lengths = interrupt::wait_for(LIMIT, || {
            found = self.answers(target)?;
            Ok(match &found[..] {
                [(200, first), .., (status, last)] if *status == resumed => Some([*first, *last]),
                _ => None,
            })
        })?;
        lengths.with_context(|| format!("answers for {target}: {found:?}, not 200 and {resumed}"))
    }

    fn set_buffer(&self, buffer: &str) -> Result<()> {
        let mut sysctl = self.rig.client().command("sysctl");
        sysctl.args(["-q", "-w", &format!("net.ipv4.tcp_rmem={buffer}")]);
        shell::capture(&mut sysctl).map(drop)
    }
}

fn style(background: &str) -> String {
    format!("body {{ margin: 0; background: {background}; }}\nimg {{ display: block; }}\n")
}

/// Returns a WAV file of one channel without compression, with this number of samples.
fn recording(samples: usize) -> Result<Vec<u8>> {
    let number = |value: usize| u32::try_from(value).map(u32::to_le_bytes);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend(number(samples + HEAD - 8)?);
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    // The second one is the number of bytes per second. A sample has one byte, or 8 bits.
    bytes.extend([number(RATE)?, number(RATE)?].concat());
    bytes.extend(b"\x01\0\x08\0data");
    bytes.extend(number(samples)?);
    ensure!(bytes.len() == HEAD, "a head of {} bytes", bytes.len());
    bytes.extend(body(samples));
    Ok(bytes)
}
