//! Takes over other sites and other options of sites from a configuration file that was read again.

use std::path::PathBuf;
use std::sync::Arc;

use control::StartError;

use super::Sandstorm;
use crate::loading::Loading;
use crate::next_sites::NextParts;
use crate::part::ProgramPart;
use crate::parts::{Redirecting, Served};
use crate::site_options::SiteSource;
use crate::sites::RereadConfig;

impl<A, F, C> Sandstorm<A, F, C> {
    /// The names of the sites that are served.
    pub(crate) fn names(&self) -> Vec<String> {
        let parts = self.parts.now();
        let names = parts.iter().map(|one| one.part.name().to_owned());
        names.collect()
    }

    /// The names of all sites that were served since the start.
    pub(crate) fn known_names(&self) -> Vec<String> {
        let known = self.parts.known();
        known.names().map(str::to_owned).collect()
    }

    /// Whether this program serves the site with this number.
    pub(crate) fn has_number(&self, number: usize) -> bool {
        self.part(number).is_some()
    }

    /// Returns the served part with this number. One that was never served is made anew from the newest file.
    fn part(&self, number: usize) -> Option<Served> {
        let parts = self.parts.now();
        let mut parts = parts.iter();
        parts.find(|one| one.part.number() == number).cloned()
    }

    /// Whether this program can serve a new site without a restart. `stores` are the folders in which the server
    /// may write.
    pub(crate) fn may_add(&self, source: &SiteSource<'_>, stores: &[PathBuf]) -> bool {
        let has_store = |store| stores.iter().any(|known| known == store);
        self.at_start.port.as_ref() == Some(&source.port_options())
            && self.access_logs.suffice_for(source.log())
            && source.store().is_none_or(has_store)
    }

    /// Whether a reload may add so many sites to all that were served since the start.
    pub(crate) fn has_room_for(&self, more: usize) -> bool {
        self.parts.known().has_room_for(more)
    }

    /// Checks what a file says about the sites of this program. Adds what needs a restart to `reading`.
    ///
    /// # Errors
    /// If an option is wrong or needs another start.
    pub(crate) fn check_next(
        &self,
        reading: &mut RereadConfig<'_>,
    ) -> Result<NextParts<'_>, StartError> {
        let mut loadings = Vec::new();
        let (mut known, mut new) = (Vec::new(), Vec::new());
        let count = reading.sources.len();
        for (number, source) in reading.sources {
            if let Some(one) = self.part(*number) {
                let loading = source.next(&one.part.loading(), count)?;
                // A site with its old options may keep the old content of a file that changes all the time.
                if loading != *one.part.loading() {
                    loadings.push((Arc::clone(&one.part), loading));
                }
                known.push(with_next_hosts(&one, source));
            } else if !reading.taken.waiting.contains(number)
                && self.may_add(source, &reading.stores)
            {
                let (one, loading) = self.new_part(*number, source, reading)?;
                loadings.push((Arc::clone(&one.part), loading));
                new.push(one);
            }
        }
        let now = self.parts.now();
        let place = |of: &Served| now.iter().position(|one| one.is(&of.part));
        known.sort_by_key(place);
        let is_left = known.is_empty() && new.is_empty();
        let is_gone = |one: &&Served| !known.iter().any(|other| other.is(&one.part));
        let gone = now.iter().filter(is_gone).cloned();
        let stays = |one: &Served| is_left || is_only_moved(one, reading);
        let (staying, leaving): (Vec<_>, Vec<_>) = gone.partition(stays);
        let number = |one: &Served| one.part.number();
        let taken = &mut reading.taken;
        taken.staying.extend(staying.iter().map(number));
        taken.leaving.extend(leaving.iter().map(number));
        taken.added.extend(new.iter().map(number));
        Ok(NextParts {
            parts: &self.parts,
            // The hosts of those that stay lead to the others first.
            next: known.into_iter().chain(new).chain(staying).collect(),
            loadings,
        })
    }

    /// Makes the part of a new site.
    fn new_part(
        &self,
        number: usize,
        source: &SiteSource<'_>,
        reading: &mut RereadConfig<'_>,
    ) -> Result<(Served, Loading), StartError> {
        let loading = source.first(reading.sources.len())?;
        let name = reading.new_name(source, &self.known_names());
        let known = self.parts.known();
        let id = known.number_of(&name);
        let name = self.parts.keep_name(name);
        let log = self.access_logs.index_of(source.log());
        let redirecting = Redirecting::all(source.redirect_hosts(), &loading.settings.fields);
        let served = Served {
            part: Arc::new(ProgramPart::to_be_loaded(number, name, log, &loading)),
            hosts: source.hosts().to_vec(),
            redirecting,
            id,
        };
        Ok((served, loading))
    }
}

/// Returns a part with the hosts of a changed file, also those that are sent elsewhere.
fn with_next_hosts(one: &Served, source: &SiteSource<'_>) -> Served {
    let fields = one.part.site().fields_everywhere();
    let redirect_hosts = source.redirect_hosts();
    Served {
        hosts: source.hosts().to_vec(),
        redirecting: Redirecting::all_after(&one.redirecting, redirect_hosts, &fields),
        ..one.clone()
    }
}

/// Whether a site that the file no longer has is there on another port, or with other options that need a
/// restart.
fn is_only_moved(one: &Served, reading: &RereadConfig<'_>) -> bool {
    let folder = one.part.loading().folder.clone();
    let is_it = |source: &SiteSource<'_>| {
        let has_hosts = !one.hosts.is_empty() && source.hosts() == one.hosts;
        source.folder == folder || has_hosts
    };
    let waiting = &reading.taken.waiting;
    let mut sources = reading.sources.iter();
    sources.any(|(number, source)| waiting.contains(number) && is_it(source))
}
