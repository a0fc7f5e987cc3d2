//! Where the stream is cut into segments.

use super::Cut;
use super::Tcb;
use crate::content::NO_CLASS;
use crate::stream::Lists;
use crate::wire::Seq;

impl Cut {
    /// `None` where the stream ends.
    #[inline(always)]
    pub(crate) fn at(tcb: &Tcb, seq: Seq, lists: &Lists) -> Option<Self> {
        let place = tcb.stream.locate(seq, lists)?;
        let mss = u32::from(tcb.mss);
        let segment = place.from / mss;
        let ahead = place.from - segment * mss;
        let whole = (mss - ahead).min(place.len);
        let prepared = ahead == 0
            && tcb.class != NO_CLASS
            && (place.source.ends_content() || whole == mss && place.source.buffer().is_none());
        Some(Self {
            place,
            whole,
            prepared: prepared.then_some(segment),
        })
    }

    /// What the segment at `seq` of the stream takes of sequence space: its bytes
    /// of data, or the FIN's one.
    pub(super) fn segment_len(tcb: &Tcb, seq: Seq, lists: &Lists) -> u32 {
        Self::at(tcb, seq, lists).map_or(1, |cut| cut.whole)
    }

    /// Bytes of the run of segments that begins here, as long as may be sent:
    /// `usable` bytes, in one packet of at most `most` bytes of data. 0: it
    /// would be no more than a segment, or not be cut as the class is.
    #[inline(always)]
    pub(super) fn run(&self, mss: u32, usable: u32, most: u32) -> u32 {
        let left = self.place.len;
        let bytes = left.min(usable).min(most);
        if bytes <= mss || self.prepared.is_none() {
            return 0;
        }
        let run = if bytes == left {
            left
        } else {
            bytes - bytes % mss
        };
        if run > mss { run } else { 0 }
    }
}

impl Tcb {
    /// Where the last segment that was sent begins; something is in flight.
    pub(crate) fn last_segment(&self, lists: &Lists) -> Seq {
        // Data that a FIN went with, or might have, goes again with it.
        let last = if self.snd_nxt == self.stream.end() + 1 {
            self.stream.end()
        } else {
            self.snd_nxt
        };
        let last = Seq(last.0.wrapping_sub(1));
        if last.before(self.snd_una) {
            return self.snd_una;
        }
        let Some(place) = self.stream.locate(last, lists) else {
            return self.snd_una;
        };
        let ahead = place.from % u32::from(self.mss);
        // A slice may begin within a segment of its content.
        let ahead = ahead.min(last.since(self.stream.entry_start(last, lists)));
        Seq(last.0.wrapping_sub(ahead)).later(self.snd_una)
    }
}
