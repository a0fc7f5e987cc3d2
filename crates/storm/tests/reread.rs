//! Changes the configuration file of a running `storm`, and reloads. Needs root.

#[path = "reread/sites.rs"]
mod sites;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use testkit::cli::run_briefly as run;
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
const ZONE: &str = "@ 60 SOA a a 1 1 1 1 1\n@ 60 NS a\na 60 A 192.0.2.1\n";

/// A file with the user `ali`.
const USERS: &str = "ali:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";

/// A folder that the server's user can read.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Adds a page, and a zone beside its folder.
fn add_content(at: &Path, name: &str) {
    fs::create_dir_all(at.join(name)).unwrap();
    fs::write(at.join(name).join("index.html"), name).unwrap();
    fs::write(at.join(format!("{name}.test.zone")), ZONE).unwrap();
}

/// A running server with a configuration file in a folder of its own.
struct Rig {
    content: TempDir,
    etc: TempDir,
    server: Server,
}

impl Rig {
    /// Starts a server. `@` in the configuration stands for the folder of the content, which also has a file
    /// with a user.
    fn start(config: &str) -> Self {
        let (content, etc) = (folder(), folder());
        for name in ["one", "two"] {
            add_content(content.path(), name);
        }
        fs::write(content.path().join("users"), USERS).unwrap();
        write(&etc, &content, config);
        let file = etc.path().join("storm.toml");
        let socket = etc.path().join("socket");
        let [file, socket] = [&file, &socket].map(|path| path.to_str().unwrap());
        let arguments = ["serve", "--config", file, "--control-socket", socket];
        let server = Server::start(STORM, &arguments);
        Self {
            content,
            etc,
            server,
        }
    }

    /// Replaces the file, as an editor does.
    fn write(&self, config: &str) {
        write(&self.etc, &self.content, config);
    }

    /// Reloads. `FILE` and `@` in the message stand for the configuration file and for the content.
    fn reload(&self, more: &[&str]) -> (bool, String) {
        let socket = self.etc.path().join("socket");
        let socket = ["reload", "--control-socket", socket.to_str().unwrap()];
        let (succeeded, said) = run(STORM, &[&socket, more].concat());
        let file = self.etc.path().join("storm.toml");
        let said = said.replace(file.to_str().unwrap(), "FILE");
        (
            succeeded,
            said.replace(self.content.path().to_str().unwrap(), "@"),
        )
    }

    /// Reloads, which must succeed, and returns what was said about a restart.
    fn reload_well(&self) -> Option<String> {
        let (succeeded, said) = self.reload(&[]);
        assert!(succeeded, "{said}");
        let at = said.find("; restart")?;
        Some(said[at + 2..].trim_end().to_owned())
    }

    /// Waits until a reload reads only what has changed. It always reads files that are younger.
    fn let_files_age(&self) {
        thread::sleep(Duration::from_millis(2_100));
        assert_eq!(self.reload_well(), None);
    }

    /// Returns the head and the body of the page.
    fn page(&self) -> String {
        self.page_of("none.test")
    }

    /// Returns the head and the body of the page of a host.
    fn page_of(&self, host: &str) -> String {
        let url = format!("http://{}/", self.server.addresses[0]);
        let field = format!("Host: {host}");
        let words = ["-sSi", "-H", &field, &url];
        self.server.beside(|| run("curl", &words)).1
    }

    /// Returns the metrics.
    fn metrics(&self) -> String {
        let socket = self.etc.path().join("socket");
        let socket = socket.to_str().unwrap();
        let url = "http://localhost/metrics";
        run("curl", &["-s", "--unix-socket", socket, url]).1
    }

    /// Returns how many reloads could not read the configuration file for this reason.
    fn unread(&self, why: &str) -> u64 {
        let metrics = self.metrics();
        let name = format!("storm_configuration_unread_total{{why=\"{why}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
        count.unwrap().parse().unwrap()
    }

    fn has_zone(&self, name: &str) -> bool {
        let server = format!("@{}", self.server.addresses[0]);
        let name = format!("a.{name}.test");
        let words = ["+time=2", "+tries=1", "+short", &server, &name];
        self.server.beside(|| run("dig", &words)).1 == "192.0.2.1\n"
    }
}

fn write(etc: &TempDir, content: &TempDir, config: &str) {
    let config = config.replace('@', content.path().to_str().unwrap());
    let [new, file] = ["new", "storm.toml"].map(|name| etc.path().join(name));
    fs::write(&new, config).unwrap();
    fs::rename(new, file).unwrap();
}

const START: &str = "\
[connections]
idle-timeout = \"30 s\"
max-connections = 1000
[[web]]
root = \"@/one\"
[[dns]]
zones = [\"@/one.test.zone\"]
";

#[test]
fn a_reload_applies_the_options_of_the_content() {
    let rig = Rig::start(START);
    assert!(rig.page().ends_with("\r\n\r\none") && !rig.has_zone("two"));
    let web = "root = \"@/two\"\nheaders = [\"/* X-New: yes\"]\n";
    let changed = START.replace("root = \"@/one\"\n", web);
    let zones = "zones = [\"@/two.test.zone\"]";
    rig.write(&changed.replace("zones = [\"@/one.test.zone\"]", zones));
    assert_eq!(rig.reload_well(), None);
    let page = rig.page();
    assert!(page.ends_with("\r\n\r\ntwo"), "{page}");
    assert!(page.contains("\r\nX-New: yes\r\n"), "{page}");
    assert!(rig.has_zone("two") && !rig.has_zone("one"));
    // Unchanged files get other fields, and a pattern names the zones.
    rig.let_files_age();
    let other = "media-types = [\"html=text/x-new\"]\nsecurity-headers = true\n";
    let changed = changed.replace("headers =", &format!("{other}headers ="));
    let zones = "zones-from = [\"@/*.zone\"]";
    rig.write(&changed.replace("zones = [\"@/one.test.zone\"]", zones));
    assert_eq!(rig.reload_well(), None);
    let page = rig.page();
    assert!(page.contains("\r\nContent-Type: text/x-new;"), "{page}");
    assert!(page.contains("\r\nX-Frame-Options: "), "{page}");
    assert!(rig.has_zone("two") && rig.has_zone("one"));
    rig.write(START);
    assert_eq!(rig.reload_well(), None);
    let page = rig.page();
    assert!(page.ends_with("one") && !page.contains("\r\nX-"), "{page}");
    assert!(rig.has_zone("one") && !rig.has_zone("two"));
    rig.server.stop();
}

#[test]
fn a_file_that_says_the_same_changes_nothing() {
    let rig = Rig::start(START);
    rig.let_files_age();
    let same = START.replace("30 s", "30s");
    rig.write(&format!("# More.\n[control]\nwatch = false\n{same}"));
    let (succeeded, said) = rig.reload(&[]);
    assert!(succeeded && !said.contains("restart"), "{said}");
    assert!(said.contains("; nothing has changed"), "{said}");
    assert!(said.contains("; 0 read again"), "{said}");
    rig.server.stop();
}

#[test]
fn a_reload_names_the_keys_that_need_a_restart() {
    let rig = Rig::start(START);
    let changed = START.replace("30 s", "1min").replace("max-c", "#max-c");
    let more = "[[web]]\nroot = \"@/two\"\nport = 8080\n[network]\nworkers = 2\n";
    rig.write(&(changed + more));
    let note = "restart the server to use what else has changed: max-connections (no longer in FILE), \
                idle-timeout (FILE:2:1), workers (FILE:12:1), a new [[web]] for @/two, root (FILE:9:1)";
    let (succeeded, said) = rig.reload(&["one.test"]);
    let unread = "FILE has changed, but this reload does not read options";
    assert!(succeeded && said.contains(unread), "{said}");
    let (succeeded, said) = rig.reload(&["none.test"]);
    let unknown = "\"none.test\" is no zone; the command zones lists them";
    assert!(!succeeded && said.contains(unknown), "{said}");
    for _ in 0..2 {
        assert_eq!(rig.reload_well().as_deref(), Some(note));
    }
    rig.write(START);
    assert_eq!(rig.reload_well(), None);
    // The site is another one on its new port.
    rig.write(&START.replace("@/one\"\n", "@/two\"\nport = 8080\n"));
    let note = rig.reload_well().unwrap();
    assert!(
        note.contains("root (FILE:5:1)") && note.contains("port (FILE:6:1)"),
        "{note}"
    );
    assert!(rig.page().ends_with("one"));
    rig.server.stop();
}

#[test]
fn a_file_that_the_server_may_not_read_does_not_hinder_a_reload() {
    let rig = Rig::start(START);
    fs::write(rig.content.path().join("one/index.html"), "new").unwrap();
    rig.write(&START.replace("@/one", "@/two"));
    let file = rig.etc.path().join("storm.toml");
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    let (succeeded, said) = rig.reload(&[]);
    let note = "FILE has changed, but the server may not read it; restart the server to use it; the \
                rest was reloaded in ";
    assert!(!succeeded && said.contains(note), "{said}");
    assert!(rig.page().ends_with("new"));
    assert_eq!(rig.unread("forbidden"), 1);
    rig.server.stop();
}

#[test]
fn a_file_in_a_folder_that_the_server_may_not_enter_is_named_by_each_reload() {
    let rig = Rig::start(START);
    fs::write(rig.content.path().join("one/index.html"), "new").unwrap();
    let set_mode = |mode| fs::set_permissions(rig.etc.path(), Permissions::from_mode(mode));
    set_mode(0o700).unwrap();
    for _ in 0..2 {
        let (succeeded, said) = rig.reload(&[]);
        let note =
            "the server may not look at FILE, so it may have changed; restart the server to use it";
        assert!(succeeded && said.contains(note), "{said}");
    }
    assert!(rig.page().ends_with("new"));
    assert_eq!(rig.unread("hidden"), 2);
    set_mode(0o755).unwrap();
    assert_eq!(rig.reload_well(), None);
    rig.server.stop();
}

#[test]
fn a_reload_fails_without_its_file_and_the_old_content_stays() {
    let rig = Rig::start(START);
    fs::write(rig.content.path().join("one/index.html"), "new").unwrap();
    let [file, kept] = ["storm.toml", "kept"].map(|name| rig.etc.path().join(name));
    fs::rename(&file, &kept).unwrap();
    let gone = "the configuration file FILE is gone: No such file or directory (os error 2); put it \
                back and reload again";
    let fails = |message: &str| {
        let (succeeded, said) = rig.reload(&[]);
        assert!(!succeeded && said.contains(message), "{said}");
    };
    fails(gone);
    let (succeeded, said) = rig.reload(&["one.test"]);
    let unread = "FILE is gone, but this reload does not read options";
    assert!(succeeded && said.contains(unread), "{said}");
    symlink("nowhere", &file).unwrap();
    fails(gone);
    assert_eq!(rig.unread("gone"), 2);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fails("cannot read FILE: it is a folder, not a file");
    fs::remove_dir(&file).unwrap();
    fs::write(&file, b"[web]\nr = \xff").unwrap();
    fails("FILE:2:5: this character is not UTF-8");
    fs::File::create(&file).unwrap().set_len(1 << 27).unwrap();
    fails("FILE has more than 64 MiB; shorten it");
    assert!(rig.page().ends_with("one"));
    fs::rename(&kept, &file).unwrap();
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().ends_with("new"));
    rig.server.stop();
}

#[test]
fn a_file_with_a_mistake_keeps_all_content() {
    let rig = Rig::start(START);
    fs::write(rig.content.path().join("one/index.html"), "new").unwrap();
    for (config, message) in [
        (
            START.replace("30 s", "30 x"),
            "FILE:2:16: idle-timeout is wrong",
        ),
        (
            START.replace("root", "rot"),
            "FILE:5:1: [[web]] has no key rot; did you mean root?",
        ),
        (
            START.replace("@/one\"\n", "@/none\"\n"),
            "FILE:5:8: there is no folder @/none",
        ),
        (
            START.replace(
                "one.test.zone\"]",
                "two.test.zone\"]\nzones-from = [\"@/*.no\"]",
            ),
            "FILE:8:15: no zone file matches @/*.no",
        ),
        (
            format!("{START}[[web]]\nroot = \"@/two\"\n"),
            "both have TCP port 80",
        ),
        (
            START.replace(
                "@/one\"\n",
                "@/one\"\nerror-pages = [\"404=/a\", \"404=/b\"]\n",
            ),
            "contradict each other",
        ),
    ] {
        rig.write(&config);
        // The file is read again until it is right.
        for _ in 0..2 {
            let (succeeded, said) = rig.reload(&[]);
            assert!(!succeeded && said.contains(message), "{said}");
            assert!(said.contains("not reloaded"), "{said}");
        }
        assert!(rig.page().ends_with("one") && !rig.has_zone("two"));
    }
    rig.write(START);
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().ends_with("new"));
    rig.server.stop();
}

#[test]
fn a_reload_may_bring_the_first_password_of_a_port() {
    let rig = Rig::start(START);
    let login = |user: &str| {
        let url = format!("http://{}/", rig.server.addresses[0]);
        rig.server
            .beside(|| run("curl", &["-sSi", "-u", user, &url]))
            .1
    };
    rig.write(&START.replace("@/one\"\n", "@/one\"\nbasic-auth = [\"/=@/users\"]\n"));
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().starts_with("HTTP/1.1 401 "));
    assert!(login("ali:wrong").starts_with("HTTP/1.1 401 "));
    let page = login("ali:sesame");
    assert!(page.ends_with("one"), "{page}");
    rig.write(START);
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().ends_with("one"));
    rig.server.stop();
}

#[test]
fn content_outside_the_folders_of_the_start_is_named_and_nothing_changes() {
    let rig = Rig::start(START);
    let outside = folder();
    add_content(outside.path(), "three");
    let at = outside.path().display();
    for (config, place) in [
        (
            START.replace("@/one\"", &format!("{at}/three\"")),
            format!("FILE:5:8: the server may not read {at}/three: "),
        ),
        (
            START
                .replace("@/one\"", "@/two\"")
                .replace("@/one.test", &format!("{at}/three.test")),
            format!("FILE:7:10: the server may not read {at}/three.test.zone: "),
        ),
    ] {
        rig.write(&config);
        let (succeeded, said) = rig.reload(&[]);
        assert!(!succeeded && said.contains(&place), "{said}");
        assert!(said.contains("restart it"), "{said}");
        assert!(rig.page().ends_with("one") && rig.has_zone("one"));
    }
    rig.server.stop();
}

#[test]
fn a_site_with_an_error_keeps_its_old_options_until_it_can_be_loaded() {
    let rig = Rig::start(START);
    fs::remove_file(rig.content.path().join("two/index.html")).unwrap();
    let changed = START.replace("@/one\"", "@/two\"");
    rig.write(&changed.replace("one.test.zone\"", "one.test.zone\", \"@/two.test.zone\""));
    let (succeeded, said) = rig.reload(&[]);
    assert!(!succeeded && said.contains("@/two"), "{said}");
    assert!(rig.page().ends_with("one") && rig.has_zone("two"));
    add_content(rig.content.path(), "two");
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().ends_with("two"));
    rig.server.stop();
}

#[test]
fn sites_are_known_by_their_port_and_their_hosts_or_folder() {
    let two = "[[web]]\nroot = \"@/two\"\nhosts = [\"two.test\"]\n";
    let rig = Rig::start(&format!("{two}{START}"));
    // The other order of the sites does not matter.
    let other = START.replace("@/one\"", "@/one\"\nheaders = [\"/* X-New: yes\"]");
    rig.write(&format!("{other}{two}"));
    assert_eq!(rig.reload_well(), None);
    let page = rig.page();
    assert!(page.ends_with("one") && page.contains("X-New"), "{page}");
    // A site gets a further host, and then the one for all others changes.
    assert!(rig.page_of("new.test").ends_with("one"));
    let hosts = two.replace("[\"two", "[\"new.test\", \"two");
    rig.write(&format!("{START}{hosts}"));
    let (succeeded, said) = rig.reload(&[]);
    assert!(succeeded && !said.contains("restart"), "{said}");
    assert!(said.contains("hosts have changed; "), "{said}");
    assert!(rig.page_of("new.test").ends_with("two"));
    assert!(rig.page().ends_with("one"));
    let hosts = START.replace("@/one\"", "@/one\"\nhosts = [\"one.test\"]");
    rig.write(&format!("{hosts}[[web]]\nroot = \"@/two\"\n"));
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().ends_with("two"));
    assert!(rig.page_of("one.test").ends_with("one"));
    rig.write(&hosts);
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page().starts_with("HTTP/1.1 421 "));
    assert!(rig.page_of("one.test").ends_with("one"));
    rig.server.stop();
}

#[test]
fn a_new_host_leads_to_a_site_only_if_its_new_rules_hold() {
    let zones = "[[dns]]\nzones = [\"@/one.test.zone\"]\n";
    let site = |hosts: &str, more: &str| {
        let one = format!("[[web]]\nroot = \"@/one\"\nhosts = [{hosts}]\n{more}");
        format!("{one}[[web]]\nroot = \"@/two\"\n{zones}")
    };
    let rig = Rig::start(&site("\"in.test\"", ""));
    let more = "strict = true\nredirects = [\"/a /nowhere 200\"]\n";
    rig.write(&site("\"in.test\", \"out.test\"", more));
    let (succeeded, said) = rig.reload(&[]);
    assert!(!succeeded && said.contains("/nowhere"), "{said}");
    assert!(rig.page_of("in.test").ends_with("one") && rig.page_of("out.test").ends_with("two"));
    fs::write(rig.content.path().join("one/nowhere"), "").unwrap();
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page_of("out.test").ends_with("one"));
    // The first site is gone, and its host leads to the other one.
    let two = "[[web]]\nroot = \"@/two\"\nhosts = [\"two.test\", \"in.test\"]\n";
    rig.write(&format!("{two}{zones}"));
    assert_eq!(rig.reload_well(), None);
    assert!(rig.page_of("in.test").ends_with("two"));
    rig.server.stop();
}

#[test]
fn options_that_failed_are_forgotten_with_their_site() {
    let rig = Rig::start(START);
    let more = "@/one\"\nstrict = true\nredirects = [\"/a /b 200\"]\nheaders = [\"/* X-New: yes\"]";
    rig.write(&START.replace("@/one\"", more));
    let (succeeded, said) = rig.reload(&[]);
    assert!(!succeeded && said.contains("/b"), "{said}");
    fs::write(rig.content.path().join("one/b"), "").unwrap();
    // A reload of this site alone uses the options that it has.
    let (succeeded, said) = rig.reload(&["@/one"
        .replace('@', rig.content.path().to_str().unwrap())
        .as_str()]);
    assert!(succeeded, "{said}");
    assert!(!rig.page().contains("X-New"));
    rig.write(&START.replace("@/one\"", "@/one\"\nport = 8080"));
    let note = rig.reload_well().unwrap();
    assert!(note.contains("port (FILE:6:1)"), "{note}");
    assert!(!rig.page().contains("X-New"));
    rig.server.stop();
}

#[test]
fn a_mistake_in_a_new_zone_file_keeps_the_zone_on_the_air() {
    let rig = Rig::start(START);
    let path = |name: &str| rig.content.path().join(name);
    let named = |zone: &str| rig.write(&START.replace("@/one.test.zone", zone));
    // A file that cannot be opened changes nothing.
    for (zone, place) in [
        ("one.test=@/nofile", "FILE:7:10: the zone file @/nofile "),
        ("@/one.test", "FILE:7:10: the zone file @/one.test "),
        ("one.test=@/two", "FILE:7:10: the zone file @/two "),
    ] {
        named(&format!("{zone}\", \"@/two.test.zone"));
        let (succeeded, said) = rig.reload(&[]);
        assert!(!succeeded && said.contains(place), "{said}");
        assert!(said.contains("not reloaded"), "{said}");
        assert!(rig.has_zone("one") && !rig.has_zone("two"));
    }
    // A file with an error concerns only its zone.
    fs::write(path("new"), format!("{ZONE}b 60 A nonsense\n")).unwrap();
    named("one.test=@/new\", \"@/two.test.zone");
    for only in [&[][..], &[], &["one.test"]] {
        let (succeeded, said) = rig.reload(only);
        assert!(!succeeded && said.contains("@/new:4:8: "), "{said}");
        assert!(!said.contains("removed"), "{said}");
        assert!(rig.has_zone("one") && rig.has_zone("two"));
    }
    let mended = ZONE.replace("192.0.2.1\n", "192.0.2.9\n");
    fs::write(path("new"), mended).unwrap();
    let (succeeded, said) = rig.reload(&["one.test"]);
    assert!(succeeded && !rig.has_zone("one"), "{said}");
    named("@/one.test.zone");
    assert_eq!(rig.reload_well(), None);
    assert!(rig.has_zone("one") && !rig.has_zone("two"));
    rig.server.stop();
}
