//! The examples on UDP, served to clients of this host's kernel.

mod rig;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use rig::Example;

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the link takes in one packet, less the largest headers.
const MOST: usize = 1500 - 48;

fn socket(server: IpAddr) -> UdpSocket {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect((server, 7)).unwrap();
    socket
}

/// Everything that is sent comes back as it was.
fn echoes(program: &str) {
    let example = Example::start(program, &[]);
    for address in &example.addresses {
        example.beside(|| {
            let socket = socket(*address);
            let mut received = [0; 2048];
            for len in [1, 2, 17, 512, MOST - 1, MOST] {
                let sent: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                socket.send(&sent).unwrap();
                let count = socket.recv(&mut received).unwrap();
                assert!(received[..count] == sent, "{len} bytes came back changed");
            }
            // Many at once, in their order.
            for number in 0..100u8 {
                socket.send(&[number]).unwrap();
            }
            for number in 0..100 {
                assert_eq!(socket.recv(&mut received).unwrap(), 1);
                assert_eq!(received[0], number);
            }
        });
    }
    example.stop();
}

#[test]
fn udp_echo() {
    echoes(env!("CARGO_BIN_EXE_udp_echo"));
}

#[test]
fn reflect() {
    echoes(env!("CARGO_BIN_EXE_reflect"));
}
