//! Walks through the connections of all workers, on the control thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use super::filter::ConnectionFilter;
use super::line::{ConnectionStatus, Line, ListSummary};
use super::walk::{Found, Walk};
use crate::live::Published;
use crate::program::ContentNames;
use crate::questions::Question;

/// A worker that has not answered for this time gets no CPU time, or has ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of connections whose contents are named together, because that reads the names of all
/// contents.
const NAMED_TOGETHER: usize = 1_024;

/// What a list should have.
#[derive(Clone, Debug)]
pub(crate) struct ListRequest {
    pub(crate) filter: ConnectionFilter,
    /// Maximum number of connections in the list.
    pub(crate) limit: u64,
}

/// A part of a list: some of its lines, in order.
pub(crate) struct ListPart(Vec<Line>);

impl ListPart {
    /// Returns the lines of this part.
    pub(crate) fn into_lines(self) -> Vec<Line> {
        self.0
    }
}

/// Writes the lines as JSON, for the body of an answer.
impl From<ListPart> for Frame<Bytes> {
    fn from(part: ListPart) -> Self {
        let mut bytes = Vec::new();
        for line in part.0 {
            // A line has no map, so it can always be written.
            let _ = serde_json::to_writer(&mut bytes, &line);
            bytes.push(b'\n');
        }
        Self::data(Bytes::from(bytes))
    }
}

/// The workers of a server, which can be asked for their connections.
pub(crate) struct Lister {
    published: Arc<[Published]>,
    names: Vec<Arc<dyn ContentNames>>,
    /// Held during a slice, so that a worker visits at most one slice between two batches, also for
    /// several clients.
    turn: Mutex<()>,
}

/// The client of a list has gone away.
struct Gone;

impl Lister {
    pub(crate) fn new(published: Arc<[Published]>, names: Vec<Arc<dyn ContentNames>>) -> Self {
        Self {
            published,
            names,
            turn: Mutex::new(()),
        }
    }

    /// Sends the parts of a list to `out`, until all are sent or the client has gone away.
    pub(crate) async fn list<T>(&self, request: ListRequest, out: mpsc::Sender<T>)
    where
        T: From<ListPart>,
    {
        // Nobody is left to be told.
        let _ = self.send_list(request, &out).await;
    }

    async fn send_list<T: From<ListPart>>(
        &self,
        request: ListRequest,
        out: &mpsc::Sender<T>,
    ) -> Result<(), Gone> {
        let mut summary = ListSummary::default();
        for worker in 0..self.published.len() as u32 {
            self.send_worker(worker, &request, &mut summary, out)
                .await?;
        }
        send(out, [Line::End { summary }]).await
    }

    async fn send_worker<T: From<ListPart>>(
        &self,
        worker: u32,
        request: &ListRequest,
        summary: &mut ListSummary,
        out: &mpsc::Sender<T>,
    ) -> Result<(), Gone> {
        let mut walk = Box::new(Walk::new(request.filter.clone()));
        let mut batch = Vec::new();
        let before = summary.connections;
        loop {
            let Some(slice) = self.next_slice(worker, walk).await else {
                summary.silent_workers.push(worker);
                break;
            };
            walk = slice;
            summary.connections = before + walk.connections();
            summary.matching += walk.found().len() as u64;
            let room = request.limit.saturating_sub(summary.listed);
            let listed = walk.found().iter().take(room as usize);
            let length = batch.len();
            batch.extend(listed);
            summary.listed += (batch.len() - length) as u64;
            let has_ended = walk.has_ended();
            if has_ended || batch.len() >= NAMED_TOGETHER {
                self.send_rows(worker, &batch, out).await?;
                batch.clear();
            }
            if has_ended {
                return Ok(());
            }
            if out.is_closed() {
                return Err(Gone);
            }
        }
        self.send_rows(worker, &batch, out).await
    }

    /// Lets a worker continue a walk. Returns `None` if the worker does not answer.
    async fn next_slice(&self, worker: u32, walk: Box<Walk>) -> Option<Box<Walk>> {
        let _turn = self.turn.lock().await;
        let (reply, answer) = oneshot::channel();
        let question = Question::Walk(walk, reply);
        self.published[worker as usize].ask(question).ok()?;
        timeout(PATIENCE, answer).await.ok()?.ok()
    }

    async fn send_rows<T: From<ListPart>>(
        &self,
        worker: u32,
        batch: &[Found],
        out: &mpsc::Sender<T>,
    ) -> Result<(), Gone> {
        if batch.is_empty() {
            return Ok(());
        }
        let names = self.names_of(batch);
        let rows = batch.iter().map(|found| {
            let content = found.connection.sending.and_then(|sent| sent.content);
            let name = content.and_then(|content| names.get(&content).cloned().flatten());
            Line::Connection(ConnectionStatus::new(worker, found, name).into())
        });
        send(out, rows).await
    }

    /// Returns the names of the contents that these connections send.
    fn names_of(&self, batch: &[Found]) -> HashMap<usize, Option<String>> {
        let sent = batch.iter().filter_map(|found| found.connection.sending);
        let contents = sent.filter_map(|sent| sent.content);
        let mut names: HashMap<_, _> = contents.map(|content| (content, None)).collect();
        if !names.is_empty() {
            for source in &self.names {
                source.name_all(&mut |content, name| {
                    if let Some(unnamed) = names.get_mut(&content) {
                        *unnamed = Some(String::from_utf8_lossy(name).into_owned());
                    }
                });
            }
        }
        names
    }
}

async fn send<T: From<ListPart>>(
    out: &mpsc::Sender<T>,
    lines: impl IntoIterator<Item = Line>,
) -> Result<(), Gone> {
    let part = ListPart(lines.into_iter().collect());
    out.send(part.into()).await.map_err(|_| Gone)
}

#[cfg(test)]
mod tests {
    use nmio::Bell;
    use tokio::runtime::Builder;

    use super::*;

    fn read(frames: Vec<Frame<Bytes>>) -> Vec<Line> {
        let bytes: Vec<_> = frames
            .into_iter()
            .flat_map(|frame| frame.into_data().unwrap())
            .collect();
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// One worker answers that it has no connections. The mailbox of the other one is gone.
    #[test]
    fn a_worker_that_has_ended_is_named() {
        let published: Arc<[Published]> = Published::for_workers(2).into();
        let mut asked = published[0].open_questions(&Bell::new().unwrap());
        drop(published[1].open_questions(&Bell::new().unwrap()));
        let lister = Lister::new(Arc::clone(&published), Vec::new());
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let lines = runtime.block_on(async {
            let (out, mut frames) = mpsc::channel(8);
            let request = ListRequest {
                filter: ConnectionFilter::default(),
                limit: 10,
            };
            let worker = async {
                loop {
                    asked.take_all(|question| {
                        if let Question::Walk(mut walk, reply) = question {
                            walk.begin_slice();
                            reply.send(walk).unwrap();
                        }
                    });
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = lister.list(request, out) => {}
                () = worker => {}
            }
            let mut all = Vec::new();
            while let Some(frame) = frames.recv().await {
                all.push(frame);
            }
            read(all)
        });
        let summary = ListSummary {
            silent_workers: vec![1],
            ..ListSummary::default()
        };
        assert_eq!(lines, [Line::End { summary }]);
    }
}
