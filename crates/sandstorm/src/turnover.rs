//! A worker's passage from one site to the next, in steps between batches of packets.

use std::sync::Arc;

use control::Turn;
use nmio::Mailbox;
use tcpip::Contents;

use crate::site::{NEW, NextSite};
use crate::web::{PreparedReply, Web};

/// Number of replies that one step adds or removes, so that packets need not wait long.
const REPLIES_IN_A_STEP: usize = 128;

/// The next site of a worker, and how far the worker has come.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    mailbox: Option<Mailbox<Turn<Arc<NextSite>>>>,
    passage: Option<Passage>,
}

#[derive(Debug)]
struct Passage {
    /// Tells the sender, when it is dropped, that nothing of the old site is left.
    turn: Turn<Arc<NextSite>>,
    /// The next site's replies so far. After the change, it holds the replies of the old site.
    prepared: Vec<PreparedReply>,
    /// Number of the old site's replies that are already removed, or `None` before the change.
    removed: Option<usize>,
}

impl Turnover {
    pub(crate) fn set_mailbox(&mut self, mailbox: Mailbox<Turn<Arc<NextSite>>>) {
        self.mailbox = Some(mailbox);
    }

    /// Begins the passage to the next site, if there is one.
    pub(crate) fn begin(&mut self) {
        let (Some(mailbox), passage) = (&mut self.mailbox, &mut self.passage) else {
            return;
        };
        mailbox.take_all(|turn| {
            *passage = Some(Passage {
                prepared: Vec::with_capacity(turn.content.origins.len()),
                turn,
                removed: None,
            });
        });
    }

    /// Whether a passage has begun and not ended.
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
        let next = &self.turn.content;
        let replies = next.site.replies().iter().zip(&next.origins);
        let rest = replies.skip(self.prepared.len());
        for (reply, &origin) in rest.take(REPLIES_IN_A_STEP) {
            let prepared = match origin {
                NEW => PreparedReply::add(reply, contents),
                old => Ok(web.prepared()[old as usize]),
            };
            match prepared {
                Ok(prepared) => self.prepared.push(prepared),
                // There are too many contents. The old site stays.
                Err(_) => return true,
            }
        }
        if self.prepared.len() == next.origins.len() {
            let site = Arc::clone(&next.site);
            self.prepared = web.change_site(site, std::mem::take(&mut self.prepared));
            self.removed = Some(0);
        }
        false
    }

    /// Removes replies that only the old site has. Their memory is freed when no connection sends
    /// them any more. Returns true if all are removed.
    fn remove_some(&mut self, removed: usize, contents: &mut Contents) -> bool {
        let leaving = &self.turn.content.leaving;
        let end = leaving.len().min(removed + REPLIES_IN_A_STEP);
        for &index in &leaving[removed..end] {
            contents.remove(self.prepared[index as usize].content);
        }
        self.removed = Some(end);
        end == leaving.len()
    }
}
