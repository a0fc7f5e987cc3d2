//! A log with one line for each record.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Gid, Uid};

use super::destination::{JOURNAL, LogDestination, SYSLOG, Sink};
use super::frame::append_frame;
use super::frames::{FrameDestination, FrameStream, has_frames};
use super::log_file::{Refused, check_log, is_pipe};
use super::ring::{Lost, RecordReader, RecordSender, ring_for};
use super::unwritten::{RETRY, Unwritten, is_full};
use crate::config::before;
use crate::report;
use crate::writable::check_folder;

/// Maximum number of records that are written at once.
const BATCH: u64 = 512;
/// Minimum time between two warnings about lost lines.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Appends a record as text to a line, without a line feed at the end.
type Format = dyn Fn(&[u8], &mut Vec<u8>) + Send + Sync;

/// What a log is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogName {
    /// Its name in messages, such as `access log`.
    pub shown: &'static str,
    /// The identifier of the option that names its destination, such as `access_log`. Messages have the place
    /// of the option in the configuration file.
    pub option: &'static str,
}

impl LogName {
    /// The place of the log's destination in front of a message, if it stands in the configuration file.
    fn before(self, destination: &str) -> String {
        before(self.option, destination)
    }
}

/// A log with one line for each record that the workers send. A [`Program`](crate::Program) creates
/// its logs when it loads, and returns them from [`Program::logs`](crate::Program::logs).
pub struct RecordLog {
    /// The log's name in messages, such as `access log`.
    name: &'static str,
    /// The destination's name in messages.
    place: String,
    /// The folder in which the file is made again after a rotation, if the log is a file.
    folder: Option<PathBuf>,
    /// Whether the log's thread connects to a socket while the server runs.
    connects: bool,
    /// Whether records become frames instead of lines.
    has_frames: bool,
    format: Box<Format>,
    /// Number of logs that belong together, with this one.
    together: usize,
    readers: Mutex<Vec<RecordReader>>,
    /// What each worker has lost.
    lost: Mutex<Vec<Arc<Lost>>>,
    output: Mutex<Output>,
    /// When the log was opened.
    opened: Instant,
    /// Start of the write in progress, in milliseconds since then, plus 1. 0: no write is in
    /// progress.
    writing: AtomicU64,
    /// Number of records in this write.
    in_flight: AtomicU64,
}

/// The open destination, and what is known of its errors.
struct Output {
    sink: Sink,
    warned: Option<Instant>,
    /// When to try to open the file again, because the disk had no room for a new one.
    reopen_at: Option<Instant>,
}

impl Output {
    fn new(sink: Sink) -> Mutex<Self> {
        Mutex::new(Self {
            sink,
            warned: None,
            reopen_at: None,
        })
    }
}

impl fmt::Debug for RecordLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordLog")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl RecordLog {
    /// Opens a log. `program` is the name that the system's log shows. `format` appends a record as one line of text, without a line feed. It must replace line feeds
    /// in the record.
    ///
    /// # Errors
    /// If the destination cannot be opened. The error names it and the remedy.
    pub fn open(
        name: LogName,
        program: &str,
        destination: &LogDestination,
        format: impl Fn(&[u8], &mut Vec<u8>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let sink = Sink::open(destination, program);
        let sink = sink.map_err(|error| not_open(name, destination, &error))?;
        let folder = match destination {
            LogDestination::File(path) => std::path::absolute(path).ok(),
            _ => None,
        };
        Ok(Self {
            name: name.shown,
            place: place(destination),
            folder: folder.and_then(|path| path.parent().map(Path::to_owned)),
            connects: false,
            has_frames: false,
            format: Box::new(format),
            together: 1,
            readers: Mutex::default(),
            lost: Mutex::default(),
            output: Output::new(sink),
            opened: Instant::now(),
            writing: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        })
    }

    /// Checks that a log can be opened, without making its file. Warns of a pipe, because only opening it
    /// shows whether somebody reads it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn check(name: LogName, program: &str, destination: &LogDestination) -> io::Result<()> {
        let checked = match destination {
            LogDestination::File(path) => {
                warn_of_pipe(name, path);
                check_log(path)
            }
            _ => Sink::open(destination, program).map(drop),
        };
        checked.map_err(|error| not_open(name, destination, &error))
    }

    /// Checks that a log with frames can be opened, without making its file. Warns of a pipe.
    ///
    /// # Errors
    /// Those of [`open_frames`](Self::open_frames).
    pub fn check_frames(name: LogName, destination: &FrameDestination) -> io::Result<()> {
        let checked = match destination {
            // A new file takes the place of the old one.
            FrameDestination::File(path) if has_frames(path) => check_folder(path),
            FrameDestination::File(path) => {
                warn_of_pipe(name, path);
                check_log(path)
            }
            FrameDestination::Unix(_) => Ok(()),
        };
        checked.map_err(|error| frames_not_open(name, destination, &error))
    }

    /// Opens a log with one frame for each record, in the format of Frame Streams, such as dnstap.
    /// `content_type` is the type of the frames. `format` appends the content of a frame. If nobody
    /// listens on the socket yet, the log waits for it.
    ///
    /// # Errors
    /// If the file cannot be made. The error names it and the remedy.
    pub fn open_frames(
        name: LogName,
        destination: &FrameDestination,
        content_type: &'static str,
        format: impl Fn(&[u8], &mut Vec<u8>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let stream = FrameStream::open(name.shown, destination, content_type);
        let stream = stream.map_err(|error| frames_not_open(name, destination, &error))?;
        Ok(Self {
            name: name.shown,
            place: destination.to_string(),
            folder: destination.folder(),
            connects: matches!(destination, FrameDestination::Unix(_)),
            has_frames: true,
            format: Box::new(format),
            together: 1,
            readers: Mutex::default(),
            lost: Mutex::default(),
            output: Output::new(Sink::Frames(stream)),
            opened: Instant::now(),
            writing: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        })
    }

    /// Makes this one of `logs` logs of one program, such as those of its sites. Together they take as
    /// much memory as one, as long as there are at most 16.
    #[must_use]
    pub fn one_of(self, logs: usize) -> Self {
        Self {
            together: logs,
            ..self
        }
    }

    /// Opens a worker's end of the log.
    pub fn sender(&self) -> RecordSender {
        let (sender, reader) = ring_for(self.together);
        self.lost().push(reader.lost());
        self.readers().push(reader);
        sender
    }

    /// Number of records of all workers that did not fit in their rings.
    pub(crate) fn dropped(&self) -> u64 {
        self.lost().iter().map(|one| one.dropped()).sum()
    }

    /// Says that the log loses records, and why.
    pub(crate) fn describe_loss(&self, records: u64) -> String {
        self.describe_loss_at(records, self.opened.elapsed())
    }

    /// Same as [`describe_loss`](Self::describe_loss), at a time since the log was opened.
    fn describe_loss_at(&self, records: u64, now: Duration) -> String {
        let began = self.writing.load(Ordering::Relaxed);
        let seconds = (now.as_millis() as u64 + 1).saturating_sub(began) / 1_000;
        let why = if began > 0 && seconds > 0 {
            format!("whoever reads it has taken nothing for {seconds} s; start the reader again")
        } else {
            "they come faster than they can be written; log fewer, or write to a faster disk"
                .to_owned()
        };
        let lines = report::counted(records, "line");
        format!("{}: {}: lost {lines}, because {why}", self.name, self.place)
    }

    /// Gives up the records that wait, because the server ends. Also counts those in a write that does not
    /// end. Returns a line for the summary if there are any.
    pub(super) fn give_up(&self) -> Option<(&'static str, String)> {
        let mut lost = self.in_flight.load(Ordering::Relaxed);
        let why = if lost > 0 { "is stuck" } else { "is not there" };
        let mut record = Vec::new();
        for reader in &mut *self.readers() {
            while reader.take(&mut record) {
                lost += 1;
            }
        }
        let lines = report::counted(lost, if self.has_frames { "message" } else { "line" });
        let line = format!(
            "lost {lines} at the end, because whoever reads {} {why}",
            self.place
        );
        (lost > 0).then_some((self.name, line))
    }

    /// The folder in which the log's file is made again after a rotation, if the log is a file.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// Returns true if the log's thread connects to a socket while the server runs.
    pub(super) fn connects(&self) -> bool {
        self.connects
    }

    /// Gives a new file of the log to the server's user.
    pub(super) fn give_to(&self, user: (Uid, Gid)) {
        if let Err(error) = self.output().sink.give_to(user) {
            tracing::warn!(
                "{}: {} stays a file of the user who started the server: {error}",
                self.name,
                self.place
            );
        }
    }

    /// Opens the log's file again, which may have been renamed.
    pub(super) fn reopen(&self) {
        let mut output = self.output();
        // Whoever asks is told of a full disk, even if an earlier request still waits for room.
        output.reopen_at = None;
        self.reopen_sink(&mut output);
    }

    /// Opens the log's file again. If the disk has no room for a new file, this is tried again later.
    fn reopen_sink(&self, output: &mut Output) {
        let is_retry = output.reopen_at.take().is_some();
        let error = match output.sink.reopen() {
            Ok(()) => return tracing::info!("{}: {} is open again", self.name, self.place),
            Err(error) => error,
        };
        let mut remedy = "";
        if is_full(&error) {
            output.reopen_at = Some(Instant::now() + RETRY);
            remedy = "; the server tries again each second";
        }
        if !is_retry || !is_full(&error) {
            tracing::warn!(
                "{}: the server's user cannot open {} again, so lines still go to the old file: \
                 {error}{remedy}",
                self.name,
                self.place
            );
        }
    }

    /// Ends the log after the last record.
    pub(super) fn finish(&self) {
        self.output().sink.finish();
    }

    /// Writes some of the records that have arrived. Returns `false` if there were none, or if they
    /// have to wait.
    pub(super) fn write(&self, buffers: &mut Buffers) -> bool {
        let mut output = self.output();
        if output.reopen_at.is_some_and(|at| Instant::now() >= at) {
            self.reopen_sink(&mut output);
        }
        if !output.sink.is_ready() {
            return false;
        }
        drop(output);
        let mut has_written = false;
        let workers = self.readers().len();
        for worker in 0..workers {
            let (records, lost) = self.take_lines(worker, buffers);
            if records > 0 {
                has_written = true;
                self.write_lines(&lost, &buffers.lines);
                self.in_flight.store(0, Ordering::Relaxed);
            }
        }
        has_written
    }

    /// Takes some of a worker's records as lines into `buffers`. Returns their number. A write must not
    /// begin before this method has ended, because the write may keep a lock for long.
    fn take_lines(&self, worker: usize, buffers: &mut Buffers) -> (u64, Arc<Lost>) {
        let reader = &mut self.readers()[worker];
        buffers.lines.clear();
        let mut records = 0;
        while records < BATCH && reader.take(&mut buffers.record) {
            let (record, lines) = (&buffers.record, &mut buffers.lines);
            if self.has_frames {
                append_frame(lines, |frame| (self.format)(record, frame));
            } else {
                (self.format)(record, lines);
                lines.push(b'\n');
            }
            records += 1;
        }
        self.in_flight.store(records, Ordering::Relaxed);
        (records, reader.lost())
    }

    fn write_lines(&self, lost: &Lost, lines: &[u8]) {
        let mut output = self.output();
        let began = self.opened.elapsed().as_millis() as u64 + 1;
        self.writing.store(began, Ordering::Relaxed);
        let written = output.sink.write(lines);
        self.writing.store(0, Ordering::Relaxed);
        let Err(Unwritten { error, lines }) = written else {
            return;
        };
        lost.count_unwritten(lines);
        let now = Instant::now();
        if output
            .warned
            .is_none_or(|last| now - last >= WARNING_INTERVAL)
        {
            output.warned = Some(now);
            tracing::warn!(
                "{}: {}: {error}; {} lines of a worker are lost so far",
                self.name,
                self.place,
                lost.unwritten()
            );
        }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<RecordReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, Vec<Arc<Lost>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer's buffers.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    record: Vec<u8>,
    lines: Vec<u8>,
}

/// Names a destination in messages.
fn place(destination: &LogDestination) -> String {
    match destination {
        LogDestination::File(path) => path.display().to_string(),
        LogDestination::Stdout => "standard output".to_owned(),
        LogDestination::Syslog => format!("the system's log at {SYSLOG}"),
        LogDestination::Journald => format!("the journal at {JOURNAL}"),
    }
}

/// Warns of a pipe. Its reader would see an end if a check opened it.
fn warn_of_pipe(name: LogName, path: &Path) {
    if is_pipe(path) {
        let before = name.before(&path.to_string_lossy());
        let (name, path) = (name.shown, path.display());
        tracing::warn!("{before}{name}: {path} is a pipe; its reader must run before the server");
    }
}

/// Names a log that cannot be opened, and the remedy.
fn not_open(name: LogName, destination: &LogDestination, error: &io::Error) -> io::Error {
    let remedy = match destination {
        LogDestination::File(path) => remedy_of_file(path, error),
        _ => "; start it, or send the lines to a file or to stdout",
    };
    let before = match destination {
        LogDestination::File(path) => name.before(&path.to_string_lossy()),
        _ => String::new(),
    };
    let name = name.shown;
    let message = format!("{before}{name}: {}: {error}{remedy}", place(destination));
    io::Error::new(error.kind(), message)
}

/// Names a log with frames that cannot be opened, and the remedy.
fn frames_not_open(name: LogName, destination: &FrameDestination, error: &io::Error) -> io::Error {
    let (FrameDestination::Unix(path) | FrameDestination::File(path)) = destination;
    let before = name.before(&destination.to_string());
    let (name, remedy) = (name.shown, remedy_of_file(path, error));
    let message = format!("{before}{name}: {destination}: {error}{remedy}");
    io::Error::new(error.kind(), message)
}

/// Says what to do if a file cannot be opened, unless the error says so.
fn remedy_of_file(path: &Path, error: &io::Error) -> &'static str {
    if let Some(refused) = error.get_ref()
        && refused.is::<Refused>()
    {
        ""
    } else if path.is_dir() {
        "; name a file in this folder"
    } else {
        "; make its folder, or give a file that can be written"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use rustix::fs::{Mode, mkfifoat};

    use super::*;
    #[cfg(target_os = "linux")]
    use crate::records::full_disk::SmallDisk;

    const TEST: LogName = LogName {
        shown: "test log",
        option: "test_log",
    };

    fn as_text(record: &[u8], line: &mut Vec<u8>) {
        line.extend_from_slice(record);
    }

    #[test]
    fn a_file_is_opened_again_after_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["log", "log.1"].map(|name| folder.path().join(name));
        let to = LogDestination::File(path.clone());
        let log = RecordLog::open(TEST, "test", &to, as_text).unwrap();
        assert_eq!(log.folder().unwrap(), folder.path());
        let mut workers = [log.sender(), log.sender()];
        let mut buffers = Buffers::default();
        assert!(!log.write(&mut buffers));
        workers[0].send(b"first", b" line");
        workers[1].send(b"second", b" line");
        assert!(log.write(&mut buffers) && !log.write(&mut buffers));
        fs::rename(&path, &old).unwrap();
        workers[0].send(b"to the renamed file", b"");
        log.write(&mut buffers);
        log.reopen();
        workers[0].send(b"new", b"");
        log.write(&mut buffers);
        let old = fs::read_to_string(&old).unwrap();
        assert_eq!(old, "first line\nsecond line\nto the renamed file\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_for_which_the_disk_had_no_room_is_opened_later() {
        let folder = tempfile::tempdir().unwrap();
        // There is room for the folder itself and for two files.
        let Some(_disk) = SmallDisk::mount(folder.path(), c"nr_inodes=3") else {
            return;
        };
        let [path, old, other] = ["log", "log.1", "other"].map(|name| folder.path().join(name));
        let to = LogDestination::File(path.clone());
        let log = RecordLog::open(TEST, "test", &to, as_text).unwrap();
        let mut worker = log.sender();
        fs::rename(&path, &old).unwrap();
        fs::write(&other, "").unwrap();
        log.reopen();
        worker.send(b"to the old file", b"");
        log.write(&mut Buffers::default());
        fs::remove_file(&other).unwrap();
        let start = Instant::now();
        while !path.exists() {
            assert!(start.elapsed() < 20 * RETRY);
            std::thread::sleep(Duration::from_millis(50));
            log.write(&mut Buffers::default());
        }
        worker.send(b"to the new file", b"");
        log.write(&mut Buffers::default());
        assert_eq!(fs::read_to_string(&old).unwrap(), "to the old file\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "to the new file\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let to = LogDestination::File("/dev/full".into());
        let log = RecordLog::open(TEST, "test", &to, as_text).unwrap();
        let mut worker = log.sender();
        for _ in 0..3 {
            worker.send(b"line", b"");
        }
        log.write(&mut Buffers::default());
        assert_eq!(worker.lost(), 3);
    }

    /// The reader of a pipe is stuck, so a write to it does not end.
    #[test]
    fn a_log_whose_reader_is_stuck_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let mut reader = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let to = LogDestination::File(path);
        let log = RecordLog::open(TEST, "test", &to, as_text).unwrap();
        let mut worker = log.sender();
        let line = [b'x'; 1_000];
        while worker.lost() == 0 {
            worker.send(b"", &line);
        }
        assert_eq!(log.dropped(), 1);
        assert!(
            log.describe_loss(1)
                .contains("lost 1 line, because they come faster")
        );
        std::thread::scope(|scope| {
            scope.spawn(|| log.write(&mut Buffers::default()));
            while log.writing.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // As if the log had been opened earlier.
            let told = log.describe_loss_at(1, log.opened.elapsed() + Duration::from_secs(7));
            assert!(told.contains("has taken nothing for 7 s"), "{told}");
            let mut rest = vec![0; 512 * 1_001];
            reader.read_exact(&mut rest).unwrap();
        });
    }

    #[test]
    fn records_that_wait_at_the_end_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let mut pipe = fs::File::options();
        let mut stuck = pipe.read(true).write(true).open(&path).unwrap();
        let to = LogDestination::File(path.clone());
        let log = RecordLog::open(TEST, "test", &to, as_text).unwrap();
        let socket = FrameDestination::Unix(folder.path().join("socket"));
        let frames = RecordLog::open_frames(TEST, &socket, "test", as_text).unwrap();
        let mut worker = log.sender();
        assert_eq!(log.give_up(), None);
        for _ in 0..600 {
            worker.send(b"", &[b'x'; 1_000]);
            frames.sender().send(b"", b"message");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| log.write(&mut Buffers::default()));
            while log.writing.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let (_, line) = log.give_up().unwrap();
            let why = format!("because whoever reads {} is stuck", path.display());
            assert_eq!(line, format!("lost 600 lines at the end, {why}"));
            stuck.read_exact(&mut vec![0; 512 * 1_001]).unwrap();
        });
        assert!(!frames.write(&mut Buffers::default()));
        let (_, line) = frames.give_up().unwrap();
        assert!(
            line.contains("lost 600 messages") && line.ends_with("is not there"),
            "{line}"
        );
        assert_eq!(frames.give_up(), None);
    }

    #[test]
    fn a_check_finds_what_cannot_be_opened_and_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let check = |path: PathBuf| {
            let frames = RecordLog::check_frames(TEST, &FrameDestination::File(path.clone()));
            let lines = RecordLog::check(TEST, "test", &LogDestination::File(path));
            let kinds = [lines, frames].map(|checked| checked.map_err(|error| error.kind()));
            assert_eq!(kinds[0], kinds[1]);
            kinds[0]
        };
        assert_eq!(check(path("new")), Ok(()));
        assert!(!path("new").exists());
        fs::write(path("old"), "line").unwrap();
        assert_eq!(check(path("old")), Ok(()));
        assert_eq!(fs::read_to_string(path("old")).unwrap(), "line");
        assert_eq!(check(path("none/new")), Err(io::ErrorKind::NotFound));
        assert_eq!(
            check(folder.path().into()),
            Err(io::ErrorKind::IsADirectory)
        );
        assert_eq!(check(path("old/new")), Err(io::ErrorKind::NotADirectory));
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_named() {
        let to = LogDestination::File("/nowhere/log".into());
        let error = RecordLog::open(TEST, "test", &to, as_text).unwrap_err();
        let message = error.to_string();
        assert_eq!(
            message,
            "test log: /nowhere/log: No such file or directory (os error 2); \
             make its folder, or give a file that can be written"
        );
        let folder = tempfile::tempdir().unwrap();
        let to = FrameDestination::File(folder.path().to_owned());
        let error = RecordLog::open_frames(TEST, &to, "test", as_text).unwrap_err();
        let message = error.to_string();
        assert!(
            message.ends_with("; name a file in this folder"),
            "{message}"
        );
    }
}
