//! The access logs of the sites that a program serves.

use std::io;
use std::sync::Arc;

use control::{RecordLog, RecordSender};

use super::{AccessLogArgs, Entry, HEAD_MAX};

/// A site's name, and the options of its log.
type SiteLog<'o> = (&'static str, &'o AccessLogArgs);

/// The access logs of the sites of one program. Sites with the same options share a log.
#[derive(Debug, Default)]
pub struct AccessLogs {
    logs: Vec<RecordLog>,
    /// For each hosted site, the index of its log. The first one is for requests that belong to none.
    of_site: Arc<[Option<usize>]>,
}

/// A worker's ends of the logs.
#[derive(Debug)]
pub struct AccessLogSenders {
    senders: Box<[RecordSender]>,
    of_site: Arc<[Option<usize>]>,
}

impl AccessLogs {
    /// Opens the log of the only site, if it has one. `program` is the name that the system's log shows.
    ///
    /// # Errors
    /// If the log cannot be opened. The error names it.
    pub fn of_one(program: &str, name: &'static str, args: &AccessLogArgs) -> io::Result<Self> {
        Self::open(program, &[(name, args)])
    }

    /// Opens the logs of hosted sites, which have the numbers from 1. `default` is the index of the site
    /// whose log has the requests that belong to none.
    ///
    /// # Errors
    /// If a log cannot be opened. The error names it.
    pub(crate) fn of_hosts(
        program: &str,
        sites: &[SiteLog<'_>],
        default: usize,
    ) -> io::Result<Self> {
        let of_none = ("", sites[default].1);
        let all: Vec<_> = std::iter::once(&of_none).chain(sites).copied().collect();
        Self::open(program, &all)
    }

    fn open(program: &str, sites: &[SiteLog<'_>]) -> io::Result<Self> {
        let names: Arc<[&'static str]> = sites.iter().map(|(name, _)| *name).collect();
        let mut different: Vec<&AccessLogArgs> = Vec::new();
        let mut of_site = Vec::new();
        for (_, args) in sites {
            if args.destination().is_none() {
                of_site.push(None);
                continue;
            }
            let known = different.iter().position(|other| other == args);
            of_site.push(Some(known.unwrap_or(different.len())));
            if known.is_none() {
                different.push(args);
            }
        }
        let open = |args: &&AccessLogArgs| {
            let log = args.open(program, Arc::clone(&names))?;
            Ok(log.map(|log| log.one_of(different.len())))
        };
        let logs = different.iter().filter_map(|args| open(args).transpose());
        Ok(Self {
            logs: logs.collect::<io::Result<_>>()?,
            of_site: of_site.into(),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordLog> {
        self.logs.iter()
    }

    /// Opens a worker's ends of the logs. Returns `None` if there is no log.
    pub fn senders(&self) -> Option<AccessLogSenders> {
        (!self.logs.is_empty()).then(|| AccessLogSenders {
            senders: self.logs.iter().map(RecordLog::sender).collect(),
            of_site: Arc::clone(&self.of_site),
        })
    }
}

impl AccessLogSenders {
    /// Sends a record of a request to the hosted site with the number in `entry`. `head` begins with the
    /// request's head, or is what was received instead of one.
    #[inline]
    pub(crate) fn send(&mut self, entry: Entry, head: &[u8]) {
        let log = self.of_site.get(usize::from(entry.site.0));
        let Some(log) = log.copied().flatten() else {
            return;
        };
        if let Some(sender) = self.senders.get_mut(log) {
            sender.send(&entry.to_bytes(), &head[..head.len().min(HEAD_MAX)]);
        }
    }

    /// Number of lines of all logs that are lost.
    pub fn lost(&self) -> u64 {
        self.senders.iter().map(RecordSender::lost).sum()
    }
}
