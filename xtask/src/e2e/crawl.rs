//! Crawls real documentation. Every file must arrive as it is on disk, in each coding. Every link must
//! lead to what it leads to on disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Env;
use super::checks::Checks;
use super::http::{Connection, same};
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use crate::interrupt;
use crate::shell;
use anyhow::{Context as _, Result, ensure};

/// Where packages of Debian have their documentation.
const DOCUMENTATION: &str = "/usr/share/doc";
/// Number of packages, and of files of each. The packages with most files are taken.
const PACKAGES: usize = 24;
const FILES: usize = 2_000;
/// Time limit for the compression of all files.
const COMPRESSION: Duration = Duration::from_mins(5);

/// Serves copies of the documentation, and runs the checks on each package.
pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let site = env.folder.join("documentation");
    let packages = copy_packages(&site)?;
    let scenario = Scenario::WEB.on("tap");
    let rig = Rig::build(&scenario)?;
    let folder = vec![site.display().to_string()];
    let (server, place) = rig.serve(
        env,
        "sandstorm",
        [folder, device_options(&scenario)].concat(),
    )?;
    let is_compressed = |line: &str| line.starts_with("compressed:") && !line.contains("to go");
    let done = interrupt::wait_for(COMPRESSION, || {
        Ok(server.output().lines().any(is_compressed).then_some(()))
    })?;
    done.context("the files are not compressed in time")?;
    for (name, files) in packages {
        let count = files.len();
        for coding in ["identity", "gzip", "br", "zstd"] {
            checks.check(format_args!("{count} files of {name}, {coding}"), || {
                fetch(&rig, &place, env, &site, &files, coding)
            });
        }
        checks.check(format_args!("links of {name}"), || {
            rig.as_client(|| follow_links(&place, &site, &files))?
        });
    }
    Ok(())
}

/// Copies the packages with most files. Returns the name and the paths of the files of each.
fn copy_packages(site: &Path) -> Result<Vec<(String, Vec<PathBuf>)>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(DOCUMENTATION).context(DOCUMENTATION)? {
        let (entry, mut files) = (entry?, Vec::new());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &mut files)?;
            packages.push((entry.file_name().to_string_lossy().into_owned(), files));
        }
    }
    packages.sort_by_key(|(name, files)| (std::cmp::Reverse(files.len()), name.clone()));
    packages.truncate(PACKAGES);
    for (_, files) in &mut packages {
        files.sort();
        files.truncate(FILES);
        for file in files {
            let path = file.strip_prefix(DOCUMENTATION)?.to_owned();
            shell::make_folder(site.join(&path).parent().context("no folder")?)?;
            fs::copy(&*file, site.join(&path)).with_context(|| path.display().to_string())?;
            *file = path;
        }
    }
    Ok(packages)
}

/// Lists the files in a folder that are neither hidden nor links.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        if name.to_str().is_none_or(|name| name.starts_with('.')) {
            continue;
        }
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Fetches files with curl, which decodes them, and compares them with those on disk.
fn fetch(
    rig: &Rig,
    place: &Place,
    env: &Env,
    site: &Path,
    files: &[PathBuf],
    coding: &str,
) -> Result<()> {
    let received = shell::scratch_in(&env.folder, "crawl")?;
    let mut config = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let (to, url) = (received.path().join(number.to_string()), encoded(file));
        let address = place.socket(place.v4);
        config.push(format!(
            "url=http://{address}{url}\noutput={}\n",
            to.display()
        ));
    }
    let list = received.path().join("config");
    shell::write(&list, config.concat())?;
    let mut curl = rig.client().command("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--fail",
        "--globoff",
        "--path-as-is",
        "--parallel",
    ]);
    curl.args(["--compressed", "--header"])
        .arg(format!("Accept-Encoding: {coding}"));
    shell::capture(curl.arg("--config").arg(list))?;
    for (number, file) in files.iter().enumerate() {
        let read = |path: PathBuf| fs::read(&path).with_context(|| path.display().to_string());
        let right = same(
            &read(received.path().join(number.to_string()))?,
            &read(site.join(file))?,
        );
        right.with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Returns the percent-encoded path of a file.
fn encoded(file: &Path) -> String {
    let encode = |byte: u8| match byte {
        b'/' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let path = file.as_os_str().as_encoded_bytes();
    ["/".to_owned()]
        .into_iter()
        .chain(path.iter().map(|byte| encode(*byte)))
        .collect()
}

/// Asks for the target of each relative link in the pages.
fn follow_links(place: &Place, site: &Path, files: &[PathBuf]) -> Result<()> {
    let mut targets = BTreeSet::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "html"))
    {
        let bytes = fs::read(site.join(file)).with_context(|| file.display().to_string())?;
        let page = String::from_utf8_lossy(&bytes);
        for rest in page.split("href=\"").skip(1) {
            let link = rest.split(['"', '#', '?']).next().unwrap_or_default();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_~".contains(&byte);
            if !link.starts_with('/') && link.bytes().all(is_plain) {
                let target = file.with_file_name(link);
                targets.extend(normalized(&target).map(|path| (path, link.ends_with('/'))));
            }
        }
    }
    let mut connection = Connection::open(place.socket(place.v4))?;
    for (path, has_slash) in targets {
        let (on_disk, slash) = (site.join(&path), if has_slash { "/" } else { "" });
        let url = format!("{}{slash}", encoded(&path));
        let expected = match on_disk.is_dir() {
            true if !on_disk.join("index.html").is_file() => 404,
            true if !has_slash => 301,
            false if has_slash || !on_disk.is_file() => 404,
            _ => 200,
        };
        let found = connection.request("GET", &url, "")?.status;
        ensure!(
            found == expected,
            "{url}: status {found} instead of {expected}"
        );
    }
    Ok(())
}

/// Resolves the dot segments of a path. Returns `None` if it leads out of the site or to a hidden file.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for part in path.to_str()?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            hidden if hidden.starts_with('.') => return None,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.iter().collect())
}
