//! Keeps short parts of files that recur.

use std::ops::Range;

use tcpip::Contents;

use super::conversation::Conn;
use super::core::Core;
use super::kept_parts::KeptParts;
use super::prepared_reply::PreparedReply;
use crate::answer::{Answer, AnswerForm};
use crate::pending::network;
use crate::site::ReplyId;

impl Core {
    /// Keeps the answer with a short part of a file. The request in `data` was read before, and its
    /// answer is remembered. Returns the answer from now on, or `None` if there is no room.
    #[inline(never)]
    pub(super) fn keep_part<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        part: &Range<usize>,
        data: &[u8],
    ) -> Option<Answer> {
        let (client, contents) = (network(conn.peer().ip()), conn.contents_mut());
        let site = self.hosted(answer);
        let (own, reply) = (self.site.replies().len(), self.site.reply(answer.reply));
        let kept = &self.prepared[own..];
        let is_in_use = |at: usize| contents.is_in_use(kept[at].content);
        let at = self.kept.place_of_next(client, is_in_use)?;
        let reply = reply.with_part(part, &mut self.out);
        let kept = PreparedReply::add(&reply, site, contents).ok()?;
        let index = own + at;
        let answer = Answer {
            reply: ReplyId(index as u32),
            form: AnswerForm::Whole,
            ..*answer
        };
        let Some(place) = self.recent.replace(data, answer) else {
            // Cannot happen: the answer came from there.
            contents.remove(kept.content);
            return None;
        };
        if let Some(old) = self.kept.answer(at) {
            contents.remove(self.prepared[index].content);
            // Another answer may have taken the place of the old one.
            if old != place {
                self.recent.forget(old);
            }
        }
        self.kept.set(at, place, client);
        match self.prepared.get_mut(index) {
            Some(old) => *old = kept,
            None => self.prepared.push(kept),
        }
        Some(answer)
    }

    /// Removes all parts, because the site changes.
    pub(super) fn remove_parts(&mut self, contents: &mut Contents) {
        for kept in self.prepared.drain(self.site.replies().len()..) {
            contents.remove(kept.content);
        }
        self.kept = KeptParts::default();
    }
}

#[cfg(test)]
#[path = "keeping_tests.rs"]
mod tests;
