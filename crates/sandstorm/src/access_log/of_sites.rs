//! The access logs of the sites that a program serves.

use std::io;
use std::sync::{Arc, Mutex};

use control::{RecordLog, RecordSender};

use super::{AccessLogArgs, HEAD_MAX, LogEntry};
use crate::known_sites::{HostedId, KnownSites, SiteNames};

/// The access logs of the sites of one program. Sites with the same options share a log.
#[derive(Debug, Default)]
pub struct AccessLogs {
    logs: Vec<RecordLog>,
    /// The options of each log.
    args: Vec<AccessLogArgs>,
    /// The index of the log for requests that belong to no hosted site.
    of_none: Option<usize>,
}

/// A worker's ends of the logs.
#[derive(Debug)]
pub struct AccessLogSenders {
    senders: Box<[RecordSender]>,
    of_none: Option<usize>,
    /// The hosted sites, each with its log.
    known: KnownSites,
}

impl AccessLogs {
    /// Opens the log of the only site, if it has one. `program` is the name that the system's log shows.
    ///
    /// # Errors
    /// If the log cannot be opened. The error names it.
    pub fn of_one(program: &str, name: &'static str, args: &AccessLogArgs) -> io::Result<Self> {
        let names = SiteNames::new(name, Arc::default());
        Self::open(program, &[args], (args, &names))
    }

    /// Opens the logs of hosted sites, which `known` names. `of_none` are the options of the log for requests
    /// that belong to none of them, and the name that it has for them. A single site without hosts is none of
    /// them, until a reload gives it hosts.
    ///
    /// # Errors
    /// If a log cannot be opened. The error names it.
    pub(crate) fn of_hosts(
        program: &str,
        sites: &[&AccessLogArgs],
        (of_none, name): (&AccessLogArgs, &'static str),
        known: Arc<Mutex<KnownSites>>,
    ) -> io::Result<Self> {
        let names = SiteNames::new(name, known);
        Self::open(program, sites, (of_none, &names))
    }

    fn open(
        program: &str,
        sites: &[&AccessLogArgs],
        (of_none, names): (&AccessLogArgs, &SiteNames),
    ) -> io::Result<Self> {
        let mut different: Vec<AccessLogArgs> = Vec::new();
        let with_log = sites.iter().filter(|args| args.destination().is_some());
        for args in with_log {
            if !different.contains(args) {
                different.push((*args).clone());
            }
        }
        let open = |args: &AccessLogArgs| {
            let log = args.open(program, names.clone())?;
            Ok(log.map(|log| log.one_of(different.len())))
        };
        let logs = different.iter().filter_map(|args| open(args).transpose());
        let mut all = Self {
            logs: logs.collect::<io::Result<_>>()?,
            args: different,
            of_none: None,
        };
        all.of_none = all.index_of(of_none);
        Ok(all)
    }

    /// Whether a site with these options needs no further log.
    pub(crate) fn suffice_for(&self, args: &AccessLogArgs) -> bool {
        args.destination().is_none() || self.index_of(args).is_some()
    }

    /// Returns the index of the log with these options, if it is open.
    pub(crate) fn index_of(&self, args: &AccessLogArgs) -> Option<usize> {
        self.args.iter().position(|open| open == args)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordLog> {
        self.logs.iter()
    }

    /// Opens a worker's ends of the logs. Returns `None` if there is no log.
    pub fn senders(&self) -> Option<AccessLogSenders> {
        (!self.logs.is_empty()).then(|| AccessLogSenders {
            senders: self.logs.iter().map(RecordLog::sender).collect(),
            of_none: self.of_none,
            known: KnownSites::default(),
        })
    }
}

impl AccessLogSenders {
    /// Sets the hosted sites.
    pub(crate) fn set_known(&mut self, known: KnownSites) {
        self.known = known;
    }

    /// Sends a record of a request to the hosted site with the number in `entry`. `head` begins with the
    /// request's head, or is what was received instead of one.
    #[inline]
    pub(crate) fn send(&mut self, entry: LogEntry, head: &[u8]) {
        let log = match entry.site {
            HostedId(0) => self.of_none,
            id => self.known.get(id).and_then(|site| site.log),
        };
        if let Some(sender) = log.and_then(|log| self.senders.get_mut(log)) {
            sender.send(&entry.to_bytes(), &head[..head.len().min(HEAD_MAX)]);
        }
    }

    /// Number of lines of all logs that are lost.
    pub fn lost(&self) -> u64 {
        self.senders.iter().map(RecordSender::lost).sum()
    }
}
