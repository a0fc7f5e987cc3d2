//! Tests the TCP examples with clients that use this host's kernel.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::rig::Server;

/// Maximum time to wait for an example, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);

fn connect(address: IpAddr, port: u16) -> TcpStream {
    let stream = TcpStream::connect_timeout(&(address, port).into(), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends `pieces` one by one, closes the sending side, and returns everything that the server
/// sends.
fn talk(mut stream: TcpStream, pieces: &[&[u8]]) -> Vec<u8> {
    for piece in pieces {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    received
}

#[test]
fn tcp_line_echo() {
    let example = Server::start(env!("CARGO_BIN_EXE_tcp_line_echo"), &[]);
    for address in &example.addresses {
        let talk = |pieces: &[&[u8]]| example.beside(|| talk(connect(*address, 7), pieces));
        assert_eq!(talk(&[b"hello\nstorm\n"]), b"hello\nstorm\n");
        // An incomplete line is not echoed.
        assert_eq!(talk(&[b"hel", b"lo\nst", b"orm"]), b"hello\n");
        assert_eq!(talk(&[&[b'x'; 4_096]]), b"");
        let lines = b"a line of some length that is sent very often\n".repeat(1_000);
        assert!(talk(&[&lines]) == lines, "the echo differs");
    }
    // The client waits for the echo of each line before it sends the next line.
    example.beside(|| {
        let mut stream = connect(example.addresses[0], 7);
        for line in [&b"one\n"[..], b"two\n", b"\n"] {
            stream.write_all(line).unwrap();
            let mut received = vec![0; line.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, line);
        }
    });
    example.stop();
}

#[test]
fn an_idle_connection_ends_after_the_time_of_the_option() {
    let example = Server::start(
        env!("CARGO_BIN_EXE_tcp_line_echo"),
        &["--idle-timeout", "1"],
    );
    example.beside(|| {
        let start = Instant::now();
        let mut stream = connect(example.addresses[0], 7);
        // The server closes the connection, or resets it.
        let _ = stream.read(&mut [0]);
        let elapsed = start.elapsed();
        assert!(
            elapsed >= Duration::from_millis(900) && elapsed < TIMEOUT,
            "{elapsed:?}"
        );
    });
    example.stop();
}

#[test]
fn bare() {
    let example = Server::start(env!("CARGO_BIN_EXE_bare"), &[]);
    for address in &example.addresses {
        let talk = |pieces: &[&[u8]]| example.beside(|| talk(connect(*address, 7), pieces));
        assert_eq!(talk(&[b"hello\n"]), b"hello\n");
        let bytes = b"more than fits the receive buffer".repeat(10_000);
        assert!(talk(&[&bytes]) == bytes, "the echo differs");
    }
}

/// Runs `curl` with `arguments`, and passes its output to `read`. Panics if `curl` fails, for
/// example because the server sends nothing for 10 s.
fn curl<R>(arguments: &[&str], read: impl FnOnce(ChildStdout) -> R) -> R {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-g", "--connect-timeout", "10"]);
    curl.args(["--speed-limit", "1", "--speed-time", "10"]);
    curl.args(arguments);
    let mut child = curl.stdout(Stdio::piped()).spawn().unwrap();
    let result = read(child.stdout.take().unwrap());
    assert!(child.wait().unwrap().success());
    result
}

#[test]
fn large_body() {
    const PIECE: usize = 1_000_003;
    const SIZE: usize = 5 << 30;
    let piece: Vec<u8> = (0..PIECE)
        .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
        .collect();
    let example = Server::start(env!("CARGO_BIN_EXE_large_body"), &[]);
    let url = format!("http://{}:8080/", example.addresses[0]);
    example.beside(|| {
        curl(&[&url], |mut body| {
            let (mut bytes, mut left) = (vec![0; PIECE], SIZE);
            while left > 0 {
                let part = &mut bytes[..PIECE.min(left)];
                body.read_exact(part).unwrap();
                assert!(
                    part == &piece[..part.len()],
                    "wrong bytes, {left} bytes before the end"
                );
                left -= part.len();
            }
            assert_eq!(body.read(&mut bytes).unwrap(), 0);
        });
    });
    let url = format!("http://[{}]:8080/", example.addresses[1]);
    for (first, last) in [
        (0, 0),
        (999_990, 3_000_100),
        ((1 << 32) - 7, (1 << 32) + 2_000_000),
        (SIZE - 5, SIZE - 1),
    ] {
        let expected: Vec<u8> = (first..=last).map(|at| piece[at % PIECE]).collect();
        let range = format!("{first}-{last}");
        let got = example.beside(|| {
            curl(&["-r", &range, &url], |mut body| {
                let mut bytes = Vec::new();
                body.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        assert!(got == expected, "{range}: {} bytes", got.len());
    }
    example.stop();
}

#[test]
fn kv_get() {
    let long = "v".repeat(5_000);
    let pairs = ["sand=yellow", "storm=", &*format!("long={long}")];
    let example = Server::start(env!("CARGO_BIN_EXE_kv_get"), &pairs);
    for address in &example.addresses {
        let ask = |bytes: &[u8]| {
            let answer = example.beside(|| talk(connect(*address, 7_000), &[bytes]));
            String::from_utf8(answer).unwrap()
        };
        assert_eq!(ask(b"GET sand\nGET storm\n"), "VALUE yellow\nVALUE \n");
        assert_eq!(ask(b"GET snow\nGET sand\n"), "NOT FOUND\nVALUE yellow\n");
        assert_eq!(ask(b"GET long\n"), format!("VALUE {long}\n"));
        assert_eq!(ask(b"GET sand"), "");
        assert_eq!(
            ask(b"GET sand\nPUT sand\nGET sand\n"),
            "VALUE yellow\nERROR\n"
        );
        assert_eq!(ask(&[b'x'; 1_024]), "ERROR\n");
        assert_eq!(
            ask(&b"GET sand\n".repeat(1_000)),
            "VALUE yellow\n".repeat(1_000)
        );
    }
    example.stop();
}

#[test]
fn later() {
    let example = Server::start(env!("CARGO_BIN_EXE_later"), &[]);
    for address in &example.addresses {
        example.beside(|| {
            let ask = |lines: &[u8]| talk(connect(*address, 7_001), &[lines]);
            // Several lines sent together are answered in order.
            assert_eq!(ask(b"sand\nstorm\nname\n"), b"SAND\nSTORM\nNAME\n");
            // An incomplete line is not a request.
            assert_eq!(ask(b"sand\nsto"), b"SAND\n");
            // Clients that disconnect before their answer must not disturb other clients.
            for _ in 0..20 {
                connect(*address, 7_001).write_all(b"gone\n").unwrap();
            }
            assert_eq!(ask(b"still here\n"), b"STILL HERE\n");
        });
        let clients: Vec<_> = (0..16)
            .map(|number| {
                let address = *address;
                let stream = example.beside(|| connect(address, 7_001));
                std::thread::spawn(move || {
                    let line = format!("client {number}\n").repeat(5);
                    let answer = talk(stream, &[line.as_bytes()]);
                    assert_eq!(answer, line.to_uppercase().as_bytes());
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    }
    example.stop();
}

#[test]
fn later_answers_busy_when_its_thread_has_too_much_to_do() {
    let example = Server::start(env!("CARGO_BIN_EXE_later"), &[]);
    let address = example.addresses[0];
    let answers = example.beside(|| {
        let mut clients: Vec<_> = (0..1_200).map(|_| connect(address, 7_001)).collect();
        for client in &mut clients {
            client.write_all(b"line\n").unwrap();
        }
        let answer = |mut client: TcpStream| {
            let mut answer = [0; 5];
            client.read_exact(&mut answer).unwrap();
            answer
        };
        clients.into_iter().map(answer).collect::<Vec<_>>()
    });
    let of = |text: &[u8]| answers.iter().filter(|answer| *answer == text).count();
    let (answered, busy) = (of(b"LINE\n"), of(b"BUSY\n"));
    assert_eq!(answered + busy, 1_200);
    assert!(
        answered >= 1_024 && busy > 0,
        "{answered} answered, {busy} busy"
    );
    example.stop();
}

/// Runs a memcached client. Returns its output if it succeeds.
fn memc(tool: &str, address: IpAddr, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("timeout");
    command
        .args(["10", tool])
        .arg(format!("--servers={address}:11211"))
        .args(arguments);
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{tool}: no answer in 10 s");
    output.status.success().then_some(output.stdout)
}

#[test]
fn memcached() {
    let example = Server::start(env!("CARGO_BIN_EXE_memcached"), &["--workers", "2"]);
    let address = example.addresses[0];
    let folder = tempfile::tempdir().unwrap();
    example.beside(|| {
        // `memccp`, `memccat` and `memcrm` belong to the client library libmemcached. `memccp` uses
        // the file's name as the key.
        for (key, len) in [("empty", 0), ("small", 7), ("large", 1 << 20)] {
            let path = folder.path().join(key);
            let value: Vec<u8> = (0..len).map(|at: usize| (at % 251) as u8).collect();
            std::fs::write(&path, &value).unwrap();
            let path = path.to_str().unwrap();
            assert!(memc("memccp", address, &[path]).is_some());
            let got = memc("memccat", address, &[key]).unwrap();
            assert!(
                got.strip_suffix(b"\n") == Some(&value[..]),
                "{key}: {}",
                got.len()
            );
            assert!(memc("memcrm", address, &[key]).is_some());
            assert!(memc("memccat", address, &[key]).is_none());
        }
    });
    let talk = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        let answer = example.beside(|| talk(connect(address, 11_211), &[&bytes]));
        String::from_utf8(answer).unwrap()
    };
    // The answers must not depend on which worker serves the connection and which keeps the key.
    for number in 0..20 {
        let request = format!(
            "get k{number}\r\nset k{number} 5 0 3\r\nabc\r\nget k{number}\r\n\
             set k{number} 6 0 0\r\n\r\nget k{number}\r\n"
        );
        let expected = format!(
            "END\r\nSTORED\r\nVALUE k{number} 5 3\r\nabc\r\nEND\r\nSTORED\r\n\
             VALUE k{number} 6 0\r\n\r\nEND\r\n"
        );
        assert_eq!(talk(request.as_bytes()), expected);
        let (get, found) = (
            format!("get k{number}\r\n"),
            format!("VALUE k{number} 6 0\r\n\r\nEND\r\n"),
        );
        assert_eq!(talk(get.as_bytes()), found);
        let delete = format!("delete k{number}\r\ndelete k{number}\r\n{get}");
        assert_eq!(talk(delete.as_bytes()), "DELETED\r\nNOT_FOUND\r\nEND\r\n");
    }
    for (request, answer) in [
        (&b"nonsense\r\nget k\r\n"[..], "ERROR\r\nEND\r\n"),
        (b"set k x 0 1\r\na\r\n", "ERROR\r\n"),
        (&[b'x'; 1_024], "ERROR\r\n"),
        (b"set k 0 0 3\r\nabcde", "CLIENT_ERROR bad data chunk\r\n"),
        (b"get a b\r\n", "ERROR\r\n"),
        (b"get", ""),
    ] {
        assert_eq!(talk(request), answer);
    }
    example.stop();
}

#[test]
fn memcached_under_200_clients() {
    let example = Server::start(
        env!("CARGO_BIN_EXE_memcached"),
        &["--workers", "2", "--fault", "drop=0.01,seed=7"],
    );
    let address = example.addresses[0];
    let clients: Vec<_> = (0..200)
        .map(|number| {
            let mut stream = example.beside(|| connect(address, 11_211));
            std::thread::spawn(move || {
                let value = vec![b'a' + (number % 26) as u8; 1 + 97 * number];
                let mut request = format!("set k{number} 0 0 {}\r\n", value.len()).into_bytes();
                request.extend(&value);
                request.extend(b"\r\n");
                let mut expected = b"STORED\r\n".to_vec();
                for _ in 0..20 {
                    request.extend(format!("get k{number}\r\n").as_bytes());
                    let head = format!("VALUE k{number} 0 {}\r\n", value.len());
                    expected.extend([head.as_bytes(), &value, b"\r\nEND\r\n"].concat());
                }
                // Send the requests in two parts, with a pause in between, and read the answers
                // slowly.
                let (first, second) = request.split_at(request.len() / 2);
                stream.write_all(first).unwrap();
                std::thread::sleep(Duration::from_millis(number as u64));
                stream.write_all(second).unwrap();
                let mut got = vec![0; expected.len()];
                for part in got.chunks_mut(20_000) {
                    stream.read_exact(part).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(got == expected, "{number}");
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    example.stop();
}

#[test]
fn events_for_a_thousand_clients() {
    let example = Server::start(env!("CARGO_BIN_EXE_events"), &[]);
    let url = format!("http://{}:8081/", example.addresses[0]);
    example.beside(|| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-N", "--max-time", "10", &url]);
        curl.stdout(Stdio::piped());
        let mut curl = curl.spawn().unwrap();
        let mut first = [0; 22];
        curl.stdout.take().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"id: 1\ndata: tick 1\n\nid");
        curl.kill().unwrap();
        curl.wait().unwrap();
        let mut clients: Vec<_> = (0..1_000)
            .map(|_| {
                let mut stream = connect(example.addresses[0], 8_081);
                stream
                    .write_all(b"GET / HTTP/1.1\r\nHost: storm.test\r\n\r\n")
                    .unwrap();
                stream
            })
            .collect();
        let events: Vec<Vec<String>> = clients
            .iter_mut()
            .map(|stream| {
                let lines = std::io::BufReader::new(stream).lines();
                let lines = lines.map(Result::unwrap);
                lines
                    .filter(|line| line.starts_with("data: "))
                    .take(3)
                    .collect()
            })
            .collect();
        // The first three events of each client have consecutive numbers.
        for events in &events {
            let numbers: Vec<u64> = events
                .iter()
                .map(|line| line.strip_prefix("data: tick ").unwrap().parse().unwrap())
                .collect();
            assert_eq!(numbers, [numbers[0], numbers[0] + 1, numbers[0] + 2]);
        }
    });
    example.stop();
}
