//! Tests what `storm serve` tells a service manager, from threads in the sandbox. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use testkit::rig::Server;

/// Maximum time to wait for a message, after which the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the next message that does not only feed the watchdog or extend the limit for the start.
fn next(manager: &UnixDatagram) -> String {
    loop {
        let message = any(manager);
        if message != "WATCHDOG=1" && !message.starts_with("EXTEND_TIMEOUT_USEC=") {
            return message;
        }
    }
}

fn any(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 2_000];
    let received = manager.recv(&mut bytes).expect("a message");
    String::from_utf8(bytes[..received].to_vec()).unwrap()
}

#[test]
fn a_service_manager_hears_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (www, zone, socket) = (path("www"), path("storm.test.zone"), path("notify"));
    fs::create_dir(&www).unwrap();
    fs::write(path("www/index.html"), "a page").unwrap();
    fs::write(&zone, "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\n").unwrap();
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let variable = format!("NOTIFY_SOCKET={socket}");
    let program = env!("CARGO_BIN_EXE_storm");
    let mut arguments = vec![&*variable, "WATCHDOG_USEC=400000", program];
    arguments.extend(["serve", "--web", &www, "--zone", &zone]);
    let mut storm = Server::start("env", &arguments);
    assert_eq!(next(&manager), "STATUS=loading the content");
    let ready = next(&manager);
    let status = ready.strip_prefix("READY=1\n").expect(&ready).to_owned();
    let address = storm.addresses[0].to_string();
    assert!(
        status.starts_with("STATUS=serving ") && status.contains(&address),
        "{status}"
    );
    while any(&manager) != "WATCHDOG=1" {}
    storm.hang_up_until("reloaded:");
    let begun = next(&manager);
    assert!(begun.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{begun}");
    assert_eq!(next(&manager), ready);
    fs::remove_dir_all(&www).unwrap();
    fs::write(&zone, "an error\n").unwrap();
    storm.hang_up();
    assert!(next(&manager).starts_with("RELOADING=1\n"));
    let failed = next(&manager);
    let expected = format!("{ready}; not reloaded: ");
    assert!(failed.starts_with(&expected), "{failed}");
    while any(&manager) != "WATCHDOG=1" {}
    storm.stop();
    assert_eq!(next(&manager), "STOPPING=1\nSTATUS=stopping");
}
