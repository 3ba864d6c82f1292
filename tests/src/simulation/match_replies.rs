//! Which answer belongs to which request (N1): what the server has just written, against what its
//! client waits for.

use latchd_harness::wording::Protocol;

use super::ask::{Ask, What};
use super::auditor::{Auditor, Breach, Said};
use super::caller::Caller;
use super::names::Names;
use super::observed::{Observed, decode, is_to, silence};
use super::trace::{Brief, Note, Trace};
use super::workload::intent::intended;

/// Matches replies with requests, and shows both to the auditor.
#[derive(Debug)]
pub(super) struct ReplyMatcher<'a> {
    pub(super) auditor: &'a mut Auditor,
    pub(super) trace: &'a mut Trace,
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

impl ReplyMatcher<'_> {
    /// Shows the auditor what stands in the output of `caller` behind `from`. `closes` if the server
    /// has closed.
    pub(super) fn match_replies(
        &mut self,
        caller: &mut Caller,
        from: usize,
        closes: bool,
    ) -> Result<(), Breach> {
        let output = std::mem::take(&mut caller.output);
        let matched = self.match_all(caller, &output, from, closes);
        caller.output = output;
        matched
    }

    fn match_all(
        &mut self,
        caller: &mut Caller,
        output: &[u8],
        from: usize,
        closes: bool,
    ) -> Result<(), Breach> {
        let mut rest = &output[from..];
        while let Some(ask) = caller.asks.front() {
            let mut ask = *ask;
            let is_begun = caller.consumed > ask.start;
            let is_done = caller.consumed >= ask.end;
            if closes && !is_begun && ask.ends_connection() {
                self.match_last(caller, &ask, &mut rest)?;
                break;
            }
            if !ask.answered {
                self.match_one(caller, &mut ask, &mut rest, is_begun)?;
                if is_done && !ask.answered {
                    return Err(broken(format!("no answer, or half of one, to {ask}")));
                }
                let read = caller.read + (output.len() - rest.len()) as u64;
                let (key, number) = (ask.key(), ask.number);
                if ask.answered
                    && matches!(ask.what, What::Lock | What::LockAndGet)
                    && self.auditor.holder(key) == Some(caller.conn)
                {
                    caller.grants.push_back((read, key, number));
                }
            }
            if !is_done {
                *caller.asks.front_mut().expect("it was there above") = ask;
                break;
            }
            caller.asks.pop_front();
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
    fn match_last(
        &mut self,
        caller: &mut Caller,
        ask: &Ask,
        rest: &mut &[u8],
    ) -> Result<(), Breach> {
        let is_told = match (ask.what, ask.protocol) {
            (What::Quit, Protocol::Binary) => !ask.style.quiet,
            (What::Nonsense, protocol) => protocol != Protocol::Binary,
            _ => false,
        };
        if is_told {
            let answer = self.next(ask, rest)?;
            self.audit(caller, ask, 0, &answer)?;
        }
        caller.asks.clear();
        Ok(())
    }

    fn match_one(
        &mut self,
        caller: &mut Caller,
        ask: &mut Ask,
        rest: &mut &[u8],
        is_begun: bool,
    ) -> Result<(), Breach> {
        let is_in_parts = match ask.what {
            What::Get => ask.protocol == Protocol::Classic,
            What::Keys | What::Stats => true,
            _ => false,
        };
        if is_in_parts {
            let is_first = ask.keys_answered == 0;
            while !rest.is_empty() && !ask.answered {
                let answer = self.next(ask, rest)?;
                self.audit_part(caller, ask, &answer)?;
            }
            if ask.what == What::Keys && ask.executed > 0 {
                ask.keys_answered = 1;
            }
            if ask.what == What::Keys && ask.answered {
                let listed = std::mem::take(&mut caller.listed);
                // In one go nothing can have changed in between.
                let prefix = ask.prefix(self.names.count());
                let prefix = prefix.map_or(&b""[..], |key| self.names.plain(key));
                let missing = self.auditor.held().find(|(key, _)| {
                    listed >> key & 1 == 0 && self.names.plain(*key).starts_with(prefix)
                });
                if let (true, Some((key, holder))) = (is_first, missing) {
                    return Err(broken(format!(
                        "key {key} is held by {holder}, and not listed"
                    )));
                }
            }
        } else if rest.is_empty() || ask.style.quiet && !is_to(ask, caller.is_alone, rest) {
            if is_begun {
                let answer = silence(ask).map_err(|unfit| broken(format!("{unfit}: {ask}")))?;
                self.audit(caller, ask, 0, &answer)?;
                ask.answered = true;
            }
        } else {
            let answer = self.next(ask, rest)?;
            self.audit(caller, ask, 0, &answer)?;
            ask.answered = true;
        }
        Ok(())
    }

    fn next<'b>(&self, ask: &Ask, rest: &mut &'b [u8]) -> Result<Observed<'b>, Breach> {
        let (answer, taken) = decode(ask, self.names, rest).map_err(|unfit| {
            broken(format!(
                "{unfit}: {} to {ask}",
                rest[..rest.len().min(200)].escape_ascii()
            ))
        })?;
        *rest = &rest[taken..];
        Ok(answer)
    }

    /// Shows the auditor the answer for the `place`th key of a request.
    fn audit(
        &mut self,
        caller: &Caller,
        ask: &Ask,
        place: usize,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let note = || Note::Answered(*ask, Brief::of(answer));
        self.trace.note(self.event, self.client, caller.conn, note);
        self.audit_unnoted(caller, ask, place, answer)
    }

    fn audit_unnoted(
        &mut self,
        caller: &Caller,
        ask: &Ask,
        place: usize,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let said = Said {
            conn: caller.conn,
            ask,
            key: usize::from(ask.keys[place]),
            intended: intended(ask, place, self.names, self.value),
        };
        self.auditor.audit(&said, answer)
    }

    /// One of the answers to a get of several keys, a listing, or the counters.
    fn audit_part(
        &mut self,
        caller: &mut Caller,
        ask: &mut Ask,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        match (ask.what, answer) {
            (What::Get, Observed::Hit(hit)) => {
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
                    self.auditor.unseen(key)?;
                };
                self.audit(caller, ask, place, answer)
            }
            (What::Get, Observed::End) => {
                let rest = usize::from(ask.keys_answered)..usize::from(ask.key_count);
                let note = || Note::Answered(*ask, Brief::of(answer));
                self.trace.note(self.event, self.client, caller.conn, note);
                for key in &ask.keys[rest] {
                    self.auditor.unseen(usize::from(*key))?;
                }
                ask.answered = true;
                Ok(())
            }
            (What::Keys, Observed::Key(key)) => {
                if let Some(key) = key {
                    caller.listed |= 1 << key;
                }
                self.audit(caller, ask, 0, answer)
            }
            (_, Observed::End | Observed::Malformed) => {
                ask.answered = true;
                self.audit(caller, ask, 0, answer)
            }
            (What::Stats, Observed::Stat) => self.audit_unnoted(caller, ask, 0, answer),
            _ => Err(broken(format!(
                "{answer:?} is no part of an answer to {ask}"
            ))),
        }
    }
}
