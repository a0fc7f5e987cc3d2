//! The examples on UDP, served to clients of this host's kernel.

mod rig;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use rig::Example;

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends `data` to port 7 and gives what comes back.
fn ask(address: IpAddr, data: &[u8]) -> Vec<u8> {
    let own: IpAddr = if address.is_ipv4() {
        [0; 4].into()
    } else {
        [0; 16].into()
    };
    let socket = UdpSocket::bind((own, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect((address, 7)).unwrap();
    socket.send(data).unwrap();
    let mut received = [0; 2048];
    let len = socket.recv(&mut received).unwrap();
    received[..len].to_vec()
}

#[test]
fn udp_echo() {
    let example = Example::start(env!("CARGO_BIN_EXE_udp_echo"), &[]);
    for address in &example.addresses {
        for data in [&b""[..], b"x", b"hello", &[b'y'; 1452]] {
            let echo = example.beside(|| ask(*address, data));
            assert!(echo == data, "{} bytes to {address}", data.len());
        }
    }
    example.stop();
}

#[test]
fn reflect() {
    let example = Example::start(env!("CARGO_BIN_EXE_reflect"), &[]);
    let v4 = example.addresses.iter().find(|a| a.is_ipv4()).unwrap();
    for data in [&b"x"[..], b"hello", &[b'y'; 1472]] {
        assert!(example.beside(|| ask(*v4, data)) == data);
    }
    example.stop();
}
