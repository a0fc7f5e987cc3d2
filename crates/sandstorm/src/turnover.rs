//! A worker's passage from one site to the next, in steps between batches of packets.

use std::mem::{MaybeUninit, take};
use std::sync::{Arc, OnceLock};

use control::{Handover, Turn};
use nmio::Mailbox;
use tcpip::Contents;

use crate::site::{NEW, NextSite, ReplyId};
use crate::web::{MAX_KEPT_PARTS, PreparedReply, Web};

/// Number of replies that one step adds or removes, so that packets need not wait long.
const REPLIES_IN_A_STEP: usize = 128;
/// Number of replies that stay and together cost as much as a new one.
const KEPT_PER_NEW: usize = 16;

/// Hands the next site to all workers, and waits until nothing of the old one is left. `change` lets
/// further workers begin with the next site.
pub(crate) fn hand_over(handover: &Handover<Share>, next: &Arc<NextSite>, change: impl FnOnce()) {
    let mut returned = Vec::new();
    handover.send(change, || {
        let share = Share::new(next);
        returned.push(Arc::clone(&share.returned));
        share
    });
}

/// What one worker needs for the passage. Memory of this size comes from the system, and a worker
/// must not wait for the system. Therefore the reload thread makes this memory, and gets it back.
#[derive(Debug)]
pub(crate) struct Share {
    next: Arc<NextSite>,
    /// The next site's replies so far. After the change, it holds the replies of the old site.
    prepared: Vec<PreparedReply>,
    /// Gets `prepared` when the worker drops the share.
    returned: Arc<OnceLock<Vec<PreparedReply>>>,
}

impl Share {
    fn new(next: &Arc<NextSite>) -> Self {
        let mut prepared = Vec::with_capacity(next.origins.len() + MAX_KEPT_PARTS);
        // The system provides a page when something is written to it.
        prepared.spare_capacity_mut().fill(MaybeUninit::zeroed());
        Self {
            next: Arc::clone(next),
            prepared,
            returned: Arc::default(),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // It is set only here.
        let _ = self.returned.set(take(&mut self.prepared));
    }
}

/// The next site of a worker, and how far the worker has come.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    mailbox: Option<Mailbox<Turn<Share>>>,
    passage: Option<Passage>,
}

#[derive(Debug)]
struct Passage {
    /// Tells the sender, when it is dropped, that nothing of the old site is left.
    turn: Turn<Share>,
    /// Number of the old site's replies that are already removed, or `None` before the change.
    removed: Option<usize>,
}

impl Turnover {
    pub(crate) fn set_mailbox(&mut self, mailbox: Mailbox<Turn<Share>>) {
        self.mailbox = Some(mailbox);
    }

    /// Begins the passage to the next site, if there is one.
    pub(crate) fn begin(&mut self) {
        let (Some(mailbox), passage) = (&mut self.mailbox, &mut self.passage) else {
            return;
        };
        mailbox.take_all(|turn| {
            *passage = Some(Passage {
                turn,
                removed: None,
            });
        });
    }

    /// Whether a passage is in progress.
    #[inline(always)]
    pub(crate) fn is_under_way(&self) -> bool {
        self.passage.is_some()
    }

    /// Takes the next step of the passage.
    #[cold]
    pub(crate) fn step<A>(&mut self, web: &mut Web<A>, contents: &mut Contents) {
        let Some(passage) = &mut self.passage else {
            return;
        };
        let has_ended = match passage.removed {
            None => passage.add_some(web, contents),
            Some(removed) => passage.remove_some(removed, contents),
        };
        if has_ended {
            self.passage = None;
        }
    }
}

impl Passage {
    /// Adds replies of the next site. Changes to the next site when all are added.
    fn add_some<A>(&mut self, web: &mut Web<A>, contents: &mut Contents) -> bool {
        let Share { next, prepared, .. } = &mut self.turn.content;
        let replies = next.site.replies().iter().zip(&next.origins);
        let rest = replies.enumerate().skip(prepared.len());
        let mut budget = REPLIES_IN_A_STEP * KEPT_PER_NEW;
        for (index, (reply, &origin)) in rest {
            let site = next.site.hosted(ReplyId(index as u32));
            let (one, cost) = match origin {
                NEW => (PreparedReply::add(reply, site, contents), KEPT_PER_NEW),
                // The only site of a port has no number until it gets a host.
                old => (Ok(web.prepared()[old as usize].of(site)), 1),
            };
            match one {
                Ok(one) => prepared.push(one),
                // There are too many contents. The old site stays.
                Err(_) => return true,
            }
            budget = budget.saturating_sub(cost);
            if budget == 0 {
                break;
            }
        }
        if prepared.len() == next.origins.len() {
            *prepared = web.change_site(Arc::clone(&next.site), take(prepared), contents);
            self.removed = Some(0);
        }
        false
    }

    /// Removes replies that only the old site has. Their memory is freed when no connection sends
    /// them any more. Returns true if all are removed, and the resident packets of those that no
    /// connection sends are freed.
    fn remove_some(&mut self, removed: usize, contents: &mut Contents) -> bool {
        if contents.is_freeing() {
            return false;
        }
        let Share { next, prepared, .. } = &self.turn.content;
        let leaving = &next.leaving;
        let end = leaving.len().min(removed + REPLIES_IN_A_STEP);
        for &index in &leaving[removed..end] {
            contents.remove(prepared[index as usize].content);
        }
        self.removed = Some(end);
        end == leaving.len() && !contents.is_freeing()
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::site::Builder;

    #[test]
    fn the_memory_of_a_passage_is_made_and_freed_by_the_reload_thread() {
        let site = || Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, b"a");
        let next = Arc::new(site().build_next(&site().build()));
        let share = Share::new(&next);
        assert!(share.prepared.capacity() >= next.site.replies().len());
        let (memory, returned) = (share.prepared.as_ptr(), Arc::clone(&share.returned));
        drop(share);
        assert_eq!(returned.get().unwrap().as_ptr(), memory);
    }
}
