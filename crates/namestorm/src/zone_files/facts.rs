//! What is known of a zone that is served, apart from its answers.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::answers::{ZoneAnswers, ZoneVersion};
use crate::load::ZoneSpec;

/// What is known of a zone that is served, apart from its answers. So the answers can be freed while
/// somebody still reads the facts.
#[derive(Debug)]
pub(crate) struct ZoneFacts {
    spec: ZoneSpec,
    apex: Arc<[u8]>,
    version: Option<ZoneVersion>,
    names: usize,
    records: usize,
    loaded: SystemTime,
}

impl ZoneFacts {
    /// Creates the facts of a zone that was just read. `apex` is its name in lower case.
    pub(super) fn new(spec: ZoneSpec, apex: Arc<[u8]>, answers: &ZoneAnswers) -> Self {
        Self {
            spec,
            apex,
            version: answers.version(),
            names: answers.size().names,
            records: answers.size().records,
            loaded: SystemTime::now(),
        }
    }

    /// Returns the same facts of a zone that another file is to have.
    pub(super) fn moved_to(&self, spec: ZoneSpec) -> Self {
        Self {
            spec,
            apex: self.shared_apex(),
            ..*self
        }
    }

    /// The zone and its file, as they are given.
    pub(crate) fn spec(&self) -> &ZoneSpec {
        &self.spec
    }

    /// The path of the zone's file.
    pub(crate) fn file(&self) -> &Path {
        &self.spec.file
    }

    /// The zone's name in lower case.
    pub(crate) fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// Same as [`apex`](Self::apex), without a borrow.
    pub(crate) fn shared_apex(&self) -> Arc<[u8]> {
        Arc::clone(&self.apex)
    }

    /// The serial of the SOA record, and what else belongs to the version.
    pub(crate) fn version(&self) -> Option<ZoneVersion> {
        self.version
    }

    /// Number of names, empty non-terminals included.
    pub(crate) fn names(&self) -> usize {
        self.names
    }

    /// Number of records.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// When the zone was read.
    pub(crate) fn loaded(&self) -> SystemTime {
        self.loaded
    }
}
