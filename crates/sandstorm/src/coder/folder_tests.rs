use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::super::effort::Effort;
use super::super::form::Key;
use super::*;
use crate::coding::Coding;

const CONTENT: &[u8] = b"content of 21 bytes..";
const CODED: &[u8] = b"coded bytes";

fn form(coding: Coding) -> Form {
    Form {
        key: Key::of(CONTENT),
        coding,
        effort: Effort::Best,
    }
}

fn opened() -> (TempDir, Folder) {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a");
    fs::create_dir(&path).unwrap();
    let folder = Folder::open(path).unwrap();
    (temporary, folder)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_form_is_read_as_it_was_written() {
    let (_temporary, folder) = opened();
    let (gzip, zstd) = (form(Coding::Gzip), form(Coding::Zstd));
    assert_eq!(folder.read(gzip), None);
    assert!(folder.write(gzip, b"first"));
    assert!(folder.write(gzip, CODED));
    assert!(folder.write(zstd, b""));
    assert_eq!(folder.read(gzip).as_deref(), Some(CODED));
    assert_eq!(folder.read(zstd).as_deref(), Some(&b""[..]));
    assert_eq!(folder.read(form(Coding::Brotli)), None);
    let fast = Form {
        effort: Effort::Fast,
        ..gzip
    };
    assert_eq!(folder.read(fast), None);
    assert_eq!(names(&folder.path), [gzip.file_name(), zstd.file_name()]);
}

#[test]
fn damaged_files_are_removed() {
    let (_temporary, folder) = opened();
    let form = form(Coding::Brotli);
    let path = folder.path.join(form.file_name());
    let write = |bytes: &[u8]| fs::write(&path, bytes).unwrap();
    assert!(folder.write(form, CODED));
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), CODED.len() + CHECKSUM_LEN);

    for len in 0..whole.len() {
        write(&whole[..len]);
        assert_eq!(folder.read(form), None, "the first {len} bytes");
        assert!(!path.exists());
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        write(&bytes);
        assert_eq!(folder.read(form), None, "another byte at {at}");
        assert!(!path.exists());
    }
    write(&[&whole[..], b"x"].concat());
    assert_eq!(folder.read(form), None);
    write(&whole);
    assert_eq!(folder.read(form).as_deref(), Some(CODED));
}

#[test]
fn a_form_longer_than_the_content_is_removed() {
    let (_temporary, folder) = opened();
    let form = form(Coding::Gzip);
    for (len, is_read) in [(CONTENT.len(), true), (CONTENT.len() + 1, false)] {
        let coded = vec![1; len];
        assert!(folder.write(form, &coded));
        assert_eq!(folder.read(form), is_read.then_some(coded));
    }
    // A sparse file must not make the server allocate its length.
    let path = folder.path.join(form.file_name());
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(folder.read(form), None);
    assert!(!path.exists());
}

#[test]
fn foreign_entries_are_not_read() {
    let (temporary, folder) = opened();
    let (gzip, zstd) = (form(Coding::Gzip), form(Coding::Zstd));
    let path = folder.path.join(zstd.file_name());
    assert!(folder.write(gzip, CODED));

    // A file of another form.
    fs::rename(folder.path.join(gzip.file_name()), &path).unwrap();
    assert_eq!(folder.read(zstd), None);
    assert!(!path.exists());

    // A link, even to a valid file.
    assert!(folder.write(zstd, CODED));
    let outside = temporary.path().join("outside");
    fs::rename(&path, &outside).unwrap();
    symlink(&outside, &path).unwrap();
    assert_eq!(folder.read(zstd), None);
    assert!(path.symlink_metadata().is_err() && outside.exists());

    // A named pipe without a writer.
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(CWD, &path, mode).unwrap();
    assert_eq!(folder.read(zstd), None);
    assert!(!path.exists());

    // A folder stays, because it is certainly not ours.
    fs::create_dir(&path).unwrap();
    assert_eq!(folder.read(zstd), None);
    assert!(path.is_dir());
}

#[test]
fn two_servers_share_the_folder() {
    let (_temporary, folder) = opened();
    let other = Folder::open(folder.path.clone()).unwrap();
    let form = form(Coding::Gzip);
    let coded: Vec<u8> = (0..CONTENT.len() as u8).collect();
    std::thread::scope(|scope| {
        for folder in [&folder, &other] {
            scope.spawn(|| {
                for len in (1..=coded.len()).cycle().take(200) {
                    assert!(folder.write(form, &coded[..len]));
                }
            });
        }
        let is_whole = |read: Vec<u8>| read == coded[..read.len()];
        for _ in 0..200 {
            assert!(other.read(form).is_none_or(is_whole));
        }
    });
    assert!(other.read(form).is_some());
    assert_eq!(names(&folder.path), [form.file_name()]);
}

#[test]
fn after_an_error_the_folder_is_only_read() {
    let (_temporary, folder) = opened();
    let (gzip, zstd) = (form(Coding::Gzip), form(Coding::Zstd));
    assert!(folder.write(gzip, CODED));
    // A folder in the file's place makes renaming fail.
    let path = folder.path.join(zstd.file_name());
    fs::create_dir(&path).unwrap();
    assert!(!folder.write(zstd, CODED));
    assert_eq!(names(&folder.path), [gzip.file_name(), zstd.file_name()]);
    fs::remove_dir(&path).unwrap();
    assert!(!folder.write(zstd, CODED));
    assert_eq!(folder.read(gzip).as_deref(), Some(CODED));
}

#[test]
fn a_file_is_no_folder() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Folder::open(file.path().to_owned()).is_err());
}
