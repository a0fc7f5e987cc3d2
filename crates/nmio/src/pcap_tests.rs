//! Tests of what the port records and when it writes the file, of the file's format (also with
//! tshark), and of errors.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;
use crate::sim::{self, EndConfig, LinkConfig, SimPort};

/// A temporary file for one test, which is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("nmio-{}-{name}.pcap", std::process::id());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn link(tx_ring: usize) -> (SimPort, SimPort) {
    let config = LinkConfig {
        a: EndConfig {
            tx_ring,
            ..EndConfig::default()
        },
        ..LinkConfig::default()
    };
    let (a, b, _) = sim::link(&config, 0);
    (a, b)
}

fn send<P: Port>(port: &mut P, packet: &[u8]) -> Result<(), SendError> {
    let mut frame = port.pool().take().unwrap();
    frame.set_len(packet.len());
    frame.copy_from_slice(packet);
    port.send(frame)
}

/// Parses a file's records. For each, returns the time stamp in seconds and nanoseconds, and the
/// frame's bytes.
fn records(file: &[u8]) -> Vec<((u32, u32), Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let mut records = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let len = word(at + 8);
        assert_eq!(len, word(at + 12), "the frame is captured whole");
        let end = at + 16 + len as usize;
        records.push(((word(at), word(at + 4)), file[at + 16..end].to_vec()));
        at = end;
    }
    records
}

/// Builds an Ethernet frame of 60 bytes with an experimental `EtherType`.
fn ethernet(last: u8) -> Vec<u8> {
    let mut packet = vec![0x02; 60];
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet[59] = last;
    packet
}

#[test]
fn the_file_header_has_the_pcap_format() {
    assert_eq!(
        file_header(),
        [
            0x4d, 0x3c, 0xb2, 0xa1, // nanoseconds, little-endian
            2, 0, 4, 0, // version 2.4
            0, 0, 0, 0, 0, 0, 0, 0, // reserved
            0, 0, 4, 0, // 262144
            1, 0, 0, 0, // Ethernet
        ]
    );
}

#[test]
fn a_record_header_has_nanoseconds_and_both_lengths() {
    let at = UNIX_EPOCH + Duration::new(0x6542_1234, 999_999_999);
    assert_eq!(
        record_header(at, 60),
        [
            0x34, 0x12, 0x42, 0x65, 0xff, 0xc9, 0x9a, 0x3b, 60, 0, 0, 0, 60, 0, 0, 0
        ]
    );
}

#[test]
fn only_the_owner_may_read_a_new_file() {
    let scratch = Scratch::new("owner");
    Pcap::new(link(2).0, Some(&scratch.0)).unwrap();
    let mode = std::fs::metadata(&scratch.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn accepted_frames_are_recorded_and_refused_ones_are_not() {
    let scratch = Scratch::new("passes");
    let (a, b) = link(2);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    let mut b = Pcap::new(b, None).unwrap();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();

    let mut resident = a.pool().make_resident(b"resident").unwrap();
    a.send_resident(resident.idle().unwrap()).unwrap();
    assert!(resident.in_flight(), "forwarded");
    send(&mut a, b"frame").unwrap();
    assert_eq!(send(&mut a, b"refused"), Err(SendError::RingFull));
    a.flush().unwrap();
    send(&mut b, b"answer").unwrap();
    b.flush().unwrap();
    let mut batch = Batch::new();
    a.receive(&mut batch, 8).unwrap();
    assert_eq!(batch.len(), 1);

    let summary = a.finish().unwrap();
    assert_eq!((summary.packets, summary.stopped.clone()), (3, None));
    assert_eq!(b.finish(), None);
    let file = std::fs::read(&scratch.0).unwrap();
    assert_eq!(summary.bytes, file.len() as u64);
    assert_eq!(file[..24], file_header());
    let records = records(&file);
    let packets: Vec<&[u8]> = records.iter().map(|(_, packet)| &packet[..]).collect();
    assert_eq!(packets, [&b"resident"[..], b"frame", b"answer"]);
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for ((secs, nanos), _) in records {
        let at = Duration::new(u64::from(secs), nanos);
        assert!((before..=after).contains(&at));
    }
}

#[test]
fn the_file_is_written_at_a_wait_and_at_the_end() {
    let scratch = Scratch::new("written");
    let length = || std::fs::metadata(&scratch.0).unwrap().len();
    let (a, _b) = link(8);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    send(&mut a, &[0; 10]).unwrap();
    assert_eq!(length(), 24, "the record is buffered");
    a.wait(Duration::ZERO, None).unwrap();
    assert_eq!(length(), 24 + 26);
    send(&mut a, &[0; 10]).unwrap();
    drop(a);
    assert_eq!(length(), 24 + 2 * 26);
}

#[test]
fn a_spinning_loop_writes_the_file_too() {
    let scratch = Scratch::new("spinning");
    let (a, _b) = link(8);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    send(&mut a, &[0; 10]).unwrap();
    a.flush().unwrap();
    assert_eq!(std::fs::metadata(&scratch.0).unwrap().len(), 24);
    let recorder = a.recorder.as_mut().unwrap();
    recorder.written = recorder.written.checked_sub(WRITE_INTERVAL).unwrap();
    a.flush().unwrap();
    assert_eq!(std::fs::metadata(&scratch.0).unwrap().len(), 24 + 26);
}

#[test]
fn the_error_names_a_file_that_cannot_be_created() {
    let (a, _b) = link(8);
    let path = Path::new("/nonexistent/folder/x.pcap");
    let error = Pcap::new(a, Some(path)).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot write the capture file /nonexistent/folder/x.pcap: "),
        "{error}"
    );
}

#[test]
fn a_full_disk_stops_the_recording_but_not_the_port() {
    let scratch = Scratch::new("full");
    let (a, mut b) = link(8);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    a.recorder.as_mut().unwrap().file = Some(BufWriter::new(full));
    send(&mut a, b"first").unwrap();
    a.wait(Duration::ZERO, None).unwrap();
    send(&mut a, b"second").unwrap();
    a.flush().unwrap();
    let mut batch = Batch::new();
    b.receive(&mut batch, 8).unwrap();
    assert_eq!(batch.len(), 2);
    let summary = a.finish().unwrap();
    assert!(summary.stopped.unwrap().contains("No space left"));
    assert_eq!(summary.packets, 1);
}

#[test]
fn recording_stops_at_the_maximum_file_size() {
    let scratch = Scratch::new("largest");
    let (a, _b) = link(8);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    a.recorder.as_mut().unwrap().summary.bytes = MAX_FILE_BYTES - 26;
    send(&mut a, &[1; 10]).unwrap();
    send(&mut a, &[2; 10]).unwrap();
    let summary = a.finish().unwrap();
    assert_eq!((summary.packets, summary.bytes), (1, MAX_FILE_BYTES));
    assert_eq!(
        summary.stopped.unwrap(),
        "the file has reached 4294967296 bytes"
    );
    assert_eq!(records(&std::fs::read(&scratch.0).unwrap()).len(), 1);
}

#[test]
fn tshark_reads_the_file_if_installed() {
    let scratch = Scratch::new("tshark");
    let (a, _b) = link(8);
    let mut a = Pcap::new(a, Some(&scratch.0)).unwrap();
    for last in [1, 2] {
        send(&mut a, &ethernet(last)).unwrap();
    }
    drop(a);
    let tshark = Command::new("tshark")
        .args(["-T", "fields", "-e", "frame.len", "-e", "eth.type", "-r"])
        .arg(&scratch.0)
        .output();
    match tshark {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text, "60\t0x88b5\n60\t0x88b5\n");
        }
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
    }
}

#[test]
fn a_link_is_not_followed() {
    let (target, link) = (Scratch::new("target"), Scratch::new("link"));
    std::fs::write(&target.0, "precious").unwrap();
    std::os::unix::fs::symlink(&target.0, &link.0).unwrap();
    let (port, _) = self::link(4);
    let message = Pcap::new(port, Some(&link.0)).unwrap_err().to_string();
    assert!(message.contains(&link.0.display().to_string()), "{message}");
    assert!(message.contains("remove the link"), "{message}");
    assert_eq!(std::fs::read(&target.0).unwrap(), b"precious");
}

#[test]
fn a_capture_goes_to_regular_files_only() {
    let refusal = |path: &Path| {
        let message = Pcap::new(link(4).0, Some(path)).unwrap_err().to_string();
        let expected = format!("{} exists and is not a regular file", path.display());
        assert!(message.contains(&expected), "{message}");
    };
    refusal(Path::new("/dev/null"));
    refusal(&std::env::temp_dir());
    let pipe = Scratch::new("pipe");
    let status = Command::new("mkfifo").arg(&pipe.0).status().unwrap();
    assert!(status.success());
    refusal(&pipe.0);
    // Opening a pipe for both reading and writing does not wait for another process.
    let reader = File::options().read(true).write(true).open(&pipe.0);
    refusal(&pipe.0);
    drop(reader);
}
