//! A worker's passage from old answers to new ones.

use std::sync::Arc;

use control::Turn;
use hashbrown::hash_table::IntoIter;
use nmio::Mailbox;
use udpip::AnswerCopies;

use crate::answers::{AnswerId, Answers};
use crate::service::Residents;
use crate::zone_counts::QueryCounts;

/// Number of old answers whose resident packets are freed in one pass of the event loop, so that
/// packets need not wait long.
const FREED_IN_A_PASS: usize = 64;

/// New answers for one worker.
#[derive(Clone, Debug)]
pub(crate) struct NewAnswers {
    pub(crate) answers: Arc<Answers>,
    /// Where the worker counts queries from now on, if the zones have other numbers than before.
    pub(crate) counts: Option<QueryCounts>,
}

/// New answers for a worker, and the resident packets of the old ones.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    mailbox: Option<Mailbox<Turn<NewAnswers>>>,
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    residents: IntoIter<(AnswerId, AnswerCopies)>,
    /// Tells the sender, when it is dropped, that nothing of the old answers is left.
    _turn: Turn<NewAnswers>,
}

impl Turnover {
    pub(crate) fn set_mailbox(&mut self, mailbox: Mailbox<Turn<NewAnswers>>) {
        self.mailbox = Some(mailbox);
    }

    /// Returns new answers, if there are any. The caller must use them from now on, and then call
    /// [`leave`](Self::leave).
    pub(crate) fn next(&mut self) -> Option<Turn<NewAnswers>> {
        let mut next = None;
        self.mailbox.as_mut()?.take_all(|turn| next = Some(turn));
        next
    }

    /// Frees the resident packets of the old answers from now on, in slices.
    pub(crate) fn leave(&mut self, residents: Residents, turn: Turn<NewAnswers>) {
        self.leaving = Some(Leaving {
            residents: residents.into_iter(),
            _turn: turn,
        });
    }

    /// Whether resident packets of old answers are left.
    #[inline(always)]
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Frees some resident packets of the old answers.
    #[cold]
    pub(crate) fn free_some(&mut self) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        leaving
            .residents
            .by_ref()
            .take(FREED_IN_A_PASS)
            .for_each(drop);
        if leaving.residents.len() == 0 {
            self.leaving = None;
        }
    }
}
