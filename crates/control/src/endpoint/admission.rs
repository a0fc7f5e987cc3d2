//! Decides which connections of an endpoint may stay. Whoever makes the least use of a place gives way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections at once on one endpoint.
pub(super) const MAX_CONNECTIONS: usize = 16;

/// Admits [`MAX_CONNECTIONS`] connections. After that, a new connection takes the place of one that waits
/// for its client. Such a client has not sent a complete request, or does not read its answer. The
/// connection that has waited longest gives way. A connection whose answer is being made keeps its place.
#[derive(Debug)]
pub(super) struct Admission {
    free: Arc<Semaphore>,
    waiting: Arc<Waiting>,
}

/// The connections that wait for their clients. The one that has waited longest is first.
#[derive(Debug, Default)]
struct Waiting {
    list: Mutex<VecDeque<Arc<Notify>>>,
    /// Told when a connection begins to wait.
    more: Notify,
}

/// The place of an admitted connection. It is free again when this value is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    _permit: OwnedSemaphorePermit,
    leave: Arc<Notify>,
    waiting: Arc<Waiting>,
}

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            waiting: Arc::default(),
        }
    }

    /// Takes a place for a new connection, and waits while every place is used for an answer. Only
    /// one task may take places.
    pub(super) async fn admit(&self) -> Admitted {
        let permit = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(permit);
        let mut has_asked = false;
        let permit = loop {
            if !has_asked
                && self.free.available_permits() == 0
                && let Some(oldest) = self.waiting.list().pop_front()
            {
                oldest.notify_one();
                has_asked = true;
            }
            tokio::select! {
                biased;
                permit = &mut permit => break permit,
                () = self.waiting.more.notified() => {}
            }
        };
        let leave = Arc::new(Notify::new());
        self.waiting.list().push_back(Arc::clone(&leave));
        Admitted {
            _permit: permit.expect("the semaphore is never closed"),
            leave,
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl Admitted {
    /// Notes that the request is complete, or that the client reads its answer, so the connection keeps
    /// its place.
    pub(super) fn use_for_answer(&self) {
        let is_own = |other: &Arc<Notify>| Arc::ptr_eq(other, &self.leave);
        self.waiting.list().retain(|other| !is_own(other));
    }

    /// Notes that the client does not read its answer, so the connection gives way to others.
    pub(super) fn wait_for_client(&self) {
        self.use_for_answer();
        self.waiting.list().push_back(Arc::clone(&self.leave));
        self.waiting.more.notify_one();
    }

    /// Waits until the connection has to give way.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        // Only a connection that is still there can give way.
        self.use_for_answer();
    }
}

impl Waiting {
    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns the result of a future that does not have to wait.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_oldest_connection_without_a_request_gives_way() {
        let admission = Admission::new();
        let mut held: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| now(admission.admit()).unwrap())
            .collect();
        held[0].use_for_answer();
        drop(held.remove(1));
        held.push(now(admission.admit()).unwrap());
        assert!(held.iter().all(|place| now(place.must_leave()).is_none()));
        let mut next = pin!(admission.admit());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        let leaving: Vec<_> = held
            .iter()
            .map(|place| now(place.must_leave()).is_some())
            .collect();
        assert_eq!(leaving.iter().position(|leaves| *leaves), Some(1));
        assert_eq!(leaving.iter().filter(|leaves| **leaves).count(), 1);
        drop(held.remove(1));
        assert!(next.poll(&mut context).is_ready());
    }

    #[test]
    fn connections_whose_requests_are_answered_stay() {
        let admission = Admission::new();
        let mut held: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| now(admission.admit()).unwrap())
            .collect();
        held.iter().for_each(Admitted::use_for_answer);
        assert!(now(admission.admit()).is_none());
        assert!(held.iter().all(|place| now(place.must_leave()).is_none()));
        held.pop();
        assert!(now(admission.admit()).is_some());
    }

    #[test]
    fn a_connection_whose_client_does_not_read_gives_way() {
        let admission = Admission::new();
        let mut held: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| now(admission.admit()).unwrap())
            .collect();
        held.iter().for_each(Admitted::use_for_answer);
        for reads_on in [2, 5, 7] {
            held[reads_on].wait_for_client();
        }
        held[2].use_for_answer();
        let mut next = pin!(admission.admit());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        let leaves = |place: &Admitted| now(place.must_leave()).is_some();
        let leaving: Vec<_> = held.iter().map(leaves).collect();
        let expected: Vec<_> = (0..MAX_CONNECTIONS).map(|place| place == 5).collect();
        assert_eq!(leaving, expected);
        drop(held.remove(5));
        let Poll::Ready(newest) = next.poll(&mut context) else {
            panic!("there is a place");
        };
        // Another one may come before a client stops reading.
        newest.use_for_answer();
        held.iter().for_each(Admitted::use_for_answer);
        let mut next = pin!(admission.admit());
        assert!(next.as_mut().poll(&mut context).is_pending());
        newest.wait_for_client();
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert!(leaves(&newest));
        drop(newest);
        assert!(next.poll(&mut context).is_ready());
    }
}
