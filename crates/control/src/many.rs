//! Several programs of one type in one process, such as web sites.

use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Arc;

use nmio::device::{MemoryPlan, Transport};
use nmio::{Instant, Port};

use crate::config::before;
use crate::content_files::ContentFiles;
use crate::place::Place;
use crate::port_owner::{PORT_KEY, PORT_OPTION};
use crate::program::{
    ContentList, ContentNames, Counted, Listening, PortOwner, PreparedPackets, Program, Reloaded,
    StartError, Tally, Watched, WorkerContext,
};
use crate::readers::Readers;
use crate::records::RecordLog;
use crate::table::walk::Walk;

/// Programs of one type, each of which serves a site. Each site has a port of its own, or addresses
/// of its own on a port that it shares.
///
/// Each site has its own content, connections and limits, so none of them takes places from another.
/// If there are several sites, their counts have the label `site`, and the lines of the start block
/// begin with the name of their site. A single site is served as without this type.
pub struct Many<A>(Vec<Site<A>>);

/// One of several programs.
struct Site<A> {
    program: A,
    name: &'static str,
    port: u16,
    /// The addresses on which the site is served. Empty for all of them.
    addresses: Vec<IpAddr>,
}

impl<A: Program> Many<A> {
    /// Starts with one site, with the port that the program is served on.
    pub fn new(name: String, program: A, addresses: Vec<IpAddr>) -> Self {
        Self(Vec::new()).with(name, program, A::DEFAULT_PORT, addresses)
    }

    /// Adds a site that is served on `port`, and only on `addresses` unless they are empty. The name
    /// should differ from those of the other sites.
    #[must_use]
    pub fn with(mut self, name: String, program: A, port: u16, addresses: Vec<IpAddr>) -> Self {
        self.0.push(Site {
            program,
            // There are few sites, and they live as long as the process.
            name: name.leak(),
            port,
            addresses,
        });
        self
    }

    /// Returns the program of each site.
    pub fn programs(&self) -> impl Iterator<Item = &A> {
        self.0.iter().map(|site| &site.program)
    }

    fn has_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns all sites, each with its port, if the first one is served on `port`.
    fn sites(&self, port: u16) -> impl Iterator<Item = (&Site<A>, u16)> {
        let ports = std::iter::once(port).chain(self.0.iter().skip(1).map(|site| site.port));
        self.0.iter().zip(ports)
    }

    /// Returns all sites, each with the context in which its workers serve.
    fn in_context(
        &self,
        context: &WorkerContext,
    ) -> impl Iterator<Item = (&Site<A>, WorkerContext)> {
        let sites = self.sites(context.port);
        sites.map(|(site, port)| (site, site.context(context, port)))
    }
}

impl<A: Program> Site<A> {
    /// Returns the name for the operator. Counts have the name of the start.
    fn name_now(&self) -> String {
        let now = self.program.content_name();
        now.unwrap_or_else(|| self.name.to_owned())
    }
}

impl<A> Site<A> {
    fn is_on(&self, address: IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address)
    }

    /// Returns true if no packet could be for both sites on the same port.
    fn is_apart_from(&self, other: &Self) -> bool {
        !self.addresses.is_empty()
            && !other.addresses.is_empty()
            && !self.addresses.iter().any(|one| other.is_on(*one))
    }

    fn context(&self, context: &WorkerContext, port: u16) -> WorkerContext {
        let mut context = WorkerContext {
            port,
            ..context.clone()
        };
        context.addresses.retain(|one| self.is_on(one.address));
        context
    }

    /// Returns an error for each address of the site that is not among `own`.
    fn missing<'s>(&'s self, own: &'s [IpAddr]) -> impl Iterator<Item = String> + 's {
        let missing = NotOfServer::among(self.name, &self.addresses, own);
        missing
            .map(|error| before("web_addresses", &error.address.to_string()) + &error.to_string())
    }
}

/// A site is to be served on an address that the server does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the site {site} is to be served on {address}, which is not an address of the server; correct its \
     addresses, or add the address to those of the server"
)]
pub struct NotOfServer {
    /// The name of the site.
    pub site: String,
    /// The address.
    pub address: IpAddr,
}

impl NotOfServer {
    /// Returns an error for each of the addresses of a site that is not among `own`.
    pub fn among(site: &str, addresses: &[IpAddr], own: &[IpAddr]) -> impl Iterator<Item = Self> {
        let missing = addresses.iter().filter(|one| !own.contains(one));
        missing.map(move |address| Self {
            site: site.to_owned(),
            address: *address,
        })
    }
}

impl<A: Program> Program for Many<A> {
    const NAME: &'static str = A::NAME;
    const VERSION: &'static str = A::VERSION;
    const DEFAULT_PORT: u16 = A::DEFAULT_PORT;
    type Transports<P: Port> = ip::Many<A::Transports<P>>;

    fn services(&self, port: u16) -> Vec<(Transport, u16)> {
        let owners = self.port_owners(port);
        owners.into_iter().flat_map(|one| one.services).collect()
    }

    /// Returns each site as a program. A port that several sites share on different addresses is
    /// only with the first of them.
    fn port_owners(&self, port: u16) -> Vec<PortOwner> {
        if !self.has_several() {
            return self.0[0].program.port_owners(port);
        }
        let sites: Vec<_> = self.sites(port).collect();
        let owner = |(at, (site, port)): (usize, &(&Site<A>, u16))| {
            let shares = |other: &(&Site<A>, u16)| other.1 == *port && other.0.is_apart_from(site);
            let before = &sites[..at];
            let on_port = before.iter().filter(|other| other.1 == *port).count();
            let is_shared =
                on_port > 0 && before.iter().filter(|one| shares(one)).count() == on_port;
            PortOwner {
                program: site.name,
                option: match at {
                    0 => PORT_OPTION.to_owned(),
                    _ => PORT_KEY.to_owned(),
                },
                services: if is_shared {
                    Vec::new()
                } else {
                    site.program.services(*port)
                },
            }
        };
        sites.iter().enumerate().map(owner).collect()
    }

    fn places(&self, port: u16) -> Vec<Place> {
        let place = |(site, port): (&Site<A>, u16)| Place {
            program: A::NAME,
            site: (self.has_several() || !site.addresses.is_empty()).then(|| site.name_now()),
            addresses: site.addresses.clone(),
            services: site.program.services(port),
        };
        self.sites(port).map(place).collect()
    }

    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        let plans = self
            .in_context(context)
            .map(|(site, context)| site.program.memory(&context));
        plans.fold(MemoryPlan::default(), Add::add)
    }

    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Transports<P>, StartError> {
        let own: Vec<_> = context.addresses.iter().map(|one| one.address).collect();
        self.check_addresses(&own)?;
        let members = self.in_context(context).map(|(site, its)| {
            let transports = site.program.transports(port, &its)?;
            Ok(ip::Member::new(transports, site.addresses.clone()))
        });
        Ok(ip::Many::new(members.collect::<Result<_, StartError>>()?))
    }

    fn prepared<P: Port>(&self, transports: &Self::Transports<P>) -> PreparedPackets {
        let each = self.0.iter().zip(transports.iter());
        let each = each.map(|(site, transports)| site.program.prepared(transports));
        each.fold(PreparedPackets::default(), Add::add)
    }

    fn read_paths(&self) -> Vec<PathBuf> {
        let paths = self.0.iter().flat_map(|site| site.program.read_paths());
        paths.collect()
    }

    fn files(&self) -> ContentFiles {
        let mut files = ContentFiles::default();
        for site in &self.0 {
            files.add(site.program.files());
        }
        files
    }

    fn can_reload(&self) -> bool {
        self.0.iter().any(|site| site.program.can_reload())
    }

    fn watched(&self) -> Vec<Watched> {
        let watched = self.0.iter().flat_map(|site| site.program.watched());
        watched.collect()
    }

    fn check_addresses(&self, own: &[IpAddr]) -> Result<(), StartError> {
        let missing: Vec<_> = self.0.iter().flat_map(|site| site.missing(own)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing.join("\n").into())
        }
    }

    fn free_unused(&self) -> bool {
        let sites = self.0.iter();
        // Every site must be asked.
        sites.filter(|site| site.program.free_unused()).count() > 0
    }

    fn prepare_more(&self, say: &mut dyn FnMut(&'static str, String)) -> bool {
        // The sites take turns.
        let more = self.0.iter().map(|site| site.program.prepare_more(say));
        more.fold(false, |any, more| any | more)
    }

    fn stored_paths(&self) -> Vec<PathBuf> {
        let paths = self.0.iter().flat_map(|site| site.program.stored_paths());
        paths.collect()
    }

    fn has_content(&self, name: &str) -> bool {
        self.0.iter().any(|site| site.program.has_content(name))
    }

    /// Reloads all sites, or the sites that have content named `only`.
    fn reload(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let is_meant = |site: &&Site<A>| only.is_none_or(|name| site.program.has_content(name));
        if !self.has_several() {
            return self.0[0].program.reload(only);
        }
        let meant = self.0.iter().filter(is_meant);
        let outcomes = meant.map(|site| {
            let outcome = site.program.reload(only);
            (site.name_now(), outcome)
        });
        Reloaded::of_all(outcomes)
    }

    fn readers(&self) -> Vec<&dyn Readers> {
        let readers = self.0.iter().flat_map(|site| site.program.readers());
        readers.collect()
    }

    fn logs(&self) -> Vec<&RecordLog> {
        self.0.iter().flat_map(|site| site.program.logs()).collect()
    }

    /// Puts a line with each site's name before the lines of that site.
    fn loaded(&self) -> Vec<(&'static str, String)> {
        let lines = self.0.iter().flat_map(|site| {
            let name = self.has_several().then(|| ("site", site.name_now()));
            name.into_iter().chain(site.program.loaded())
        });
        lines.collect()
    }

    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let commands = self.sites(at.port).flat_map(|(site, port)| {
            let mut at = Listening { port, ..at.clone() };
            at.addresses.retain(|address| site.is_on(*address));
            site.program.try_commands(&at)
        });
        commands.collect()
    }

    fn counted<P: Port>(&self, transports: &Self::Transports<P>) -> Counted {
        let each = self.0.iter().zip(transports.iter());
        let each = each.map(|(site, transports)| site.program.counted(transports));
        each.fold(Counted::default(), Add::add)
    }

    fn tally<P: Port>(&self, transports: &Self::Transports<P>, tally: &mut Tally) {
        for (site, transports) in self.0.iter().zip(transports.iter()) {
            if self.has_several() {
                tally.for_site(site.name, |tally| site.program.tally(transports, tally));
            } else {
                site.program.tally(transports, tally);
            }
        }
    }

    fn walk<P: Port>(&self, transports: &mut Self::Transports<P>, now: Instant, walk: &mut Walk) {
        for (site, transports) in self.0.iter().zip(transports.iter_mut()) {
            site.program.walk(transports, now, walk);
        }
    }

    fn content_names(&self) -> Vec<Arc<dyn ContentNames>> {
        let names = self.0.iter().flat_map(|site| site.program.content_names());
        names.collect()
    }

    fn content_lists(&self) -> Vec<Arc<dyn ContentList>> {
        let lists = self.0.iter().flat_map(|site| site.program.content_lists());
        lists.collect()
    }
}

impl<A> Debug for Many<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|site| site.name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use nmio::sim::Sink;
    use udpip::{Datagram, Service};

    use super::*;
    use crate::launch::services;
    use crate::named::Named;
    use crate::{CountKind, NewWorker, Udp};

    struct Echo;

    impl Named for Echo {
        const NAME: &'static str = "echo";
        const PORT: u16 = 7;
    }

    impl Service for Echo {
        type Message = ();
        fn on_datagram<P: Port>(&mut self, _: Datagram<'_, P>, _: Instant) {}
    }

    /// Sites named `a`, `b` and so on, each with its port and its addresses. The first one has no
    /// port of its own.
    fn sites(others: &[(u16, &[&str])]) -> Many<impl Program + use<>> {
        let program = || Udp::new(|_: &mut NewWorker<()>| Ok(Echo));
        let parsed = |list: &[&str]| list.iter().map(|one| one.parse().unwrap()).collect();
        let first = parsed(others[0].1);
        let mut sites = Many::new("a".to_owned(), program(), first);
        for (name, (port, addresses)) in ["b", "c"].iter().zip(&others[1..]) {
            sites = sites.with((*name).to_owned(), program(), *port, parsed(addresses));
        }
        sites
    }

    #[test]
    fn sites_share_a_port_only_on_different_addresses() {
        let udp = |port| (Transport::Udp, port);
        let apart = sites(&[(7, &["192.0.2.1"]), (7, &["192.0.2.2"]), (9, &[])]);
        assert_eq!(services(&apart, None).unwrap(), [udp(7), udp(9)]);
        for addresses in [&[][..], &["192.0.2.1"], &["192.0.2.2", "192.0.2.1"]] {
            let error = services(&sites(&[(7, &["192.0.2.1"]), (7, addresses)]), None).unwrap_err();
            assert_eq!(
                error.to_string(),
                "a and b both have UDP port 7; give one of them another port, or different \
                 addresses or hosts to both"
            );
        }
        let third = sites(&[(7, &["192.0.2.1"]), (8, &[]), (8, &["192.0.2.1"])]);
        let error = services(&third, None).unwrap_err().to_string();
        assert!(error.starts_with("b and c both have UDP port 8"), "{error}");
    }

    #[test]
    fn one_site_is_served_as_without_this_type() {
        let one = sites(&[(7, &[])]);
        let error = services(&one, Some(0)).unwrap_err().to_string();
        assert!(error.contains("give --port a number"), "{error}");
        assert_eq!(counts(&one), ["datagrams 0", "answered 0"]);
        assert!(one.loaded().iter().all(|(label, _)| *label != "site"));
    }

    /// Returns the counts of a worker that serves these sites.
    fn counts(sites: &Many<impl Program>) -> Vec<String> {
        let mut port = Sink::new(1500, 64, 0);
        let context = WorkerContext::example(0, 1);
        let transports = sites.transports(&mut port, &context).unwrap();
        let mut tally = Tally::default();
        Program::tally::<Sink>(sites, &transports, &mut tally);
        // Details are in metrics only.
        let events = tally.events().iter();
        let events = events.filter(|one| one.kind == CountKind::Total);
        events.map(ToString::to_string).collect()
    }

    #[test]
    fn counts_and_commands_are_those_of_each_site() {
        let two = sites(&[(7, &[]), (9, &[])]);
        let expected = [
            "a: datagrams 0",
            "a: answered 0",
            "b: datagrams 0",
            "b: answered 0",
        ];
        assert_eq!(counts(&two), expected);
        let at = Listening::new(vec!["192.0.2.1".parse().unwrap()], 8);
        let commands = ["nc -u 192.0.2.1 8", "nc -u 192.0.2.1 9"];
        assert_eq!(two.try_commands(&at), commands);
        let places = two.places(8).into_iter();
        let lines = places.map(|place| place.among(&at.addresses).site_line().unwrap());
        assert!(lines.eq(["a: 192.0.2.1:8", "b: 192.0.2.1:9"]));
        let named: Vec<_> = two
            .loaded()
            .into_iter()
            .filter(|one| one.0 == "site")
            .collect();
        assert_eq!(named, ["a", "b"].map(|name| ("site", name.to_owned())));
    }

    #[test]
    fn a_site_on_an_address_that_the_server_lacks_is_refused() {
        let (mut port, mut context) = (Sink::new(1500, 64, 0), WorkerContext::example(0, 1));
        context.addresses = vec!["192.0.2.1/24".parse().unwrap()];
        let mut start = |address: &str| {
            let site = sites(&[(7, &[address])]);
            site.transports(&mut port, &context).err()
        };
        assert!(start("192.0.2.1").is_none());
        let error = start("203.0.113.9").unwrap().to_string();
        assert!(
            error.starts_with("the site a is to be served on 203.0.113.9,"),
            "{error}"
        );
    }
}
