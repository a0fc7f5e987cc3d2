//! Tests that `storm serve` follows links out of the folder if it may, also after its threads have
//! dropped their rights. Needs root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
const ZONE: &str = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
/// Maximum time until something has happened that the server does on its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program, and returns all that it wrote.
fn run(program: &str, arguments: &[&str]) -> String {
    let mut limited = Command::new("timeout");
    let output = limited.args(["20", program]).args(arguments).output();
    let output = output.unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn links_to_other_folders_are_followed_after_a_reload_too() {
    // The server may read what lies beside the site, so the targets are in folders of their own.
    let [folder, shared, elsewhere] = [(); 3].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    });
    let at = |path: &str| folder.path().join(path);
    let shared = |path: &str| shared.path().join(path);
    let elsewhere = |path: &str| elsewhere.path().join(path);
    for path in [
        at("site"),
        shared("pages"),
        shared("store"),
        elsewhere("pages"),
    ] {
        fs::create_dir(path).unwrap();
    }
    for (path, content) in [
        (at("site/index.html"), "home"),
        (shared("pages/page.html"), "old"),
        (elsewhere("pages/page.html"), "elsewhere"),
        (at("a.test.zone"), ZONE),
    ] {
        fs::write(path, content).unwrap();
    }
    // Too long for the memory of the site.
    let long = "0123456789".repeat(4 << 20);
    fs::write(shared("store/long.txt"), &long).unwrap();
    symlink(shared("pages"), at("site/shared")).unwrap();
    symlink(shared("store/long.txt"), at("site/long.txt")).unwrap();
    let text = |path: &str| at(path).to_str().unwrap().to_owned();
    let [site, zone, socket] = ["site", "a.test.zone", "socket"].map(text);
    let arguments = [
        "serve",
        "--web",
        &site,
        "--zone",
        &zone,
        "--control-socket",
        &socket,
        "--follow-links",
        "all",
        "--memory",
        "16MiB",
        "--sandbox",
        "auto",
    ];
    let storm = Server::start(STORM, &arguments);
    let address = storm.addresses[0];
    let get = |path: &str| run("curl", &["-sS", &format!("http://{address}{path}")]);
    storm.beside(|| {
        assert_eq!(get("/shared/page.html"), "old");
        assert!(get("/long.txt") == long, "the long file is whole");
    });
    // A file takes the place of another, as editors and deployments do it.
    fs::write(shared("pages/new"), "new").unwrap();
    fs::rename(shared("pages/new"), shared("pages/page.html")).unwrap();
    // A link to a folder that the server may not read yet.
    symlink(elsewhere("pages"), at("site/later")).unwrap();
    let said = run(STORM, &["reload", "--control-socket", &socket]);
    assert!(said.contains("left out, see the log: 1"), "{said}");
    storm.beside(|| {
        let start = Instant::now();
        while get("/shared/page.html") != "new" {
            assert!(start.elapsed() < TIMEOUT);
        }
        assert!(get("/long.txt") == long, "the long file is whole");
    });
    storm.stop();
}
