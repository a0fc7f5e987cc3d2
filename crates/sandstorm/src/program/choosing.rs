//! Chooses how a program sends its packets.

use std::sync::Arc;

use control::WorkerContext;

use super::{Sandstorm, addresses};
use crate::known_sites::HostedId;
use crate::sending::{Sending, SiteDemand};
use crate::server::{packets, packets_to_come};
use crate::site::Site;

impl<A, F, C> Sandstorm<A, F, C> {
    /// How packets are sent.
    pub(super) fn sending(&self, context: &WorkerContext) -> &Sending {
        self.sending.get_or_init(|| self.choose_sending(context))
    }

    fn choose_sending(&self, context: &WorkerContext) -> Sending {
        let addresses = addresses(context);
        let to_come = |site: &Site| packets_to_come(site, &addresses, context.mtu);
        let parts = self.parts.now();
        let sites: Vec<_> = parts.iter().map(|one| one.part.site()).collect();
        let all = self.packets(context).count;
        let all = all + sites.iter().map(|site| to_come(site)).sum::<u64>();
        if !self.chooses_mode {
            return Sending::forced(self.tcp.mode, all);
        }
        let content = |site: &Arc<Site>| SiteDemand {
            packets: packets(site, &addresses, context.mtu).count + to_come(site),
            used: site.totals().memory(),
            memory: site.settings().memory,
        };
        let sites: Vec<_> = sites.iter().map(content).collect();
        Sending::chosen(&sites, all, context)
    }

    /// What resident packets take from the budget of the site with this number, in bytes. Sites that were added
    /// later have none of their own.
    pub(super) fn taken_from(&self, id: HostedId) -> u64 {
        let index = usize::from(id.0).checked_sub(1);
        let sending = self.sending.get().zip(index);
        sending.map_or(0, |(sending, index)| sending.taken_from(index))
    }
}
