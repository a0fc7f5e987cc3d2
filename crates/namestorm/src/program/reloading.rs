//! Reads zones again while their old answers are served.

use std::collections::HashSet;
use std::sync::Arc;

use control::report::{count, counted};
use control::{Named, NewWorker, Reloaded, StartError};

use super::source::{Given, Source};
use super::{LoadError, Namestorm, locked};
use crate::answers::Answers;
use crate::defence::both_reloaded;
use crate::hook::Hook;
use crate::name::Name;
use crate::turnover::NewAnswers;
use crate::zone_args::NoZones;
use crate::zone_files::{ReadAgain, UnservedFile, ZoneFiles, faulty_files};

impl<H, F> Namestorm<H, F>
where
    H: Hook + Named,
    F: Fn(&mut NewWorker<H::Message>) -> Result<H, StartError> + Sync,
{
    /// Reads the zones that have changed again, except those that were `just_read`. Other threads cannot help,
    /// because the rights of the reload thread are its own. Also returns warnings about zones that are no
    /// longer served.
    fn read_again(
        &self,
        given: &Given,
        known: &ZoneFiles,
        just_read: &[usize],
    ) -> Result<(ZoneFiles, Vec<String>), StartError> {
        let (specs, warnings) = given.zones.specs_again()?;
        let files = known.read_others(just_read, &specs, 1, &mut warn);
        if let Some((path, reason)) = files.hidden_since(known) {
            let (pattern, path) = (None, path.to_owned());
            return Err(NoZones::Unreadable {
                pattern,
                path,
                reason,
            }
            .into());
        }
        self.note(|inventory| inventory.note_stale(files.stale()));
        Ok((files, warnings))
    }

    /// Lets the workers reply from other answers, and waits until they need nothing of the old ones.
    fn hand_over(&self, new: &Arc<Answers>, old: Arc<Answers>) {
        let change = || *locked(&self.answers) = Arc::clone(new);
        let has_same_numbers = Arc::ptr_eq(new.zone_counts(), old.zone_counts());
        self.handover.send(change, || NewAnswers {
            answers: Arc::clone(new),
            counts: (!has_same_numbers).then(|| new.zone_counts().open()),
        });
        // This is the last reference, so no worker has to free the old answers.
        drop(old);
    }

    /// Serves the zones of `files` instead of the `known` ones, and tells all who need to know.
    fn change_to(&self, files: ZoneFiles, known: &mut ZoneFiles) {
        let old = self.answers();
        let new = if files.differ_from(known) {
            let new = Arc::new(files.answers_after(known, &old));
            self.hand_over(&new, old);
            new
        } else {
            old
        };
        self.note_change(files, known, &new);
    }

    /// Tells all who need to know that the zones of `files` are served with these answers, instead of the
    /// `known` zones.
    fn note_change(&self, files: ZoneFiles, known: &mut ZoneFiles, new: &Answers) {
        if let Some(notifier) = &self.notifier {
            notifier.note_change(&files, known);
        }
        self.note(|inventory| inventory.note_reloaded(&files, known, new));
        files.index_paths();
        *known = files;
    }

    /// Serves zones that were read again, and then tells all who need to know. Returns their numbers. Only the
    /// copy of the list of answers takes time for each zone of the server before the hand-over.
    fn serve_again(&self, read: ReadAgain, known: &mut ZoneFiles) -> Vec<usize> {
        let old = self.answers();
        let new = Arc::new(read.answers_after(&old));
        self.hand_over(&new, old);
        let numbers = read.numbers();
        let files = known.with_zones(read);
        self.note_change(files, known, &new);
        for at in &numbers {
            self.note(|inventory| inventory.note_correct_file(known.facts_of(*at).spec()));
        }
        numbers
    }

    /// Serves the zones at once whose files have changed according to the kernel, if they are few. Returns
    /// their numbers. Everything else is left to the look at all files, also errors in these zones.
    fn reload_hinted(&self, source: &Source, given: &Given, known: &mut ZoneFiles) -> Vec<usize> {
        let changed = source.hints.take();
        let is_all_or_nothing = given.strict;
        if is_all_or_nothing || source.has_next() {
            return Vec::new();
        }
        let read = known.read_hinted(&changed, &mut warn);
        read.map_or_else(Vec::new, |read| self.serve_again(read, known))
    }

    /// Reads the zone named `apex` again, and serves it. Returns false if no such zone is served, or if its
    /// file now holds another one. Then the look at all files finds the zone, or tells why there is none.
    fn reload_one(&self, apex: &[u8], known: &mut ZoneFiles) -> Result<bool, StartError> {
        let Some(at) = self.position(known, apex) else {
            return Ok(false);
        };
        let read = known.read_one(at, &mut warn).map_err(|file| {
            self.note(|inventory| inventory.note_stale_file(&file));
            known.note_tried([&*file]);
            file.cannot_be_loaded(apex)
        })?;
        let Some(read) = read else {
            return Ok(false);
        };
        self.serve_again(read, known);
        Ok(true)
    }

    /// Returns the number in `files` of the zone named `apex`.
    fn position(&self, files: &ZoneFiles, apex: &[u8]) -> Option<usize> {
        files.position(apex, self.answers().number_of(apex))
    }

    /// Returns the result of a reload that has read this number of zones, for the operator.
    fn done(&self, read: usize, changes: &str) -> String {
        let size = *self.answers().size();
        let [zones, names] = [(size.zones, "zone"), (size.names, "name")]
            .map(|(number, of)| counted(number as u64, of));
        let read = count(read as u64);
        format!("{zones}, {names}; {read} read again{changes}")
    }

    /// Reads the zone named `only` again, or else all zones that have changed, and hands the answers to
    /// the workers.
    fn reload_from(&self, source: &Source, only: Option<&str>) -> Result<Reloaded, StartError> {
        let known = &mut *locked(&source.files);
        if let Some(name) = only {
            let apex = name.parse::<Name>()?.as_wire().to_ascii_lowercase();
            if self.reload_one(&apex, known)? {
                let (done, kept) = (self.done(1, ""), None);
                return Ok(Reloaded { done, kept });
            }
            // A reload of one zone changes nothing else, so it does not use other options.
            return self.reload_rest(source, source.given(), known, Some((name, &apex)), &[]);
        }
        let given = source.newest();
        let just_read = self.reload_hinted(source, &given, known);
        let outcome = self.reload_rest(source, given, known, None, &just_read);
        outcome.or_else(|error| match just_read.len() as u64 {
            0 => Err(error),
            read => Ok(Reloaded {
                done: format!("{} read again", counted(read, "zone")),
                kept: Some(error.to_string()),
            }),
        })
    }

    /// Same as [`reload_from`](Self::reload_from), after the zones that have the numbers `just_read` in `known`.
    /// The zone named `only` is given with its name in wire format.
    fn reload_rest(
        &self,
        source: &Source,
        given: Given,
        known: &mut ZoneFiles,
        only: Option<(&str, &[u8])>,
        just_read: &[usize],
    ) -> Result<Reloaded, StartError> {
        let (files, warnings) = self.read_again(&given, known, just_read)?;
        known.note_tried(files.stale().iter().chain(files.unserved().iter()));
        let before: HashSet<_> = known.unserved().iter().map(UnservedFile::spec).collect();
        let is_new = |file: &&UnservedFile| !before.contains(file.spec());
        let unserved: Vec<_> = files.unserved().iter().filter(is_new).collect();
        for file in &unserved {
            warn(file.to_string());
        }
        let stale = files.stale();
        if let Some((name, apex)) = only
            && self.position(&files, apex).is_none()
        {
            return Err(files.why_missing(name, apex).into());
        }
        // If no other zone has changed, nothing is reloaded.
        if (given.strict && !(stale.is_empty() && unserved.is_empty()))
            || (just_read.is_empty() && !stale.is_empty() && !files.differ_from(known))
        {
            let all = stale.iter().chain(unserved.iter().copied());
            return Err(faulty_files(all).unwrap_or_default().into());
        }
        if files.good() == 0 {
            return Err(LoadError::Nothing.into());
        }
        // Who asks for one zone need not know what is wrong with others.
        let kept = match only {
            Some(_) => None,
            None => faulty_files(stale.iter().chain(files.unserved().iter())),
        };
        let read = files.read_count();
        let changes = files.changes_since(known);
        self.change_to(files, known);
        if only.is_none() {
            source.note_used(given);
        }
        warnings.into_iter().for_each(warn);
        let done = self.done(read, &changes);
        Ok(Reloaded { done, kept })
    }

    /// Reads what defends the server again, and then all zones that have changed. Messages about these zones
    /// have signatures of the new keys.
    pub(super) fn reload_all(&self) -> Result<Reloaded, StartError> {
        let errors = self.defence.secrets().reload();
        self.give_keys();
        both_reloaded(self.reload_zones(None), &errors)
    }

    /// Lets messages to secondary servers have signatures of the newest keys.
    pub(super) fn give_keys(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.set_keys(&self.defence.secrets().keys());
        }
    }

    /// Reads the zone named `only` again, or else all zones that have changed.
    pub(super) fn reload_zones(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let source = self.source.as_ref().ok_or("the zones are not from files")?;
        let outcome = self.reload_from(source, only);
        // Otherwise, the reason would only be a permission that nobody has taken away.
        match (source.folders.replaced(), outcome) {
            (Some(why), Err(error)) => Err(format!("{error}; {why}").into()),
            (Some(why), Ok(Reloaded { done, kept })) => Ok(Reloaded {
                done,
                kept: kept.map(|kept| format!("{kept}; {why}")),
            }),
            (None, outcome) => outcome,
        }
    }
}

/// Logs a finding about a zone.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is passed to functions that give a `String`"
)]
fn warn(line: String) {
    tracing::warn!("{line}");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::unix::fs::symlink;
    use std::thread;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use clap::Parser;
    use control::{Program as _, Readers, Tally, Watched};
    use domain::base::Message;
    use domain::rdata::Soa;
    use nmio::device::Device;
    use testkit::tsig::{KEY_FILE, NAME, Signature, code_of, take_off};

    use crate::defence::DefenceArgs;
    use crate::key::Form;
    use crate::program::{Namestorm, locked};
    use crate::zone_args::ZoneArgs;

    const GOOD: &str = "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n";

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        zones: ZoneArgs,
        #[command(flatten)]
        defence: DefenceArgs,
    }

    #[test]
    fn the_last_file_of_a_pattern_takes_only_its_own_zone_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
            write(&format!("{name}/{name}.test.zone"), GOOD);
        }
        let patterns = [path("a/*.zone"), path("b/*.zone")];
        let options = [
            "",
            "--zones-from",
            &patterns[0],
            "--zones-from",
            &patterns[1],
        ];
        let zones = Options::parse_from(options).zones;
        let program = Namestorm::load_from(zones.clone(), Form::Wire, false, &mut |_| {}).unwrap();
        let done = |only| program.reload(only).map(|reloaded| reloaded.done);
        write("a/a.test.zone", &format!("{GOOD}new 60 A 192.0.2.2\n"));
        fs::remove_file(path("b/b.test.zone")).unwrap();
        let told = done(None).unwrap();
        assert_eq!(told, "1 zone, 3 names; 1 read again; removed: b.test.");
        let (specs, warnings) = zones.specs_again().unwrap();
        assert_eq!((specs.len(), warnings.len()), (1, 1));
        let expected = format!("no zone file matches {} any more", patterns[1]);
        assert!(warnings[0].starts_with(&expected), "{warnings:?}");
        // A start without the zones fails.
        assert!(zones.specs().is_err());
        write("b/c.test.zone", GOOD);
        assert!(done(None).unwrap().ends_with("; new: c.test."));
        // A folder that is missing may come back, and its zones stay until then.
        fs::rename(path("b"), path("c")).unwrap();
        let error = done(None).unwrap_err().to_string();
        assert!(error.contains("no zone file matches"), "{error}");
        fs::rename(path("c"), path("b")).unwrap();
        done(None).unwrap();
        // A server always has a zone.
        for file in ["a/a.test.zone", "b/c.test.zone"] {
            fs::remove_file(path(file)).unwrap();
        }
        let error = done(None).unwrap_err().to_string();
        assert!(error.contains("no zone file matches"), "{error}");
    }

    /// A correction may be in a file that only a zone with errors includes, even in one that was missing.
    #[test]
    fn the_files_of_zones_with_errors_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let include = |name: &str| format!("{GOOD}$INCLUDE parts/{name}\n");
        let wrong = "x 60 A nonsense\n";
        fs::create_dir(path("parts")).unwrap();
        write("a.test.zone", GOOD);
        write("b.test.zone", &include("first"));
        write("parts/first", wrong);
        let files = ["a", "b"].map(|name| path(&format!("{name}.test.zone")));
        let [a, b] = files.each_ref().map(|file| file.to_str().unwrap());
        let zones = Options::parse_from(["", "--zone", a, "--zone", b]).zones;
        let program = Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap();
        let is_watched = |name: &str| {
            let file = Watched::Entry(path("parts").join(name));
            program.watched().contains(&file)
        };
        assert!(is_watched("first"), "a zone that is not served");
        write("a.test.zone", &include("missing"));
        assert!(program.reload(None).is_err() && is_watched("missing"));
        write("parts/alone", wrong);
        write("a.test.zone", &include("alone"));
        assert!(program.reload(Some("a.test")).is_err() && is_watched("alone"));
        // The files are no longer of interest once another reading has other ones.
        write("a.test.zone", &format!("{GOOD}new 60 A 192.0.2.2\n"));
        program.reload(None).unwrap();
        assert!(is_watched("first") && !is_watched("missing") && !is_watched("alone"));
    }

    /// Zones in a folder, and the server of them.
    struct Hinted {
        folder: tempfile::TempDir,
        program: Namestorm,
    }

    impl Hinted {
        fn new(zones: &[&str], strict: bool) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = |name: &str| folder.path().join(name).with_extension("test.zone");
            for name in zones {
                fs::write(file(name), GOOD).unwrap();
            }
            let pattern = folder.path().join("*.zone");
            let options = ["", "--zones-from", pattern.to_str().unwrap()];
            let zones = Options::parse_from(options).zones;
            let program = Namestorm::load_from(zones, Form::Wire, strict, &mut |_| {}).unwrap();
            Self { folder, program }
        }

        /// Replaces a file by another one with this text.
        fn replace(&self, name: &str, text: &str) {
            let next = self.folder.path().join("next");
            fs::write(&next, text).unwrap();
            fs::rename(next, self.folder.path().join(name)).unwrap();
        }

        /// Serves the zones for which there are hints, and returns their numbers.
        fn take_hints(&self) -> Vec<usize> {
            let source = self.program.source.as_ref().unwrap();
            let known = &mut *locked(&source.files);
            self.program.reload_hinted(source, &source.newest(), known)
        }

        fn names(&self) -> usize {
            self.program.answers().size().names
        }

        /// Returns the numbers of zones that are served, old, broken, and given twice.
        fn states(&self) -> Vec<u64> {
            let inventory = self.program.inventory.as_ref().unwrap();
            inventory.by_state().map(|(_, number)| number).collect()
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_zone_with_a_hint_is_served_before_the_look_at_all_files() {
        let more = format!("{GOOD}new 60 A 192.0.2.2\n");
        let served = Hinted::new(&["a", "b"], false);
        assert!(served.take_hints().is_empty());
        served.replace("b.test.zone", &more);
        assert_eq!((served.take_hints(), served.names()), (vec![1], 5));
        // The file is so young that it counts as changed, but it is read only once.
        let done = |served: &Hinted| served.program.reload(None).unwrap().done;
        let a = served.folder.path().join("a.test.zone");
        fs::write(&a, &more).unwrap();
        served.replace("b.test.zone", GOOD);
        assert_eq!(done(&served), "2 zones, 5 names; 2 read again");
        // Errors are left to the look at all files.
        served.replace("a.test.zone", "nonsense\n");
        served.replace("b.test.zone", &more);
        let reloaded = served.program.reload(None).unwrap();
        assert_eq!(reloaded.done, "2 zones, 6 names; 2 read again");
        assert!(reloaded.kept.unwrap().contains("zones with errors: 1; "));
        assert_eq!(served.names(), 6);
        served.replace("a.test.zone", &format!("$ORIGIN x.test.\n{GOOD}"));
        assert!(served.take_hints().is_empty(), "another zone");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_new_file_with_an_error_is_known_beside_zones_with_hints() {
        let served = Hinted::new(&["a", "b"], false);
        served.replace("a.test.zone", &format!("{GOOD}new 60 A 192.0.2.2\n"));
        served.replace("b.test.zone", "nonsense\n");
        served.replace("c.test.zone", &format!("$ORIGIN a.test.\n{GOOD}"));
        let reloaded = served.program.reload(None).unwrap();
        assert_eq!(reloaded.done, "2 zones, 5 names; 3 read again");
        assert_eq!(served.states(), [1, 1, 0, 1]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_corrected_zone_with_a_hint_is_not_old_before_the_look_at_all_files() {
        let served = Hinted::new(&["a"], false);
        served.replace("a.test.zone", "nonsense\n");
        assert!(served.program.reload(None).is_err());
        assert_eq!(served.states(), [0, 1, 0, 0]);
        served.replace("a.test.zone", &format!("{GOOD}new 60 A 192.0.2.2\n"));
        assert_eq!(served.take_hints(), [0]);
        assert_eq!((served.states(), served.names()), (vec![1, 0, 0, 0], 3));
    }

    #[test]
    fn hints_are_not_needed() {
        let more = format!("{GOOD}new 60 A 192.0.2.2\n");
        let served = Hinted::new(&["a", "b"], true);
        served.replace("b.test.zone", &more);
        assert!(served.take_hints().is_empty(), "all or nothing");
        let done = |served: &Hinted| served.program.reload(None).unwrap().done;
        assert!(done(&served).starts_with("2 zones, 5 names; "));
        // The kernel does not watch a folder that has taken the place of another one.
        let served = Hinted::new(&["a"], false);
        let zones = served.folder.path();
        let old = zones.with_extension("old");
        fs::rename(zones, &old).unwrap();
        fs::create_dir(zones).unwrap();
        served.replace("a.test.zone", &more);
        assert!(served.take_hints().is_empty());
        assert_eq!(done(&served), "1 zone, 3 names; 1 read again");
        fs::remove_dir_all(old).unwrap();
        // Of many zones, none is read before the others.
        let names: Vec<_> = (0..65).map(|number| format!("z{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let served = Hinted::new(&names, false);
        for name in &names {
            served.replace(&format!("{name}.test.zone"), &more);
        }
        assert!(served.take_hints().is_empty());
        assert_eq!(done(&served), "65 zones, 195 names; 65 read again");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_a_zone_includes_has_hints() {
        let served = Hinted::new(&["a"], false);
        let parts = served.folder.path().join("parts");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("hosts"), "one 60 A 192.0.2.2\n").unwrap();
        served.replace("a.test.zone", &format!("{GOOD}$INCLUDE parts/hosts\n"));
        let pattern = served.folder.path().join("*.zone");
        let options = ["", "--zones-from", pattern.to_str().unwrap()];
        let zones = Options::parse_from(options).zones;
        let served = Hinted {
            program: Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap(),
            folder: served.folder,
        };
        let two = "one 60 A 192.0.2.2\ntwo 60 A 192.0.2.3\n";
        fs::write(parts.join("hosts"), two).unwrap();
        assert_eq!((served.take_hints(), served.names()), (vec![0], 4));
    }

    #[test]
    fn a_zone_whose_file_is_hidden_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
            let text = format!("$ORIGIN {name}.test.\n{GOOD}");
            fs::write(path(name).join("zone"), text).unwrap();
        }
        // No path leads through this link. It is no obstacle, because no zone was behind it.
        symlink("c", path("c")).unwrap();
        let pattern = path("*/zone").to_str().unwrap().to_owned();
        let zones = Options::parse_from(["", "--zones-from", &pattern]).zones;
        let program = Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap();
        fs::rename(path("b"), path(".b")).unwrap();
        symlink("b", path("b")).unwrap();
        let error = program.reload(None).unwrap_err().to_string();
        let expected = format!("cannot read {}: ", path("b/zone").display());
        assert!(error.starts_with(&expected), "{error}");
        fs::remove_file(path("b")).unwrap();
        let done = program.reload(None).unwrap().done;
        assert!(done.ends_with("; removed: b.test."), "{done}");
    }

    #[test]
    fn a_zone_that_is_reloaded_alone_succeeds_beside_a_broken_one() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.test.zone", GOOD);
        write("broken.test.zone", "nonsense\n");
        let pattern = folder.path().join("*.zone");
        let options = ["", "--zones-from", pattern.to_str().unwrap()];
        let zones = Options::parse_from(options).zones;
        let program = Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap();
        let kept = |only| program.reload(only).unwrap().kept;
        assert!(kept(None).unwrap().contains("zones with errors: 1; "));
        assert_eq!(kept(Some("a.test")), None);
        write("new.test.zone", GOOD);
        assert_eq!(kept(Some("new.test")), None);
        // A failed reload tells of errors in this zone, or in files that may hold it.
        let error = |only| program.reload(Some(only)).unwrap_err().to_string();
        let told = error("Broken.test");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let expected = format!(
            "broken.test. cannot be loaded: {}:1",
            path("broken.test.zone")
        );
        assert!(told.starts_with(&expected), "{told}");
        let none = "\"none.test\" is no zone; the command zones lists them";
        assert_eq!(error("none.test"), none);
        write("no..name.zone", "nonsense\n");
        let (told, file) = (error("none.test"), path("no..name.zone"));
        let expected = format!("{none}; zones with errors: 1; the first error is {file}:1");
        assert!(told.starts_with(&expected), "{told}");
    }

    /// Ends the thread of NOTIFY when it is dropped, also after a failure.
    struct End<'a>(&'a dyn Readers);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }

    /// Returns the name and the serial of the next message to a secondary server, and acknowledges it.
    fn next_notify(secondary: &UdpSocket) -> (String, u32) {
        let mut message = [0; 512];
        let (len, from) = secondary.recv_from(&mut message).unwrap();
        let parsed = Message::from_octets(message[..len].to_vec()).unwrap();
        message[2] |= 0x80;
        secondary.send_to(&message[..len], from).unwrap();
        let mut records = parsed.answer().unwrap().limit_to::<Soa<_>>();
        let soa = records.next().unwrap().unwrap();
        (soa.owner().to_string(), soa.data().serial().into_int())
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn secondary_servers_hear_of_new_zones_and_new_serials_only() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let second = GOOD.replace(" 1 2 3 4 5", " 2 2 3 4 5");
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        let limit = Some(Duration::from_secs(20));
        secondary.set_read_timeout(limit).unwrap();
        write("a.test.zone", GOOD);
        write("broken.test.zone", "nonsense\n");
        let pattern = folder.path().join("*.zone");
        let address = secondary.local_addr().unwrap().to_string();
        let pattern = pattern.to_str().unwrap();
        let options = ["", "--zones-from", pattern, "--notify", &address];
        let zones = Options::parse_from(options).zones;
        let program = Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap();
        let readers = program.readers();
        let next = || next_notify(&secondary);
        thread::scope(|scope| {
            scope.spawn(|| readers[0].run());
            let _end = End(readers[0]);
            readers[0].serving();
            assert_eq!(next(), ("a.test".to_owned(), 1));
            write("a.test.zone", &second);
            program.reload(Some("a.test")).unwrap();
            assert_eq!(next(), ("a.test".to_owned(), 2));
            // The zone has a new record, but its old serial.
            write("a.test.zone", &format!("{second}new 60 A 192.0.2.2\n"));
            program.reload(None).unwrap();
            write("a.test.zone", "nonsense\n");
            write("b.test.zone", GOOD);
            program.reload(None).unwrap();
            assert_eq!(next(), ("b.test".to_owned(), 1));
            fs::remove_file(folder.path().join("a.test.zone")).unwrap();
            write("broken.test.zone", &second);
            program.reload(None).unwrap();
            assert_eq!(next(), ("broken.test".to_owned(), 2));
        });
    }

    /// Returns the next message without its signature, the code of the signature, and whether it is that of
    /// the key of `testkit`. Also returns the sender.
    fn next_signed(secondary: &UdpSocket) -> (Vec<u8>, Vec<u8>, bool, SocketAddr) {
        let mut message = [0; 512];
        let (len, from) = secondary.recv_from(&mut message).unwrap();
        let (rest, [timers, mac, end]) = take_off(&message[..len]);
        let is_right = mac == code_of(&[], &rest, NAME, &timers, &end);
        (rest, mac, is_right, from)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_reload_signs_with_a_new_secret_at_once_and_a_reply_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        let limit = Duration::from_secs(20);
        secondary.set_read_timeout(Some(limit)).unwrap();
        let (zone, keys) = (path("a.test"), path("keys"));
        write("a.test", GOOD);
        write("keys", "key known { algorithm hmac-sha256; secret AAAA; };");
        let notify = format!("{} known", secondary.local_addr().unwrap());
        let options = [
            "",
            "--zone",
            &zone,
            "--notify",
            &notify,
            "--tsig-keys",
            &keys,
        ];
        let Options { zones, defence } = Options::parse_from(options);
        let program = Namestorm::load_from(zones, Form::Wire, false, &mut |_| {}).unwrap();
        let program = program.with_defence(&defence, &Device::Auto).unwrap();
        let readers = program.readers();
        thread::scope(|scope| {
            scope.spawn(|| readers[0].run());
            let _end = End(readers[0]);
            readers[0].serving();
            assert!(!next_signed(&secondary).2);
            write("keys", KEY_FILE);
            write("a.test", &GOOD.replace(" 1 2 3 4 5", " 2 2 3 4 5"));
            program.reload(None).unwrap();
            let (message, mac, is_right, from) = next_signed(&secondary);
            assert!(is_right);
            let (mut reply, mut refusal) = (message.clone(), message);
            (reply[2], refusal[2], refusal[3]) = (reply[2] | 0x80, refusal[2] | 0x80, 5);
            // This reply has no signature, so it does not count.
            secondary.send_to(&refusal, from).unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let signed = Signature::at(now.as_secs()).sign_reply(&mac, &reply);
            secondary.send_to(&signed, from).unwrap();
            let ended = || {
                let mut tally = Tally::default();
                program.notifier.as_ref().unwrap().tally(&mut tally);
                ["acknowledged", "refused"].map(|result| tally.of_label("notify", result).unwrap())
            };
            let start = Instant::now();
            while ended() == [0, 0] {
                assert!(start.elapsed() < limit);
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(ended(), [1, 0]);
        });
    }
}
