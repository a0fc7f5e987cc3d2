use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
#[cfg(target_os = "linux")]
use crate::records::full_disk::SmallDisk;

const TYPE: &str = "protobuf:dnstap.Dnstap";
const START_FRAME: &[u8] =
    b"\0\0\0\0\0\0\0\x22\0\0\0\x02\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap";
const STOP_FRAME: &[u8] = b"\0\0\0\0\0\0\0\x04\0\0\0\x03";
const FRAMES: &[u8] = b"\0\0\0\x03one\0\0\0\x03two\0\0\0\x05three";

#[test]
fn destinations_are_sockets_and_files() {
    let parse = |text: &str| text.parse::<FrameDestination>();
    assert_eq!(
        parse("unix:/run/tap"),
        Ok(FrameDestination::Unix("/run/tap".into()))
    );
    assert_eq!(parse("a.tap"), Ok(FrameDestination::File("a.tap".into())));
    for text in ["", "-", "unix:"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_file_has_start_frames_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tap");
    let destination = FrameDestination::File(path.clone());
    fs::write(&path, "of an earlier run").unwrap();
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    stream.write(FRAMES).unwrap();
    let refused = stream.reopen().unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::AlreadyExists,
        "it was not renamed"
    );
    let moved = folder.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    stream.reopen().unwrap();
    stream.write(&FRAMES[..7]).unwrap();
    stream.finish();
    assert_eq!(
        fs::read(moved).unwrap(),
        [START_FRAME, FRAMES, STOP_FRAME].concat()
    );
    assert_eq!(
        fs::read(&path).unwrap(),
        [START_FRAME, &FRAMES[..7], STOP_FRAME].concat()
    );
    assert_eq!(
        fs::read(folder.path().join("tap.1")).unwrap(),
        b"of an earlier run"
    );
}

/// Reads one handshake, and then all bytes until STOP or the end of the connection. If `accepts`, takes
/// the content type.
fn serve(listener: &UnixListener, accepts: &str) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    let ready = read_control(&mut stream, READY).unwrap();
    assert!(fields(&ready).eq([TYPE.as_bytes()]));
    stream.write_all(&control(ACCEPT, accepts)).unwrap();
    let mut read = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() > 0 {
        read.push(byte[0]);
        if read.ends_with(STOP_FRAME) {
            stream.write_all(&control(FINISH, "")).unwrap();
            break;
        }
        if read.ends_with(b"gone") {
            break;
        }
    }
    read
}

#[test]
fn a_reader_that_restarts_gets_the_next_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let destination = FrameDestination::Unix(path.clone());
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    assert!(!stream.is_ready(), "nobody listens");
    let lost = stream.write(FRAMES).unwrap_err();
    assert_eq!(
        (lost.lines, lost.error.kind()),
        (3, ErrorKind::NotConnected)
    );
    let listener = UnixListener::bind(&path).unwrap();
    let reader = thread::spawn(move || [TYPE, TYPE].map(|accepts| serve(&listener, accepts)));
    let mut write = |frames| {
        while !stream.is_ready() {
            thread::sleep(Duration::from_millis(10));
        }
        stream.write(frames)
    };
    write(b"\0\0\0\x04gone").unwrap();
    // The reader closes the connection.
    thread::sleep(Duration::from_millis(100));
    write(FRAMES).unwrap();
    stream.finish();
    let [first, second] = reader.join().unwrap();
    assert_eq!(first, [START_FRAME, b"\0\0\0\x04gone"].concat());
    assert!(second.starts_with(START_FRAME) && second.ends_with(&[FRAMES, STOP_FRAME].concat()));
}

#[test]
fn a_frame_that_is_cut_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_control(&mut stream, READY).unwrap();
        stream.write_all(&control(ACCEPT, TYPE)).unwrap();
        stream
    });
    let destination = FrameDestination::Unix(path);
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    // The reader takes nothing, and the second frame is larger than the buffers of the connection.
    let _stuck = reader.join().unwrap();
    let long = vec![b'x'; 4 << 20];
    let mut frames = b"\0\0\0\x03one".to_vec();
    frames.extend((long.len() as u32).to_be_bytes());
    frames.extend(long);
    frames.extend(b"\0\0\0\x05three");
    assert_eq!(stream.write(&frames).unwrap_err().lines, 2);
}

#[test]
fn a_program_that_reads_something_else_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let reader = thread::spawn(move || {
        serve(&listener, "text");
        let (mut stream, _) = listener.accept().unwrap();
        read_control(&mut stream, READY).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    });
    let refusal = || connected(&path, TYPE).unwrap_err().to_string();
    assert_eq!(
        refusal(),
        format!("the program that listens there does not read {TYPE}")
    );
    assert_eq!(
        refusal(),
        "the program that listens there does not speak Frame Streams"
    );
    reader.join().unwrap();
    let silent = folder.path().join("silent");
    let _listener = UnixListener::bind(&silent).unwrap();
    assert_eq!(
        connected(&silent, TYPE).unwrap_err().to_string(),
        "no answer within 1 s"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_was_begun_on_a_full_disk_is_complete_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path(), c"size=64k") else {
        return;
    };
    let [path, moved, filler] = ["tap", "moved", "filler"].map(|name| folder.path().join(name));
    let fill = || {
        let mut filler = File::create(&filler).unwrap();
        while filler.write(&[0; 4_096]).is_ok() {}
    };
    let destination = FrameDestination::File(path.clone());
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    stream.write(FRAMES).unwrap();
    fs::rename(&path, &moved).unwrap();
    fill();
    stream.reopen().unwrap();
    let lost = stream.write(FRAMES).unwrap_err();
    assert_eq!((lost.lines, lost.error.kind()), (3, ErrorKind::StorageFull));
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::remove_file(&filler).unwrap();
    // No frame has to come for the file to begin.
    assert!(stream.is_ready());
    assert_eq!(fs::read(&path).unwrap(), START_FRAME);
    stream.write(&FRAMES[..7]).unwrap();
    stream.finish();
    let whole = |frames| [START_FRAME, frames, STOP_FRAME].concat();
    assert_eq!(fs::read(&moved).unwrap(), whole(FRAMES));
    assert_eq!(fs::read(&path).unwrap(), whole(&FRAMES[..7]));
    // A full disk does not keep a server from its start.
    fs::remove_file(&path).unwrap();
    fill();
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    fs::remove_file(&filler).unwrap();
    stream.write(FRAMES).unwrap();
    stream.finish();
    assert_eq!(fs::read(&path).unwrap(), whole(FRAMES));
}

#[test]
#[cfg(target_os = "linux")]
fn a_renamed_file_that_was_removed_makes_room_for_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path(), c"size=64k") else {
        return;
    };
    let [path, moved] = ["tap", "moved"].map(|name| folder.path().join(name));
    let destination = FrameDestination::File(path.clone());
    let mut stream = FrameStream::open("dnstap", &destination, TYPE).unwrap();
    while stream.write(FRAMES).is_ok() {}
    fs::rename(&path, &moved).unwrap();
    stream.reopen().unwrap();
    // A second rotation on the full disk does not displace the first file.
    fs::rename(&path, folder.path().join("empty")).unwrap();
    stream.reopen().unwrap();
    fs::remove_file(&moved).unwrap();
    for attempt in 0..ATTEMPTS {
        assert_eq!(fs::read(&path).unwrap(), b"", "at attempt {attempt}");
        let Output::File { retry, .. } = &mut stream.output else {
            unreachable!("this is a file");
        };
        *retry = Instant::now();
        assert!(stream.is_ready());
    }
    assert_eq!(fs::read(&path).unwrap(), START_FRAME);
    stream.write(FRAMES).unwrap();
    stream.finish();
    let whole = [START_FRAME, FRAMES, STOP_FRAME].concat();
    assert_eq!(fs::read(&path).unwrap(), whole);
}
