//! Takes over other options of sites from a configuration file that was read again.

use control::{StartError, config};

use super::Sandstorm;
use crate::part::{Loading, Part};
use crate::site_options::SiteSource;

/// Other options of sites, which were checked.
#[derive(Debug, Default)]
pub struct NextSites<'p>(Vec<(&'p Part, Loading)>);

impl NextSites<'_> {
    /// Lets the next reload of each site use its options. If it fails, the one after it uses them.
    pub fn take(self) {
        for (part, next) in self.0 {
            part.set_next(next);
        }
    }

    /// Adds the options of further sites.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl<A, F, C> Sandstorm<A, F, C> {
    /// Checks other options for the sites of this program. `sources` has all sites, each with its number at
    /// the start.
    ///
    /// # Errors
    /// If an option is wrong or needs another start.
    pub(crate) fn check_next(
        &self,
        sources: &[(usize, SiteSource<'_>)],
    ) -> Result<NextSites<'_>, StartError> {
        let mut all = NextSites::default();
        for part in &self.parts {
            let mut known = sources.iter();
            let Some((_, source)) = known.find(|(number, _)| *number == part.number()) else {
                continue;
            };
            let next = source.next(&part.loading(), sources.len())?;
            if let Some(realm) = next.settings.realms.first()
                && !self.has_realms()
            {
                let value = format!("{}={}", realm.path, realm.file.display());
                let place = config::before(&value);
                return Err(format!(
                    "{place}the server has asked for no passwords at its start, so it has no thread that \
                     checks them; restart it"
                )
                .into());
            }
            all.0.push((part, next));
        }
        Ok(all)
    }
}
