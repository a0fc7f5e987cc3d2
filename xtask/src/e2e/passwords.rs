//! A site that asks for passwords and redirects a host, with curl as the client. Sandbox, threads and
//! device are real.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::Env;
use super::checks::Checks;
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use crate::interrupt;
use crate::shell;

/// `ali` with the password `sesame`, hashed by bcrypt, and `eva` with `open`, hashed by Argon2.
const USERS: [&str; 2] = [
    "ali:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au\n",
    "eva:$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$Zq/h7KXSS0l/rFM6S/xcPB3Qw63v0GqAozNbiwuUuC4\n",
];
/// Time limit for a reload.
const RELOAD: Duration = Duration::from_secs(10);

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let folder = env.folder.join("passwords");
    let (site, users) = (folder.join("site"), folder.join("users"));
    shell::make_folder(&site.join("private"))?;
    shell::write(&site.join("index.html"), "open")?;
    shell::write(&site.join("private/index.html"), "private")?;
    shell::write(&users, USERS.concat())?;
    let scenario = Scenario::WEB.on("tap");
    let rig = Rig::build(&scenario)?;
    let words = [
        site.display().to_string(),
        "--basic-auth".into(),
        format!("/private={}", users.display()),
        "--redirect-host".into(),
        "www.storm.test=https://storm.test".into(),
    ];
    let words = [words.to_vec(), device_options(&scenario)].concat();
    let (server, place) = rig.serve(env, "sandstorm", words)?;
    let expect = |path: &str, options: &[&str], expected: &str| {
        let found = curl(&rig, &place, path, options)?;
        ensure!(found == expected, "{path} {options:?}: {found}");
        Ok(())
    };
    checks.check("only the right password opens a path", || {
        for path in ["/private/", "/private/none", "/%70rivate/"] {
            expect(path, &[], "401 ")?;
            expect(path, &["--user", "ali:wrong"], "401 ")?;
            expect(path, &["--user", "nobody:sesame"], "401 ")?;
        }
        expect("/", &[], "200 ")?;
        for user in ["ali:sesame", "eva:open"] {
            expect("/private/", &["--user", user], "200 ")?;
            expect("/private/none", &["--user", user], "404 ")?;
        }
        Ok(())
    });
    checks.check("a reload removes a user", || {
        shell::write(&users, USERS[0])?;
        server.signal(Signal::HUP)?;
        let is_gone = || {
            let found = curl(&rig, &place, "/private/", &["--user", "eva:open"])?;
            Ok((found == "401 ").then_some(()))
        };
        interrupt::wait_for(RELOAD, is_gone)?.context("the old user is still there")?;
        expect("/private/", &["--user", "ali:sesame"], "200 ")
    });
    checks.check("a host is redirected", || {
        let host = ["--header", "Host: www.storm.test"];
        expect("/a?b", &host, "301 https://storm.test/a?b")
    });
    checks.check("the server stops well", || server.stop_well().map(drop));
    fs::remove_dir_all(&folder).context("removing the site")
}

/// Fetches a path. Returns the status and the target of a redirect.
fn curl(rig: &Rig, place: &Place, path: &str, options: &[&str]) -> Result<String> {
    let url = format!("http://{}{path}", place.socket(place.v4));
    let mut curl = rig.client().command("curl");
    curl.args(["--silent", "--max-time", "10", "--output", "/dev/null"]);
    curl.args([
        "--write-out",
        "%{http_code} %{redirect_url}",
        "--path-as-is",
    ]);
    shell::capture_text(curl.args(options).arg(url))
}
