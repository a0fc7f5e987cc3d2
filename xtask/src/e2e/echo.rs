//! ICMP echo, answered by the server in own mode and by the kernel otherwise.

use std::process::Command;

use super::checks::Checks;
use super::rig::Place;
use crate::shell;

/// Bytes of data in an echo request: little, and a whole packet of 1,500.
const SIZES: [(&str, [u16; 2]); 2] = [("small", [56, 56]), ("large", [1_472, 1_452])];

/// Everything that is checked of one server.
pub(crate) fn check(place: &Place, checks: &mut Checks) {
    // Where frames are lost, so may be ARP's, which asks again after 1 s.
    let tries: &[&str] = if place.loss {
        &["-c", "3", "-i", "0.1", "-w", "8"]
    } else {
        &["-c", "1", "-W", "1"]
    };
    for (name, sizes) in SIZES {
        for (address, size) in place.addresses().into_iter().zip(sizes) {
            checks.check(&format!("a {name} echo from {address}"), || {
                let mut ping = Command::new("ping");
                ping.args(["-n", "-q"]).args(tries);
                ping.args(["-M", "do", "-s", &size.to_string(), &address.to_string()]);
                shell::capture(&mut ping).map(|_| ())
            });
        }
    }
}
