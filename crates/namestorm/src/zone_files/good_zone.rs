//! A zone that can be served.

use std::sync::Arc;

use super::facts::ZoneFacts;
use super::reading::ReadZone;
use crate::answers::ZoneAnswers;
use crate::groups::GroupLabels;
use crate::load::{ReadFile, ZoneSpec};
use crate::name;

/// A zone that can be served, and what it was read from.
#[derive(Debug)]
pub(super) struct GoodZone {
    pub(super) facts: Arc<ZoneFacts>,
    pub(super) answers: Arc<ZoneAnswers>,
    pub(super) files: Vec<ReadFile>,
}

impl GoodZone {
    /// Creates a zone from what was read for `spec`.
    pub(super) fn new(spec: ZoneSpec, read: ReadZone, group_labels: &mut GroupLabels) -> Self {
        let ReadZone {
            mut answers,
            apex,
            files,
            ..
        } = read;
        let group = match &spec.group {
            Some(group) => group_labels.number(group),
            None => group_labels.number(&name::Shown(&apex).to_string()),
        };
        answers.set_group(group);
        Self {
            facts: Arc::new(ZoneFacts::new(spec, apex, &answers)),
            answers: Arc::new(answers),
            files,
        }
    }

    /// Returns the same zone for another file, which has errors. It is read again until it has none.
    pub(super) fn moved_to(&self, spec: ZoneSpec) -> Self {
        Self {
            files: vec![ReadFile::unread(&spec.file)],
            facts: Arc::new(self.facts.moved_to(spec)),
            answers: Arc::clone(&self.answers),
        }
    }
}
