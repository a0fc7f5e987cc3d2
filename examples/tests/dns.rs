//! Tests the DNS examples with `dig`, which uses this host's kernel.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::Duration;
use testkit::rig::Server;

/// Returns the output of `dig` with these arguments.
fn dig(example: &Server, arguments: &[&str]) -> String {
    let server = format!("@{}", example.addresses[0]);
    let output = example.beside(|| {
        let mut dig = Command::new("dig");
        dig.args([&server, "+norecurse", "+tries=1", "+time=5"]);
        dig.args(arguments).output()
    });
    let output = output.expect("dig is installed: cargo xtask setup");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn clock_name() {
    let example = Server::start(env!("CARGO_BIN_EXE_clock_name"), &[]);
    let text = |how: &str| dig(&example, &["+short", how, "clock.test", "TXT"]);
    let seconds = |how: &str| -> u64 {
        let text = text(how);
        let words = text.trim().trim_matches('"').split_once(' ').unwrap();
        assert_eq!(words.1, "s since 1970", "{text}");
        words.0.parse().unwrap()
    };
    // Queries over UDP and TCP return the current time. They are more than a second apart, so all
    // times differ.
    let mut seen = BTreeSet::new();
    for how in ["+notcp", "+tcp", "+notcp", "+tcp"] {
        seen.insert(seconds(how));
        thread::sleep(Duration::from_millis(1_010));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.last().unwrap() - seen.first().unwrap() < 60);

    for how in ["+notcp", "+tcp"] {
        let other = dig(&example, &[how, "clock.test", "A"]);
        assert!(
            other.contains("status: NOERROR") && other.contains("ANSWER: 0"),
            "{other}"
        );
        assert!(other.contains("test.\t\t\t60\tIN\tSOA"), "{other}");
        let zone = dig(&example, &["+short", how, "ns.test", "A"]);
        assert_eq!(zone, "192.0.2.53\n");
        let missing = dig(&example, &[how, "x.clock.test", "TXT"]);
        assert!(missing.contains("status: NXDOMAIN"), "{missing}");
    }
    example.stop();
}
