//! A port that captures packets to a file for Wireshark and tcpdump.
//!
//! [`Pcap`] wraps any port. It records received frames when the inner port returns them, and sent
//! frames when they are passed to the inner port. Time stamps come from the wall clock, in
//! nanoseconds.
//!
//! ```
//! use nmio::{Pcap, Port, sim};
//!
//! let file = std::env::temp_dir().join(format!("nmio-doc-{}.pcap", std::process::id()));
//! let (port, _peer, _clock) = sim::link(&sim::LinkConfig::default(), 0);
//! let mut port = Pcap::new(port, Some(&file))?;
//! let frame = port.pool().take().unwrap();
//! port.send(frame).unwrap();
//! assert_eq!(port.finish().unwrap().packets, 1);
//! # std::fs::remove_file(file).unwrap();
//! # Ok::<(), nmio::PcapError>(())
//! ```
//!
//! The file uses the classic libpcap format with the magic number for nanoseconds
//! (draft-ietf-opsawg-pcap).

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::device::{NewQueue, PacketMemory};
use crate::frame::{Frame, IdleResident, Pool};
use crate::mailbox::Bell;
use crate::port::{Batch, Capabilities, Port, PortCounters, PortHints, PortLevels, SendError};
use crate::super_segment::SuperSegment;

/// Magic number of files with nanosecond time stamps.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;
/// Snapshot length in the file header: the largest value that readers accept. The port never
/// truncates frames.
const SNAPLEN: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

/// Size of a record header in bytes. The header consists of four 4-byte fields: seconds,
/// nanoseconds, and two lengths.
const RECORD_HEADER: usize = 16;
/// Size of the write buffer, in bytes.
const BUFFER: usize = 256 * 1024;
/// Maximum size of a capture file, in bytes. The limit keeps a forgotten capture from filling the
/// disk.
pub const MAX_FILE_BYTES: u64 = 4 << 30;
/// Time since the last write to the file after which a flush writes the buffered records. Before
/// the port waits, it always writes them.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Why a capture could not start.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The path is a symbolic link. Links are not followed.
    #[error("the capture file {} is a link, and captures do not follow links; remove the link, or give the path of its target", path.display())]
    Link {
        /// Path of the link.
        path: PathBuf,
    },
    /// The path names a pipe, a device, a socket or a directory.
    #[error("the capture file {} exists and is not a regular file; give another path", path.display())]
    NotRegular {
        /// The refused path.
        path: PathBuf,
    },
    /// The file cannot be created or written.
    #[error("cannot write the capture file {}: {source}; give a path in a writable directory", path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Result of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapSummary {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of recorded frames.
    pub packets: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Human-readable reason why recording stopped early, or `None` if it did not stop.
    pub stopped: Option<String>,
}

/// A port that records all frames. With recording off, the wrapper costs one branch per call.
///
/// Recording stops if writing fails or the file would exceed [`MAX_FILE_BYTES`], but the port
/// continues to work. [`finish`](Pcap::finish) returns the reason.
#[derive(Debug)]
pub struct Pcap<P> {
    inner: P,
    recorder: Option<Box<Recorder>>,
}

impl<P: Port> Pcap<P> {
    /// Wraps a port. If a path is given, the port records to that file, and overwrites an existing
    /// file.
    ///
    /// Symbolic links are not followed, because a link could make a process with root privileges
    /// overwrite any file. Pipes and devices are refused, because a full pipe would block the
    /// server.
    ///
    /// # Errors
    /// If the path is a link or not a regular file, or if the file cannot be created or written.
    pub fn new(inner: P, path: Option<&Path>) -> Result<Self, PcapError> {
        let recorder = path.map(Recorder::create).transpose()?.map(Box::new);
        Ok(Self { inner, recorder })
    }

    /// Returns the wrapped port.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Writes buffered records and returns the result so far. Returns `None` if recording is off.
    ///
    /// Recording continues. Dropping the port also writes buffered records, but hides errors.
    pub fn finish(&mut self) -> Option<PcapSummary> {
        let recorder = self.recorder.as_mut()?;
        recorder.write_out();
        Some(recorder.summary.clone())
    }

    /// Records a packet, after the port has accepted it: only the port knows whether it does.
    #[cold]
    fn record(&mut self, packet: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(packet);
        }
    }
}

impl<P: Port> Port for Pcap<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    #[inline(always)]
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    #[inline(always)]
    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        self.inner.receive(batch, limit)?;
        if let Some(recorder) = &mut self.recorder {
            for frame in &*batch {
                recorder.record(frame);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.recorder.is_none() {
            return self.inner.send(frame);
        }
        let bytes = frame.to_vec();
        self.inner.send(frame)?;
        self.record(&bytes);
        Ok(())
    }

    #[inline(always)]
    fn send_resident(&mut self, packet: IdleResident<'_>) -> Result<(), SendError> {
        if self.recorder.is_none() {
            return self.inner.send_resident(packet);
        }
        let bytes = packet.to_vec();
        self.inner.send_resident(packet)?;
        self.record(&bytes);
        Ok(())
    }

    /// Records the super-segment as one packet.
    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        if self.recorder.is_none() {
            return self.inner.send_super(packet);
        }
        let bytes = packet.gather().concat();
        self.inner.send_super(packet)?;
        self.record(&bytes);
        Ok(())
    }

    #[inline(always)]
    fn room(&mut self) -> usize {
        self.inner.room()
    }

    #[inline(always)]
    fn flush(&mut self) -> io::Result<bool> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write_out_if_late();
        }
        self.inner.flush()
    }

    #[inline(always)]
    fn hints(&self) -> PortHints {
        self.inner.hints()
    }

    #[inline(always)]
    fn wait(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write_out();
        }
        self.inner.wait(timeout, bell)
    }

    #[inline(always)]
    fn poll_device(&mut self, timeout: Duration, bell: Option<&Bell>) -> io::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write_out();
        }
        self.inner.poll_device(timeout, bell)
    }

    fn attach(&mut self, queue: NewQueue) -> io::Result<()> {
        self.inner.attach(queue)
    }

    fn shared_memory(&self) -> Option<PacketMemory> {
        self.inner.shared_memory()
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }

    fn levels(&self) -> PortLevels {
        self.inner.levels()
    }
}

/// The capture file and its state.
#[derive(Debug)]
struct Recorder {
    /// The open file, or `None` once recording has stopped.
    file: Option<BufWriter<File>>,
    written: std::time::Instant,
    summary: PcapSummary,
}

impl Recorder {
    fn create(path: &Path) -> Result<Self, PcapError> {
        let failed = |source: io::Error| {
            let path = path.to_owned();
            match source.raw_os_error() {
                Some(libc::ELOOP) => PcapError::Link { path },
                // Opening a socket, or a pipe without a reader, fails with ENXIO. Opening a
                // directory fails with EISDIR.
                Some(libc::ENXIO | libc::EISDIR) => PcapError::NotRegular { path },
                _ => PcapError::Create { path, source },
            }
        };
        // Without O_NONBLOCK, opening a pipe would wait for a reader.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // Only its owner may read a new file, which has everything that clients send.
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            let path = path.to_owned();
            return Err(PcapError::NotRegular { path });
        }
        let header = file_header();
        file.write_all(&header).map_err(failed)?;
        Ok(Self {
            file: Some(BufWriter::with_capacity(BUFFER, file)),
            written: std::time::Instant::now(),
            summary: PcapSummary {
                path: path.to_owned(),
                packets: 0,
                bytes: header.len() as u64,
                stopped: None,
            },
        })
    }

    /// Records a packet. The function is not inlined, so that the wrapper adds only a branch to the
    /// fast path.
    #[cold]
    #[inline(never)]
    fn record(&mut self, packet: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let size = (RECORD_HEADER + packet.len()) as u64;
        if self.summary.bytes + size > MAX_FILE_BYTES {
            self.write_out();
            self.stop(format!("the file has reached {MAX_FILE_BYTES} bytes"));
            return;
        }
        let header = record_header(SystemTime::now(), packet.len() as u32);
        let result = file
            .write_all(&header)
            .and_then(|()| file.write_all(packet));
        match result {
            Ok(()) => {
                self.summary.packets += 1;
                self.summary.bytes += size;
            }
            Err(error) => self.stop(error.to_string()),
        }
    }

    fn write_out(&mut self) {
        let Some(file) = &mut self.file else { return };
        if file.buffer().is_empty() {
            return;
        }
        self.written = std::time::Instant::now();
        if let Err(error) = file.flush() {
            self.stop(error.to_string());
        }
    }

    fn write_out_if_late(&mut self) {
        let dirty = self.file.as_ref().is_some_and(|f| !f.buffer().is_empty());
        if dirty && self.written.elapsed() >= WRITE_INTERVAL {
            self.write_out();
        }
    }

    fn stop(&mut self, why: String) {
        if let Some(file) = self.file.take() {
            // Dropping the writer would try to write again, so split it into its parts instead.
            let _ = file.into_parts();
            let path = self.summary.path.display();
            tracing::warn!(target: "nmio::pcap", "the capture to {path} stops, but the server continues: {why}");
        }
        self.summary.stopped.get_or_insert(why);
    }
}

/// Builds the file header, in little-endian byte order.
fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[0..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
    header[4..6].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    header[6..8].copy_from_slice(&VERSION_MINOR.to_le_bytes());
    // Bytes 8 to 15 are reserved and zero.
    header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
    header[20..24].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
    header
}

/// Builds the header of a record. The seconds are an unsigned 32-bit number, which overflows in
/// 2106.
fn record_header(at: SystemTime, len: u32) -> [u8; RECORD_HEADER] {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut header = [0; RECORD_HEADER];
    header[0..4].copy_from_slice(&(since.as_secs() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&since.subsec_nanos().to_le_bytes());
    header[8..12].copy_from_slice(&len.to_le_bytes());
    header[12..16].copy_from_slice(&len.to_le_bytes());
    header
}

#[cfg(test)]
#[path = "pcap_tests.rs"]
mod tests;
