//! Answers that another thread computes later. The thread sleeps, as if it waited for a disk or a
//! back end.
//!
//! ```text
//! # cargo run --release -p examples --bin later
//! # printf 'storm\n' | nc 198.18.0.2 7001
//! ```
//!
//! A single thread receives all lines. It takes 5 ms for a line, and returns the line in capitals.
//! Meanwhile, the workers serve other clients. If the thread's queue is full, the answer is `BUSY`.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nmio::mailbox::Sender;
use tcpip::{Application, CongestionControl, Connection, ConnectionId, Connections};

/// Capacity of the queue of lines for the thread, and of each worker's mailbox for answers.
const QUEUE_LEN: usize = 1_024;
/// Number of received bytes without a line end after which the connection is reset.
const MAX_LINE: usize = 256;
/// How long the thread works on a line.
const WORK: Duration = Duration::from_millis(5);

type Answer = (ConnectionId, Vec<u8>);

/// A line, the connection that sent it, and the mailbox for the answer.
struct Question(ConnectionId, Vec<u8>, Sender<Answer>);

struct Later {
    questions: SyncSender<Question>,
    answers: Sender<Answer>,
}

impl Application for Later {
    type State = ();
    type Message = Answer;

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
            if data.len() >= MAX_LINE {
                conn.abort();
            }
            return 0;
        };
        let question = Question(conn.id(), data[..=end].to_vec(), self.answers.clone());
        match self.questions.try_send(question) {
            // The stack offers no more data of a parked connection until its answer arrives, so the
            // answers keep the order of the lines.
            Ok(()) => conn.park(),
            Err(_) if conn.write_bytes(b"BUSY\n").is_err() => return 0,
            Err(_) => conn.offer_again(),
        }
        end + 1
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, (), C>,
        (id, line): Answer,
    ) {
        connections.answer(id, line.into());
    }
}

impl control::Named for Later {
    const NAME: &'static str = "later";
    const PORT: u16 = 7_001;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
}

/// Answers questions. This function runs on its own thread, which, unlike a worker, may block.
fn work(questions: &Receiver<Question>) {
    for Question(id, line, answers) in questions {
        thread::sleep(WORK);
        // The answer is lost if the worker has stopped or its mailbox is full.
        let _ = answers.send((id, line.to_ascii_uppercase()));
    }
}

fn main() -> ExitCode {
    let thread = OnceLock::new();
    control::tcp(|worker, _| {
        let questions = thread.get_or_init(|| {
            let (sender, receiver) = sync_channel(QUEUE_LEN);
            thread::spawn(move || work(&receiver));
            sender
        });
        Ok(Later {
            questions: SyncSender::clone(questions),
            answers: worker.open_mailbox(QUEUE_LEN),
        })
    })
}
