//! Tests the example `counter` with `curl` and plain TCP clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use testkit::rig::Server;

/// Maximum time to wait for an answer, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the output of `curl` with these arguments.
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
    let example = Server::start(env!("CARGO_BIN_EXE_counter"), &[path]);
    let mut count = 0;
    for url in ["http://{}:8080", "http://[{}]:8080"] {
        let address = example.addresses[usize::from(url.contains('['))].to_string();
        let url = url.replace("{}", &address);
        let counter = format!("{url}/counter");
        example.beside(|| {
            // Two requests on one connection and one on another connection all increase the same
            // counter.
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
            // Requests with a body are counted too. One of the bodies is chunked.
            count += 2;
            assert_eq!(curl(&["-d", "a=b", &counter]), format!("{}\n", count - 1));
            let chunked = ["-H", "Transfer-Encoding: chunked", "-d", "a=b", &counter];
            assert_eq!(curl(&chunked), format!("{count}\n"));
        });
    }
    example.stop();
}

/// Sends requests for `/counter` and `/` in turn. Returns the numbers in the answers to `/counter`.
fn count_and_read(mut stream: TcpStream, number: u64) -> Vec<u64> {
    const TIMES: usize = 10;
    let one = "GET /counter HTTP/1.1\r\nHost: storm.test\r\n\r\nGET / HTTP/1.1\r\nHost: storm.test\r\n\r\n";
    let requests = one.repeat(TIMES);
    // Send the requests in two parts, with a pause in between, and read the answers slowly.
    let (first, second) = requests.split_at(requests.len() / 3 + 1);
    stream.write_all(first.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(number));
    stream.write_all(second.as_bytes()).unwrap();
    let mut received = BufReader::with_capacity(1_000, stream);
    let mut counts = Vec::new();
    for at in 0..2 * TIMES {
        let (mut line, mut len, mut fields) = (String::new(), 0, 0);
        while line != "\r\n" {
            line.clear();
            received.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                len = value.trim().parse().unwrap();
            }
            fields += u32::from(line == "X-Powered-By: sand\r\n");
        }
        assert_eq!(fields, 1);
        let mut body = vec![0; len];
        for part in body.chunks_mut(4_000) {
            received.read_exact(part).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        if at % 2 == 0 {
            counts.push(String::from_utf8(body).unwrap().trim().parse().unwrap());
        } else {
            assert_eq!(body, PAGE.as_bytes().repeat(2_000));
        }
    }
    counts
}

const PAGE: &str = "a page\n";

#[test]
fn counter_under_200_clients() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), PAGE.repeat(2_000)).unwrap();
    let path = folder.path().to_str().unwrap();
    let arguments = [path, "--workers", "2", "--fault", "drop=0.01,seed=5"];
    let example = Server::start(env!("CARGO_BIN_EXE_counter"), &arguments);
    let address = (example.addresses[0], 8_080);
    let clients: Vec<_> = (0..200)
        .map(|number| {
            let connect = || TcpStream::connect_timeout(&address.into(), TIMEOUT);
            let stream = example.beside(|| connect().unwrap());
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.set_write_timeout(Some(TIMEOUT)).unwrap();
            std::thread::spawn(move || count_and_read(stream, number))
        })
        .collect();
    let counts: Vec<Vec<u64>> = clients.into_iter().map(|one| one.join().unwrap()).collect();
    // Each request for `/counter` was counted once, and the counts of each connection are in order.
    assert!(counts.iter().all(|counts| counts.is_sorted()));
    let mut all = counts.concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=2_000), "{} numbers", all.len());
    example.stop();
}
