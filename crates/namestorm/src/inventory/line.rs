//! The lines of the list of zones, as JSON and for people.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::report::count;
use serde::{Deserialize, Serialize};

use super::expiry::Signatures;
use crate::name;
use crate::zone_files::{UnservedFile, ZoneFacts};

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Zone(Row),
    /// The last line.
    End {
        summary: Summary,
    },
}

/// Whether and how a zone is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The zone is served as its file was read last.
    Served,
    /// The file has an error now, and the zone is served as before.
    Old,
    /// The zone could not be loaded. Queries get SERVFAIL, or REFUSED if its name is unknown.
    Broken,
    /// The file is not served, because another file holds the zone too.
    Twice,
}

impl State {
    pub(super) const ALL: [Self; 4] = [Self::Served, Self::Old, Self::Broken, Self::Twice];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Old => "old",
            Self::Broken => "broken",
            Self::Twice => "twice",
        }
    }
}

/// One zone. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its name, or `None` if that is unknown.
    zone: Option<String>,
    state: State,
    serial: Option<u32>,
    records: Option<u64>,
    names: Option<u64>,
    /// Number of queries that were answered from the zone, or `None` if it is not served.
    queries: Option<u64>,
    /// Number of transfers that were completed, or `None` if the zone is not served.
    transfers: Option<u64>,
    file: String,
    /// When the zone was read that is served.
    loaded_unix_time: Option<f64>,
    /// When the first signature of the zone expires.
    signed_until_unix_time: Option<u64>,
    /// Whether the signatures of the zone are still valid.
    signatures: Option<Signatures>,
    error: Option<String>,
}

/// Numbers of all zones, and of those in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Number of zones and of files that are not served.
    pub(super) zones: u64,
    /// Number of those in the list.
    pub(super) matching: u64,
    pub(super) served: u64,
    pub(super) old: u64,
    pub(super) broken: u64,
    pub(super) twice: u64,
    /// Number of zones with signatures that expire within a day.
    #[serde(default)]
    pub(super) expiring: u64,
    /// Number of zones with signatures that have expired.
    #[serde(default)]
    pub(super) expired: u64,
    /// The names that were asked for and that no zone has.
    pub(crate) unknown: Vec<String>,
}

impl Row {
    /// Creates the line of a zone that is served.
    pub(super) fn served(
        zone: &ZoneFacts,
        state: State,
        error: Option<String>,
        [queries, transfers]: [u64; 2],
    ) -> Self {
        let loaded = zone.loaded().duration_since(UNIX_EPOCH);
        Self {
            zone: Some(name::Shown(zone.apex()).to_string()),
            state,
            serial: zone.version().map(|version| version.serial),
            records: Some(zone.records() as u64),
            names: Some(zone.names() as u64),
            queries: Some(queries),
            transfers: Some(transfers),
            file: zone.file().display().to_string(),
            loaded_unix_time: Some(loaded.unwrap_or_default().as_secs_f64()),
            signed_until_unix_time: zone
                .version()
                .and_then(|version| version.signed_until)
                .map(u64::from),
            signatures: None,
            error,
        }
    }

    /// Sets whether the signatures of the zone are still valid.
    pub(super) fn with_signatures(self, signatures: Option<Signatures>) -> Self {
        Self { signatures, ..self }
    }

    /// Creates the line of a file that is not served.
    pub(super) fn unserved(file: &UnservedFile, state: State) -> Self {
        Self {
            zone: file.name().map(|name| name::Shown(name).to_string()),
            state,
            serial: None,
            records: None,
            names: None,
            queries: None,
            transfers: None,
            file: file.file(),
            loaded_unix_time: None,
            signed_until_unix_time: None,
            signatures: None,
            error: Some(file.error()),
        }
    }
}

impl Summary {
    /// Adds a zone in this state.
    pub(super) fn add(&mut self, state: State, is_listed: bool) {
        self.zones += 1;
        self.matching += u64::from(is_listed);
        *match state {
            State::Served => &mut self.served,
            State::Old => &mut self.old,
            State::Broken => &mut self.broken,
            State::Twice => &mut self.twice,
        } += 1;
    }

    /// Adds the state of the signatures of a zone, if it is signed.
    pub(super) fn add_signatures(&mut self, signatures: Option<Signatures>) {
        match signatures {
            Some(Signatures::Expiring) => self.expiring += 1,
            Some(Signatures::Expired) => self.expired += 1,
            Some(Signatures::Valid) | None => {}
        }
    }
}

/// The names of the columns.
pub(crate) struct Heading;

/// Formats one line of columns, with a line feed.
fn columns(
    f: &mut fmt::Formatter<'_>,
    [zone, state, numbers @ .., loaded, file]: [&str; 9],
) -> fmt::Result {
    let [serial, records, names, queries, transfers] = numbers;
    writeln!(
        f,
        "{zone:<28} {state:<6} {serial:>10} {records:>9} {names:>9} {queries:>11} {transfers:>9} {loaded:<20} {file}"
    )
}

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "zone",
            "state",
            "serial",
            "records",
            "names",
            "queries",
            "transfers",
            "loaded",
            "file",
        ];
        columns(f, names)
    }
}

/// Formats a zone as a line, and its signatures and its error as lines of their own.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = || "-".to_owned();
        let number = |number: Option<u64>| number.map_or_else(missing, count);
        let time = |time: Option<f64>| time.map_or_else(missing, shown);
        columns(
            f,
            [
                self.zone.as_deref().unwrap_or("-"),
                self.state.name(),
                &self
                    .serial
                    .map_or_else(missing, |serial| serial.to_string()),
                &number(self.records),
                &number(self.names),
                &number(self.queries),
                &number(self.transfers),
                &time(self.loaded_unix_time),
                &self.file,
            ],
        )?;
        if let Some(until) = self.signed_until_unix_time {
            let note = match self.signatures {
                Some(Signatures::Expired) => ", so signatures have expired: sign the zone again",
                Some(Signatures::Expiring) => ", within a day: sign the zone again",
                Some(Signatures::Valid) | None => "",
            };
            writeln!(f, "     signed until {}{note}", shown(until as f64))?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "     {error}")?;
        }
        Ok(())
    }
}

/// Shows a time in seconds since 1970.
pub(super) fn shown(time: f64) -> String {
    // A time that cannot be shown comes from no server.
    let since = Duration::try_from_secs_f64(time).unwrap_or_default();
    let at = UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let at = at.min(UNIX_EPOCH + LAST_TIME);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// The last second of the year 9999, after which times have no usual form.
const LAST_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Formats the last line of the list for people.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zones: {}", count(self.zones))?;
        if self.matching < self.zones {
            write!(f, ", of which {} match", count(self.matching))?;
        }
        for (number, what) in [
            (self.old, "old because of an error"),
            (self.broken, "not loaded"),
            (self.twice, "given twice"),
            (self.expired, "with expired signatures"),
            (self.expiring, "with signatures that expire within a day"),
        ] {
            if number > 0 {
                write!(f, "; {what}: {}", count(number))?;
            }
        }
        Ok(())
    }
}
