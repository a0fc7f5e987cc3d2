//! The examples on Sandstorm, served to `curl`.

mod rig;

use std::process::Command;

use rig::Example;

/// What `curl` writes with these arguments.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-s", "-g", "--max-time", "10"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn counter() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "a page\n").unwrap();
    let path = folder.path().to_str().unwrap();
    let example = Example::start(env!("CARGO_BIN_EXE_counter"), &[path]);
    let mut count = 0;
    for url in ["http://{}:8080", "http://[{}]:8080"] {
        let address = example.addresses[usize::from(url.contains('['))].to_string();
        let url = url.replace("{}", &address);
        let counter = format!("{url}/counter");
        example.beside(|| {
            // On one connection, and on one of its own.
            let both = curl(&[&counter, &counter]);
            assert_eq!(both, format!("{}\n{}\n", count + 1, count + 2));
            count += 3;
            assert_eq!(curl(&[&counter]), format!("{count}\n"));
            for path in ["/", "/counter", "/none"] {
                let head = curl(&["-I", &format!("{url}{path}")]);
                assert!(head.contains("\r\nX-Powered-By: sand\r\n"), "{head}");
            }
            count += 1;
            assert_eq!(curl(&[&url]), "a page\n");
            let status = ["-o", "/dev/null", "-w", "%{http_code}"];
            let status = |more: &[&str]| curl(&[&status, more].concat());
            assert_eq!(status(&[&format!("{url}/none")]), "404");
            assert_eq!(status(&["-d", "a=b", &url]), "405");
            // A body, also one that curl sends in chunks.
            count += 2;
            assert_eq!(curl(&["-d", "a=b", &counter]), format!("{}\n", count - 1));
            let chunked = ["-H", "Transfer-Encoding: chunked", "-d", "a=b", &counter];
            assert_eq!(curl(&chunked), format!("{count}\n"));
        });
    }
    example.stop();
}
