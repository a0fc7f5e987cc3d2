//! Takes over other options of sites from a configuration file that was read again.

use control::{StartError, config};

use super::{Sandstorm, members};
use crate::hosts::HostName;
use crate::next_sites::{NextPart, NextSites};
use crate::part::Part;
use crate::site_options::SiteSource;

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
                all.kept.push(part);
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
            let mut hosts = source.hosts().to_vec();
            // Without hosts, the workers look for none, and count and log for a single site.
            if hosts != part.hosts() && self.site().by_host().is_none() {
                all.restart
                    .push(format!("hosts of {}", source.with_place()));
                hosts = part.hosts();
            }
            // A site that the file no longer has keeps its hosts until the server starts again.
            let is_new = |host: &&HostName| !part.hosts().contains(host);
            let stay = |host: &HostName| self.stays(sources, host);
            if hosts.iter().filter(is_new).any(stay) {
                all.restart
                    .push(format!("hosts of {}", source.with_place()));
                hosts = part.hosts();
            }
            all.sites.push(NextPart {
                part,
                loading: next,
                hosts,
            });
        }
        Ok(all)
    }

    /// Returns true if a part whose site is not among these has this host.
    fn stays(&self, sources: &[(usize, SiteSource<'_>)], host: &HostName) -> bool {
        let is_known = |part: &&Part| sources.iter().any(|(number, _)| *number == part.number());
        let mut others = self.parts.iter().filter(|part| !is_known(part));
        others.any(|part| part.hosts().contains(host))
    }

    /// Lets hosts lead to the sites that are to be served for them from now on. Returns true if some hosts
    /// have changed.
    pub(super) fn change_hosts(&self) -> bool {
        let changed = self.parts.iter().filter(|part| part.change_hosts()).count();
        if changed > 0 {
            let old = self.site();
            let next = old.next_by_hosts(&members(&self.parts, &self.redirecting), None);
            self.change_site(&old, next);
        }
        changed > 0
    }
}
