use std::fs;
use std::path::Path;

use super::*;

/// Returns a content that can be compressed, or one that cannot.
fn content(is_text: bool) -> Vec<u8> {
    if is_text {
        return b"a line of text\n".repeat(100);
    }
    (0..1_500_u32)
        .map(|n| (n.wrapping_mul(0x9e37_79b9) ^ n.wrapping_mul(n)).wrapping_mul(0x85eb_ca6b) >> 24)
        .map(|n| n as u8)
        .collect()
}

fn open(folder: &Path) -> Store {
    Store::open(Some(folder.to_owned())).unwrap()
}

fn in_memory(store: &Store) -> (usize, usize) {
    let memory = store.memory();
    (memory.coded.len(), memory.not_worth_it.len())
}

#[test]
fn without_a_folder_results_are_in_memory() {
    let store = Store::open(None).unwrap();
    for (is_text, after) in [(true, (0, 0)), (false, (0, 1))] {
        let content = content(is_text);
        let key = Key::of(&content);
        assert_eq!(store.get(key, Coding::Gzip, Effort::Fast), None);
        let made = store.make(key, Coding::Gzip, Effort::Fast, &content);
        assert_eq!(matches!(made, Made::Coded(_)), is_text);
        assert_eq!(store.get(key, Coding::Gzip, Effort::Fast), Some(made));
        assert_eq!(store.get(key, Coding::Gzip, Effort::Best), None);
        assert_eq!(store.get(key, Coding::Zstd, Effort::Fast), None);
        store.forget_memory(key);
        assert_eq!(in_memory(&store), after);
    }
}

#[test]
fn only_the_forms_of_one_content_are_forgotten() {
    let store = Store::open(None).unwrap();
    let (first, second) = (content(true), b"another text\n".repeat(100));
    let (key, other) = (Key::of(&first), Key::of(&second));
    for coding in Coding::ALL {
        store.make(key, coding, Effort::Fast, &first);
    }
    store.make(other, Coding::Zstd, Effort::Fast, &second);
    store.forget_memory(key);
    assert_eq!(in_memory(&store), (1, 0));
    assert!(store.get(other, Coding::Zstd, Effort::Fast).is_some());
}

#[test]
fn another_server_finds_the_results_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    for is_text in [true, false] {
        let content = content(is_text);
        let key = Key::of(&content);
        let store = open(folder.path());
        let made = store.make(key, Coding::Gzip, Effort::Fast, &content);
        assert_eq!(matches!(made, Made::Coded(_)), is_text);
        assert_eq!(in_memory(&store), (0, 0));
        let other = open(folder.path());
        for store in [store, other] {
            let found = store.get(key, Coding::Gzip, Effort::Fast);
            assert_eq!(found, Some(made.clone()));
        }
    }
}

#[test]
fn a_damaged_file_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let content = content(true);
    let key = Key::of(&content);
    let made = store.make(key, Coding::Zstd, Effort::Fast, &content);
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap();
    // Some file systems leave an empty file behind when the power fails.
    fs::write(file.unwrap().path(), b"").unwrap();
    assert_eq!(store.get(key, Coding::Zstd, Effort::Fast), None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    store.make(key, Coding::Zstd, Effort::Fast, &content);
    assert_eq!(store.get(key, Coding::Zstd, Effort::Fast), Some(made));
}

#[test]
fn results_stay_in_memory_if_the_folder_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    folder.close().unwrap();
    for is_text in [true, false] {
        let content = content(is_text);
        let key = Key::of(&content);
        let made = store.make(key, Coding::Gzip, Effort::Fast, &content);
        assert_eq!(store.get(key, Coding::Gzip, Effort::Fast), Some(made));
    }
    assert_eq!(in_memory(&store), (1, 1));
}

#[test]
fn the_number_of_results_without_bytes_is_limited() {
    let mut memory = Memory::default();
    for n in 0..=MAX_NOT_WORTH_IT as u64 {
        memory.note_not_worth_it(Form {
            key: Key::of(&n.to_le_bytes()),
            coding: Coding::Gzip,
            effort: Effort::Fast,
        });
    }
    assert_eq!(memory.not_worth_it.len(), 1);
}
