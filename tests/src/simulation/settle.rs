//! Which answer belongs to which request (N1): what the server has just written, against what its
//! client waits for.

use super::answer::{Answer, decode, is_to, silence};
use super::ask::{Ask, What, Wire};
use super::journal::{Brief, Journal, Note};
use super::ledger::{Breach, Ledger, Said};
use super::meaning::meant;
use super::names::Names;
use super::peer::Peer;

/// Where answers are entered.
#[derive(Debug)]
pub(super) struct Books<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) journal: &'a mut Journal,
    pub(super) names: &'a Names,
    /// Room for a value.
    pub(super) value: &'a mut Vec<u8>,
    pub(super) event: u64,
    pub(super) client: usize,
}

fn broken(what: impl Into<String>) -> Breach {
    Breach {
        rule: "N1",
        what: what.into(),
    }
}

impl Books<'_> {
    /// Enters what stands in the output of `peer` behind `from`. `closes` if the server has closed.
    pub(super) fn settle(
        &mut self,
        peer: &mut Peer,
        from: usize,
        closes: bool,
    ) -> Result<(), Breach> {
        let output = std::mem::take(&mut peer.output);
        let settled = self.settle_all(peer, &output, from, closes);
        peer.output = output;
        settled
    }

    fn settle_all(
        &mut self,
        peer: &mut Peer,
        output: &[u8],
        from: usize,
        closes: bool,
    ) -> Result<(), Breach> {
        let mut rest = &output[from..];
        while let Some(ask) = peer.asks.front() {
            let mut ask = *ask;
            let is_begun = peer.consumed > ask.start;
            let is_done = peer.consumed >= ask.end;
            if closes && !is_begun && ask.ends_connection() {
                self.settle_last(peer, &ask, &mut rest)?;
                break;
            }
            if !ask.answered {
                self.settle_one(peer, &mut ask, &mut rest, is_begun)?;
                if is_done && !ask.answered {
                    return Err(broken(format!("no answer, or half of one, to {ask}")));
                }
                let read = peer.read + (output.len() - rest.len()) as u64;
                let (key, number) = (ask.key(), ask.number);
                if ask.answered
                    && matches!(ask.what, What::Lock | What::LockAndGet)
                    && self.ledger.holder(key) == Some(peer.conn)
                {
                    peer.grants.push_back((read, key, number));
                }
            }
            if !is_done {
                *peer.asks.front_mut().expect("it was there above") = ask;
                break;
            }
            peer.asks.pop_front();
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(broken(format!(
                "{} is an answer to no request",
                rest.escape_ascii()
            )))
        }
    }

    /// The request after which the server has closed.
    fn settle_last(&mut self, peer: &mut Peer, ask: &Ask, rest: &mut &[u8]) -> Result<(), Breach> {
        let is_told = match (ask.what, ask.wire) {
            (What::Quit, Wire::Binary) => !ask.quiet,
            (What::Nonsense, wire) => wire != Wire::Binary,
            _ => false,
        };
        if is_told {
            let answer = self.next(ask, rest)?;
            self.enter(peer, ask, 0, &answer)?;
        }
        peer.asks.clear();
        Ok(())
    }

    fn settle_one(
        &mut self,
        peer: &mut Peer,
        ask: &mut Ask,
        rest: &mut &[u8],
        is_begun: bool,
    ) -> Result<(), Breach> {
        let is_in_parts = match ask.what {
            What::Get => ask.wire == Wire::Classic,
            What::Keys | What::Stats => true,
            _ => false,
        };
        if is_in_parts {
            let is_first = ask.keys_answered == 0;
            while !rest.is_empty() && !ask.answered {
                let answer = self.next(ask, rest)?;
                self.enter_part(peer, ask, &answer)?;
            }
            if ask.what == What::Keys && ask.executed > 0 {
                ask.keys_answered = 1;
            }
            if ask.what == What::Keys && ask.answered {
                let listed = std::mem::take(&mut peer.listed);
                // In one go nothing can have changed in between.
                let prefix = ask.prefix(self.names.count());
                let prefix = prefix.map_or(&b""[..], |key| self.names.plain(key));
                let missing = self.ledger.held().find(|(key, _)| {
                    listed >> key & 1 == 0 && self.names.plain(*key).starts_with(prefix)
                });
                if let (true, Some((key, holder))) = (is_first, missing) {
                    return Err(broken(format!(
                        "key {key} is held by {holder}, and not listed"
                    )));
                }
            }
        } else if rest.is_empty() || ask.quiet && !is_to(ask, peer.is_alone, rest) {
            if is_begun {
                let answer = silence(ask).map_err(|unfit| broken(format!("{unfit}: {ask}")))?;
                self.enter(peer, ask, 0, &answer)?;
                ask.answered = true;
            }
        } else {
            let answer = self.next(ask, rest)?;
            self.enter(peer, ask, 0, &answer)?;
            ask.answered = true;
        }
        Ok(())
    }

    fn next<'b>(&self, ask: &Ask, rest: &mut &'b [u8]) -> Result<Answer<'b>, Breach> {
        let (answer, taken) = decode(ask, self.names, rest).map_err(|unfit| {
            broken(format!(
                "{unfit}: {} to {ask}",
                rest[..rest.len().min(200)].escape_ascii()
            ))
        })?;
        *rest = &rest[taken..];
        Ok(answer)
    }

    /// Enters the answer for the `place`th key of a request.
    fn enter(
        &mut self,
        peer: &Peer,
        ask: &Ask,
        place: usize,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        let note = || Note::Answered(*ask, Brief::of(answer));
        self.journal.note(self.event, self.client, peer.conn, note);
        self.enter_unnoted(peer, ask, place, answer)
    }

    fn enter_unnoted(
        &mut self,
        peer: &Peer,
        ask: &Ask,
        place: usize,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        let said = Said {
            conn: peer.conn,
            ask,
            key: usize::from(ask.keys[place]),
            meant: meant(ask, place, self.names, self.value),
        };
        self.ledger.enter(&said, answer)
    }

    /// One of the answers to a get of several keys, a listing, or the counters.
    fn enter_part(
        &mut self,
        peer: &mut Peer,
        ask: &mut Ask,
        answer: &Answer<'_>,
    ) -> Result<(), Breach> {
        match (ask.what, answer) {
            (What::Get, Answer::Hit(hit)) => {
                // Keys before it that are not there: the server has looked at them just now.
                let place = loop {
                    let at = usize::from(ask.keys_answered);
                    if at >= usize::from(ask.key_count) {
                        return Err(broken(format!("an item out of order to {ask}")));
                    }
                    let key = usize::from(ask.keys[at]);
                    ask.keys_answered += 1;
                    if hit.key == Some(key) {
                        break at;
                    }
                    self.ledger.unseen(key)?;
                };
                self.enter(peer, ask, place, answer)
            }
            (What::Get, Answer::End) => {
                let rest = usize::from(ask.keys_answered)..usize::from(ask.key_count);
                let note = || Note::Answered(*ask, Brief::of(answer));
                self.journal.note(self.event, self.client, peer.conn, note);
                for key in &ask.keys[rest] {
                    self.ledger.unseen(usize::from(*key))?;
                }
                ask.answered = true;
                Ok(())
            }
            (What::Keys, Answer::Key(key)) => {
                if let Some(key) = key {
                    peer.listed |= 1 << key;
                }
                self.enter(peer, ask, 0, answer)
            }
            (_, Answer::End | Answer::Malformed) => {
                ask.answered = true;
                self.enter(peer, ask, 0, answer)
            }
            (What::Stats, Answer::Stat) => self.enter_unnoted(peer, ask, 0, answer),
            _ => Err(broken(format!(
                "{answer:?} is no part of an answer to {ask}"
            ))),
        }
    }
}
