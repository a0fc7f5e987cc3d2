//! Lets lists of content notice what the passing of time changes, while the workers serve.

use std::convert::Infallible;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use crate::observed::Observed;
use crate::status::Phase;
use crate::status_log;

/// Interval between two calls of a list.
const PERIOD: Duration = Duration::from_mins(1);

/// Calls the lists of content of a server from time to time.
pub(crate) struct Notices<'a> {
    server: &'a Observed,
    next: Option<Instant>,
}

impl<'a> Notices<'a> {
    /// Calls the lists of this server.
    pub(crate) fn new(server: &'a Observed) -> Self {
        Self { server, next: None }
    }

    /// Looks once a second whether the lists must be called, while the future is polled.
    pub(crate) async fn keep_looking(mut self) -> Infallible {
        let mut period = interval(status_log::PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            period.tick().await;
            self.look(Instant::now());
        }
    }

    /// Calls the lists if the workers serve, and if the last calls are long enough ago.
    pub(crate) fn look(&mut self, now: Instant) {
        let is_early = self.next.is_some_and(|next| now < next);
        if is_early || self.server.phase() != Phase::Serving {
            return;
        }
        self.next = Some(now + PERIOD);
        for list in self.server.content_lists() {
            list.notice(SystemTime::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::live::Published;
    use crate::program::ContentList;
    use crate::tally::Tally;

    #[derive(Default)]
    struct Counting(AtomicU32);

    impl ContentList for Counting {
        fn name(&self) -> &'static str {
            "counts"
        }

        fn lines(&self, _: Vec<String>, _: &Tally) -> Box<dyn Iterator<Item = String> + Send> {
            Box::new(std::iter::empty())
        }

        fn notice(&self, _: SystemTime) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn server(list: Arc<dyn ContentList>) -> Arc<Observed> {
        let published = Published::for_workers(1).into();
        let lists = (Vec::new(), vec![list]);
        Observed::new(("test", "1"), published, Arc::default(), None, lists)
    }

    #[test]
    fn lists_are_called_once_a_minute_while_the_workers_serve() {
        let list = Arc::new(Counting::default());
        let server = server(Arc::clone(&list) as Arc<dyn ContentList>);
        let mut notices = Notices::new(&server);
        let start = Instant::now();
        let mut calls = |seconds| {
            notices.look(start + Duration::from_secs(seconds));
            list.0.load(Ordering::Relaxed)
        };
        assert_eq!(calls(0), 0);
        server.note_serving(std::iter::empty());
        assert_eq!(
            [1, 2, 60, 61, 62, 120, 121].map(&mut calls),
            [1, 1, 1, 2, 2, 2, 3]
        );
        server.note_stopping();
        assert_eq!(calls(200), 3);
    }
}
