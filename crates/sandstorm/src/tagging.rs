//! Reads the files on the disk while the site is served, and gives them entity tags and charsets.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use control::FileRead;

use crate::digest::{Digest, Digester};
use crate::disk::{Buffer, CHUNK_LEN, DiskFile, ReadError};
use crate::improving::{Done, Pauses};
use crate::site::Site;
use crate::tag_key::TagKey;

/// Length of what one step reads, in bytes. A reload waits for a step.
const STEP_LEN: usize = 8 << 20;
/// Maximum time without reading after a step.
const MAX_REST: Duration = Duration::from_millis(100);
/// Reads files step by step. Short files come first.
#[derive(Debug)]
pub(crate) struct Tagging(Mutex<TaggingState>);

#[derive(Debug)]
struct TaggingState {
    /// The site that the files belong to.
    site: Option<Arc<Site>>,
    /// The files without a tag, longest first.
    files: Vec<Arc<DiskFile>>,
    current: Option<FileBeingTagged>,
    /// The results by the numbers of files, as far as they are not part of the site.
    digests: HashMap<u32, Digest>,
    /// The numbers of files that cannot be read. They are tried again after a reload.
    failed: HashSet<u32>,
    pauses: Pauses,
}

/// A file that is being read.
struct FileBeingTagged {
    file: Arc<DiskFile>,
    opened: File,
    next_chunk: u32,
    /// The chunk that was read last.
    buffer: Buffer,
    digester: Digester,
}

impl std::fmt::Debug for FileBeingTagged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileBeingTagged")
            .field("file", &self.file)
            .field("next_chunk", &self.next_chunk)
            .finish_non_exhaustive()
    }
}

impl Default for Tagging {
    fn default() -> Self {
        Self(Mutex::new(TaggingState {
            site: None,
            files: Vec::new(),
            current: None,
            digests: HashMap::new(),
            failed: HashSet::new(),
            pauses: Pauses::default(),
        }))
    }
}

impl Tagging {
    /// Lets files be tried again that could not be read, because the folder is loaded again.
    pub(crate) fn try_again(&self) {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.failed.clear();
    }

    /// Does the next piece of work for `site`.
    pub(crate) fn step(&self, site: &Arc<Site>) -> Done {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Arc<Site>| Arc::ptr_eq(known, site);
        if !work.site.as_ref().is_some_and(is_same) {
            work.begin(site);
        }
        let is_done = !work.read_on();
        if !work.digests.is_empty() && (is_done || work.pauses.is_over()) {
            let digests = std::mem::take(&mut work.digests);
            return Done::Site(Box::new(site.with_digests(&digests)));
        }
        if is_done { Done::Nothing } else { Done::Some }
    }
}

impl TaggingState {
    /// Begins with another site. A file that is being read stays if the site has it too.
    fn begin(&mut self, site: &Arc<Site>) {
        let mut files: Vec<_> = site.untagged().collect();
        let untagged: HashSet<_> = files.iter().map(|file| file.number()).collect();
        // A site that changes all the time gets the digests of files that stay.
        self.digests.retain(|number, _| untagged.contains(number));
        let (digests, failed) = (&self.digests, &self.failed);
        files.retain(|file| {
            let number = file.number();
            !digests.contains_key(&number) && !failed.contains(&number)
        });
        files.sort_by_key(|file| std::cmp::Reverse((file.len(), file.number())));
        files.dedup_by_key(|file| file.number());
        let current = self.current.take();
        self.current = current.filter(|current| {
            let number = current.file.number();
            let known = files.iter().position(|file| file.number() == number);
            known.map(|at| files.remove(at)).is_some()
        });
        self.files = files;
        self.site = Some(Arc::clone(site));
        if self.digests.is_empty() {
            self.pauses.begin();
        }
    }

    /// Reads more. Returns false if there is nothing to read. Half of the time goes by without reading,
    /// because clients' files are read from the same disk.
    fn read_on(&mut self) -> bool {
        let start = Instant::now();
        let has_more = self.read_step();
        if has_more {
            std::thread::sleep(start.elapsed().min(MAX_REST));
        }
        has_more
    }

    fn read_step(&mut self) -> bool {
        let mut left = STEP_LEN / CHUNK_LEN;
        while left > 0 {
            let Some(current) = &mut self.current else {
                let Some(file) = self.files.pop() else {
                    return false;
                };
                let key = self.site.as_ref().map(|site| site.tag_key().clone());
                match FileBeingTagged::begin(&file, &key.unwrap_or_default()) {
                    Ok(reading) => self.current = Some(reading),
                    Err(error) => self.fail(&file, &error),
                }
                continue;
            };
            left -= 1;
            match current.read_chunk() {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(current) = self.current.take() {
                        let digest = current.digester.finish();
                        self.digests.insert(current.file.number(), digest);
                    }
                }
                Err(error) => {
                    let file = Arc::clone(&current.file);
                    self.current = None;
                    self.fail(&file, &error);
                }
            }
        }
        true
    }

    fn fail(&mut self, file: &DiskFile, error: &ReadError) {
        tracing::info!("{} gets no tag: it {error}", file.path().display());
        self.failed.insert(file.number());
    }
}

impl FileBeingTagged {
    fn begin(file: &Arc<DiskFile>, key: &TagKey) -> Result<Self, ReadError> {
        Ok(Self {
            opened: file.open()?,
            file: Arc::clone(file),
            next_chunk: 0,
            buffer: Buffer::default(),
            digester: Digester::new(key),
        })
    }

    /// Reads the next chunk. Returns true after the last one.
    fn read_chunk(&mut self) -> Result<bool, ReadError> {
        let chunk = self.next_chunk;
        let buffers = std::slice::from_mut(&mut self.buffer);
        self.file
            .read(&self.opened, chunk, buffers, FileRead::Cached)?;
        self.digester
            .add(self.buffer.chunk(self.file.chunk_len(chunk)));
        self.next_chunk += 1;
        Ok(self.file.chunk_len(self.next_chunk) == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::limits::Limits;
    use crate::memory_budget::MemoryBudget;
    use crate::part::ProgramPart;
    use crate::settings::Settings;

    /// Makes `count` files of 1/8 of a step, and a part that has all of them on the disk.
    fn part(folder: &Path, count: usize) -> ProgramPart {
        fs::create_dir(folder.join("below")).unwrap();
        for number in 0..count {
            let file = fs::File::create(folder.join(format!("below/{number}"))).unwrap();
            file.set_len(STEP_LEN as u64 / 8).unwrap();
        }
        // Only files of some age are recognised.
        std::thread::sleep(Duration::from_secs(3));
        let settings = Settings {
            memory: Some(MemoryBudget::new(0)),
            ..Settings::default()
        };
        let site = Site::load_with(folder, &Limits::default(), &settings, |_| {});
        let mut part = ProgramPart::new(Arc::new(site.unwrap()), folder);
        part.allow_reloads(Limits::default(), false);
        part
    }

    fn reload(part: &ProgramPart) {
        part.set_site(&part.load_next(0, true).unwrap().site);
    }

    #[test]
    fn files_get_their_tags_although_the_site_changes_more_often() {
        let folder = tempfile::tempdir().unwrap();
        let part = part(folder.path(), 16);
        for _ in 0..2 {
            assert!(matches!(part.tag(), Done::Some), "it has read 8 files");
            fs::write(folder.path().join("new"), "new").unwrap();
            reload(&part);
        }
        let Done::Site(next) = part.tag() else {
            panic!("files are read again and again");
        };
        assert_eq!(next.site.untagged().count(), 0);
    }

    #[test]
    fn a_file_that_could_not_be_read_is_tried_again_after_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let part = part(folder.path(), 1);
        let [below, away] = ["below", "away"].map(|name| folder.path().join(name));
        fs::rename(&below, &away).unwrap();
        assert!(matches!(part.tag(), Done::Nothing));
        fs::rename(&away, &below).unwrap();
        assert!(matches!(part.tag(), Done::Nothing));
        reload(&part);
        let Done::Site(next) = part.tag() else {
            panic!("it is not tried again");
        };
        assert_eq!(next.site.untagged().count(), 0);
    }
}
