//! Runs the lines of a case that control the application and the peers.

use std::sync::Arc;

use crate::CongestionControl;

use super::expr::Expr;
use super::language::Relation;
use super::rig::{Habit, content};
use super::run::Runner;

impl<C: CongestionControl> Runner<C> {
    pub(crate) fn instruct(&mut self, words: &[String]) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let symbols = self.symbols();
        let number = |text: &str| Expr::parse(text).map(|expr| expr.value(&symbols) as usize);
        let habit = match words.as_slice() {
            ["silent"] => Habit::Silent,
            ["lazy"] => Habit::Lazy,
            ["sip", len] => Habit::Sip(number(len)?),
            ["echo"] => Habit::Echo,
            ["close"] => Habit::Close,
            ["abort"] => Habit::Abort,
            ["say", len] => Habit::Say(number(len)?),
            ["serve", len] => {
                self.load(number(len)?)?;
                Habit::Serve
            }
            ["serve", len, "once"] => {
                self.load(number(len)?)?;
                Habit::ServeOnce
            }
            ["greet", len] => {
                self.server.transports.app_mut().greeting = number(len)?;
                return Ok(());
            }
            ["refuse"] => {
                self.server.transports.app_mut().refuse = true;
                return Ok(());
            }
            ["stay-open"] => {
                self.server.transports.app_mut().close_back = false;
                return Ok(());
            }
            other => return Err(format!("the application cannot {other:?}")),
        };
        self.server.transports.app_mut().habit = habit;
        Ok(())
    }

    fn load(&mut self, len: usize) -> Result<(), String> {
        let bytes: Arc<[u8]> = content(len).into();
        let contents = self.server.transports.contents_mut();
        let id = contents
            .add(Arc::clone(&bytes), None)
            .map_err(|what| what.to_string())?;
        self.server.transports.app_mut().content = Some((id, bytes));
        Ok(())
    }

    pub(crate) fn select(&mut self, name: &str, like: Option<&str>) -> Result<(), String> {
        if !self.peers.contains_key(name) {
            let port = match like {
                Some(other) => {
                    let gone = self
                        .peers
                        .get_mut(other)
                        .ok_or("the peer after `like` is unknown")?;
                    // Two peers cannot share a port, so the newer peer takes over the port of the
                    // older one.
                    std::mem::replace(&mut gone.port, 0)
                }
                None => 40_000 + self.peers.len() as u16,
            };
            let peer = self.new_peer(port);
            self.peers.insert(name.to_owned(), peer);
        }
        name.clone_into(&mut self.current);
        Ok(())
    }

    pub(crate) fn compare_isn(
        &mut self,
        of: &str,
        from: &str,
        relation: &Relation,
    ) -> Result<(), String> {
        let iss = |name: &str| {
            let peer = self.peers.get(name);
            peer.and_then(|peer| peer.iss.map(|iss| (iss, peer.sent_to)))
                .ok_or_else(|| format!("no ISN of {name} is known"))
        };
        let ((iss, _), (other, other_end)) = (iss(of)?, iss(from)?);
        let holds = match relation {
            Relation::Differs => iss != other,
            Relation::Ahead => iss.wrapping_sub(other_end).cast_signed() > 0,
            Relation::By(expr) => iss.wrapping_sub(other) == self.value(expr),
        };
        if holds {
            return Ok(());
        }
        Err(format!("the ISNs are {iss} ({of}) and {other} ({from})"))
    }
}
