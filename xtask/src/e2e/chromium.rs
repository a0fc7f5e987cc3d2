//! Headless Chromium as a client, and commands to it by the `DevTools` protocol.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rig::Rig;
use crate::{interrupt, shell};

/// Time limit for a whole session in seconds.
const SESSION_LIMIT: u32 = 300;
/// Time limit for the next message from Chromium. It includes the start, and a script that waits.
const MESSAGE_LIMIT: Duration = Duration::from_mins(1);
/// A shell script that starts a program with the pipes at the numbers where Chromium expects them.
const WITH_PIPES: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2";
/// The file of Chromium's messages for people, in its profile.
const LOG: &str = "stderr";

/// Returns a command that starts Chromium in the client's namespace, and kills it after `limit` seconds.
/// `start` is the program, or a shell that starts it.
pub(super) fn command(rig: &Rig, profile: &Path, limit: u32, start: &[&str]) -> Command {
    let mut command = rig.client().command("timeout");
    command.arg(limit.to_string()).args(start);
    command.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    command.arg("--disable-background-networking");
    command.arg(format!("--user-data-dir={}", profile.display()));
    command
}

/// A running Chromium with one page. Dropping it ends the program.
pub(super) struct Chromium {
    child: Child,
    commands: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Number of commands so far.
    sent: u64,
    /// Identifier of the session with the page. Empty before there is one.
    session: String,
    profile: TempDir,
}

impl Chromium {
    pub(super) fn start(rig: &Rig) -> Result<Self> {
        let profile = shell::scratch("chromium")?;
        let log = File::create(profile.path().join(LOG)).context("making a log")?;
        let start = ["sh", "-c", WITH_PIPES, "chromium"];
        let mut command = command(rig, profile.path(), SESSION_LIMIT, &start);
        command.arg("--remote-debugging-pipe");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.stderr(log).spawn();
        let mut child = spawned.with_context(|| shell::shown(&command))?;
        let output = child.stdout.take().context("no pipe from Chromium")?;
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let texts = BufReader::new(output).split(0);
            let parsed = |text: Vec<u8>| serde_json::from_slice(&text).ok();
            for message in texts.map_while(Result::ok).filter_map(parsed) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut chromium = Self {
            commands: child.stdin.take(),
            child,
            messages,
            sent: 0,
            session: String::new(),
            profile,
        };
        let target = chromium.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = chromium.call("Target.attachToTarget", attach)?;
        let session = attached["sessionId"].as_str();
        session
            .context("no session")?
            .clone_into(&mut chromium.session);
        chromium.call("Page.enable", json!({}))?;
        Ok(chromium)
    }

    /// Sends a command, and returns its result.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.call_until(method, parameters, None)
    }

    /// Opens a page, and waits until it is loaded.
    pub(super) fn open(&mut self, url: &str) -> Result<()> {
        self.load("Page.navigate", json!({"url": url}))
    }

    /// Loads the page again, as a person does, and waits until it is loaded.
    pub(super) fn reload(&mut self) -> Result<()> {
        self.load("Page.reload", json!({}))
    }

    fn load(&mut self, method: &str, parameters: Value) -> Result<()> {
        let result = self.call_until(method, parameters, Some("Page.loadEventFired"))?;
        ensure!(result["errorText"].is_null(), "{method}: {result}");
        Ok(())
    }

    /// Runs a script in the page, and returns its value. If that is a promise, waits for it.
    pub(super) fn evaluate(&mut self, script: &str) -> Result<Value> {
        let mut parameters = json!({"expression": script, "awaitPromise": true});
        parameters["returnByValue"] = true.into();
        // Without a click of a person, pages may not play or download.
        parameters["userGesture"] = true.into();
        let mut result = self.call("Runtime.evaluate", parameters)?;
        let thrown = &result["exceptionDetails"];
        ensure!(thrown.is_null(), "{thrown}\nin {script}");
        Ok(result["result"]["value"].take())
    }

    /// Sends a command, and waits for its result and for an event. Other events have no effect.
    fn call_until(
        &mut self,
        method: &str,
        parameters: Value,
        event: Option<&str>,
    ) -> Result<Value> {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method});
        message["params"] = parameters;
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let commands = self.commands.as_mut().context("no pipe to Chromium")?;
        let sent = commands.write_all(format!("{message}\0").as_bytes());
        if sent.is_err() {
            return Err(self.failure()).context(method.to_owned());
        }
        let (mut result, mut happened) = (None, event.is_none());
        loop {
            if happened && let Some(result) = result {
                return Ok(result);
            }
            let mut message = self.next_message().context(method.to_owned())?;
            if message["id"] == self.sent {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                result = Some(message["result"].take());
            }
            // An event before the result belongs to an earlier command.
            happened |= result.is_some() && message["method"].as_str() == event;
        }
    }

    fn next_message(&self) -> Result<Value> {
        interrupt::check()?;
        let received = self.messages.recv_timeout(MESSAGE_LIMIT);
        received.map_err(|_| self.failure())
    }

    /// An error with the end of what Chromium has written for people.
    fn failure(&self) -> anyhow::Error {
        let log = shell::read(&self.profile.path().join(LOG)).unwrap_or_default();
        anyhow!("Chromium is silent:\n{}", shell::end_of(&log, 20))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Chromium ends when its pipe does, and at the latest after the time limit of its command.
        self.commands = None;
        let _ = self.child.wait();
    }
}
