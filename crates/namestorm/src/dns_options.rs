//! The options of a DNS server, as the command lines of several programs have them.

use control::{ConnectionArgs, ContentFiles, Named as _, PortOwner, StartError, config};
use nmio::device::{Device, Transport};

use crate::defence::DefenceArgs;
use crate::hook::NoHook;
use crate::identity::IdentityArgs;
use crate::key::Form;
use crate::load::ZoneSpec;
use crate::program::Namestorm;
use crate::query_log::QueryLogArgs;
use crate::service::ReplyMode;
use crate::tcp::TcpSettings;
use crate::zone_args::ZoneArgs;

/// The options of a DNS server. A program whose options have other names on its command line borrows
/// them here.
#[derive(Clone, Copy, Debug)]
pub struct DnsOptions<'o> {
    /// The zones.
    pub zones: &'o ZoneArgs,
    /// Whether all zones must be right.
    pub strict: bool,
    /// The form of names in the index.
    pub hash: Form,
    /// How replies over UDP are sent.
    pub mode: ReplyMode,
    /// What the server says about itself.
    pub identity: &'o IdentityArgs,
    /// The defence against abuse.
    pub defence: &'o DefenceArgs,
    /// The query log and dnstap.
    pub query_log: &'o QueryLogArgs,
    /// The limits of connections.
    pub connections: &'o ConnectionArgs,
    /// The device, on which defaults depend.
    pub device: &'o Device,
}

impl DnsOptions<'_> {
    /// Loads the zones, and applies all other options. Passes findings to `say`.
    ///
    /// # Errors
    /// As for [`Namestorm::load_from`], [`Namestorm::with_query_log`] and [`Namestorm::with_defence`].
    pub fn load(&self, say: &mut dyn FnMut(String)) -> Result<Namestorm, StartError> {
        let zones = self.zones.clone();
        let program = Namestorm::load_from(zones, self.hash, self.strict, say)?;
        let program = program.with_mode(self.mode);
        let program = program.with_query_log(self.query_log)?;
        let program = program.with_identity(self.identity);
        let program = program.with_defence(self.defence, self.device)?;
        Ok(program.with_tcp(TcpSettings::from_args(self.connections)))
    }

    /// Loads only the zones, for a check that is separate from the check of the other options. Passes findings
    /// to `say`, and adds the files that the options name to `files`. Returns lines about the zones, and about
    /// the defence unless something about it is wrong.
    ///
    /// # Errors
    /// As for [`Namestorm::load_from`].
    pub fn check_zones(
        &self,
        say: &mut dyn FnMut(String),
        files: &mut ContentFiles,
    ) -> Result<Vec<(&'static str, String)>, StartError> {
        let zones = self.zones.clone().without_others();
        let found = zones.found();
        files.add(self.files(&found.0));
        let zones = Namestorm::load_found((zones, found), self.hash, self.strict, say)?;
        let zones = zones.with_mode(self.mode);
        let defence = self.defence.check(self.device, self.zones).ok();
        let defence = defence.filter(|_| !config::file_is_wrong());
        Ok([zones.loaded_zones(), defence.unwrap_or_default()].concat())
    }

    /// Returns the files of these zones and those with secrets, also if they are wrong. The server's user should be
    /// able to read them.
    pub fn files(&self, zones: &[ZoneSpec]) -> ContentFiles {
        ContentFiles {
            served: zones.iter().map(|zone| zone.file.clone()).collect(),
            to_reload: self.defence.secret_files().collect(),
        }
    }

    /// Returns what is wrong with the options, except with the zones themselves. `program` is the name
    /// that the system's log shows.
    pub fn check(&self, program: &str) -> Vec<StartError> {
        let others = self.zones.wrong_others();
        let defence = self.defence.check(self.device, self.zones).err();
        let logs = self.query_log.check(program);
        others.into_iter().chain(defence).chain(logs).collect()
    }
}

/// Returns the ports of a DNS server on `port`, or on the default one, if the port is known. `option` sets the
/// port.
pub fn port_owner(option: &str, port: Option<u16>) -> PortOwner {
    let port = port.unwrap_or(NoHook::PORT);
    let is_known = !config::is_wrong(0, option.trim_start_matches('-'));
    let transports = [Transport::Udp, Transport::Tcp].into_iter();
    PortOwner {
        program: NoHook::NAME,
        option: option.to_owned(),
        services: transports
            .filter(|_| is_known)
            .map(|transport| (transport, port))
            .collect(),
    }
}
