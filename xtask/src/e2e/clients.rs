//! Programs that people use to fetch files: downloads that are resumed or split, load tools, a library,
//! and a cache in front of the server. Each gets every byte right, or its script fails.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::Env;
use super::checks::Checks;
use super::matrix::Scenario;
use super::peers::servers::is_installed;
use super::rig::{Place, Rig, device_options};
use super::web::body;
use crate::shell;

/// Length of the long file, in bytes.
const LONG: usize = 20_000_000;
/// Time limit of a script, in seconds.
const LIMIT: &str = "60";

/// What is done, the program, its Debian package, and a script of the shell. The script runs in an empty
/// folder. `$url` is the server's, at `$host` and `$port`, and `$site` is its folder.
const CLIENTS: [[&str; 4]; 7] = [
    [
        "curl resumes",
        "curl",
        "curl",
        "head -c 100000 $site/long.bin > long.bin
         curl -fsS -C - -o long.bin $url/long.bin
         cmp long.bin $site/long.bin",
    ],
    [
        "curl fetches in parallel",
        "curl",
        "curl",
        "curl -fsS --parallel --parallel-max 5 -o 'out#1' \"$url/long.bin?[1-5]\"
         for n in $(seq 5); do cmp out$n $site/long.bin; done",
    ],
    [
        "wget resumes, and mirrors",
        "wget",
        "wget",
        "head -c 100000 $site/long.bin > long.bin
         wget -q -c $url/long.bin
         cmp long.bin $site/long.bin
         wget -q -r -nH -P mirror $url/page.html
         cmp mirror/page.html $site/page.html
         cmp mirror/long.bin $site/long.bin",
    ],
    [
        "aria2 fetches 16 parts at once",
        "aria2c",
        "aria2",
        "aria2c -q -x 16 -s 16 -k 1M --no-conf $url/long.bin
         cmp long.bin $site/long.bin",
    ],
    [
        "ab",
        "ab",
        "apache2-utils",
        "ab -q -k -n 2000 -c 20 $url/page.html > out
         grep 'Complete requests: *2000$' out
         grep 'Failed requests: *0$' out",
    ],
    [
        "requests of Python",
        "python3",
        "python3-requests",
        "python3 -c 'import requests' || { echo skip; exit; }
         python3 -c 'if True:
            import requests, sys
            url, site = sys.argv[1:]
            with requests.Session() as session:
                for name in 3 * [\"page.html\", \"long.bin\"]:
                    reply = session.get(url + \"/\" + name)
                    assert reply.content == open(site + \"/\" + name, \"rb\").read()
                tag = {\"If-None-Match\": reply.headers[\"ETag\"]}
                assert session.get(url + \"/long.bin\", headers=tag).status_code == 304
         ' $url $site",
    ],
    [
        "a cache in front of the server",
        "varnishd",
        "varnish",
        "ip link set lo up
         varnishd -F -n \"$PWD/cache\" -a 127.0.0.1:6081 -b $host:$port -s malloc,64m > log 2>&1 &
         trap \"kill $!; wait || true\" EXIT
         cache=http://127.0.0.1:6081
         until curl -fs -o out $cache/page.html; do sleep 0.2; done
         for name in page.html long.bin page.html long.bin; do
             curl -fsS --compressed -o out $cache/$name
             cmp out $site/$name
         done
         curl -fsS -r 1000-1999 -o out $cache/long.bin
         tail -c +1001 $site/long.bin | head -c 1000 | cmp - out
         curl -fsS -D head -o out $cache/page.html
         grep -i '^X-Varnish: [0-9]* [0-9]' head
         tag=$(sed -n 's/^etag: *//ip' head | tr -d '\\r')
         test $(curl -sS -o out -w '%{http_code}' -H \"If-None-Match: $tag\" $cache/page.html) = 304",
    ],
];

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let site = env.folder.join("clients");
    shell::make_folder(&site)?;
    let page = "<a href=long.bin>a long file</a>\n".repeat(200);
    shell::write(&site.join("page.html"), page)?;
    shell::write(&site.join("long.bin"), body(LONG))?;
    let scenario = Scenario::WEB.on("tap");
    let rig = Rig::build(&scenario)?;
    let words = [vec![site.display().to_string()], device_options(&scenario)].concat();
    let (server, place) = rig.serve(env, "sandstorm", words)?;
    for [name, program, package, script] in CLIENTS {
        if is_installed(name, program, package) {
            checks.check(name, || run_script(&rig, &place, &site, script));
        }
    }
    checks.check("the server stops well", || server.stop_well().map(drop));
    std::fs::remove_dir_all(&site).context("removing the site")
}

fn run_script(rig: &Rig, place: &Place, site: &Path, script: &str) -> Result<()> {
    let folder = shell::scratch("client")?;
    let (host, port) = (place.v4.to_string(), place.port.to_string());
    let url = format!("http://{host}:{port}");
    let mut client = rig.client().command("timeout");
    client.args([LIMIT, "sh", "-euc", script]);
    client.current_dir(folder.path()).env("site", site);
    client.envs([("url", url), ("host", host), ("port", port)]);
    let output = shell::output(&mut client)?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "{}\n{text}", output.status);
    if text.contains("skip") {
        println!("skip {}", text.trim());
    }
    Ok(())
}
