//! Reads: what they show is what was stored last (B3), and who wins (B6).

use latchd_core::command::{Get, NewCas};
use latchd_core::item::Cas;

use super::super::super::ask::What;
use super::super::super::observed::{Hit, Marks, Observed};
use super::super::{Auditor, Breach, Gone, There, breach};
use super::{Said, unfit};

impl Auditor {
    pub(super) fn read(
        &mut self,
        said: &Said<'_>,
        get: &Get<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        let key = said.key;
        match (said.ask.what, answer) {
            (What::Get, Observed::Hit(hit)) => {
                if let Some(marks) = hit.marks {
                    return self.read_meta(said, get, hit, marks);
                }
                self.confirm(key, hit)?;
                self.stepped(key, &get.steps);
                Ok(())
            }
            (What::Touch, Observed::Touched) => {
                self.found(key)?;
                self.stepped(key, &get.steps);
                Ok(())
            }
            (What::Debug, Observed::Debug { cas, lock }) => {
                self.found(key)?;
                self.showed_cas(key, Some(*cas))?;
                let holder = self.holder(key);
                if *lock != holder {
                    breach!(
                        "B1",
                        "key {key} is held by {holder:?}, and shown as held by {lock:?}"
                    );
                }
                Ok(())
            }
            (What::Get | What::Touch | What::Debug, Observed::Missing) if !get.steps.vivifies() => {
                self.missed(key)
            }
            _ => unfit(said, answer),
        }
    }

    /// A hit shows what was stored last (B3).
    pub(super) fn confirm(&mut self, key: usize, hit: &Hit<'_>) -> Result<(), Breach> {
        self.found(key)?;
        self.showed_cas(key, hit.cas)?;
        let belief = &mut self.beliefs[key];
        if let Some(shown) = hit.client_flags {
            let known = *belief.client_flags.get_or_insert(shown);
            if known != shown {
                breach!(
                    "B3",
                    "key {key}: client flags {shown} were read, and {known} were stored last"
                );
            }
        }
        let Some(value) = hit.value else {
            return Ok(());
        };
        if !belief.is_known {
            belief.is_known = true;
            belief.value.clear();
            belief.value.extend_from_slice(value);
        } else if belief.value != value {
            breach!(
                "B3",
                "key {key}: {} was read, and {} was stored last",
                value.escape_ascii(),
                belief.value.escape_ascii()
            );
        } else {
            self.tally.confirmed += 1;
        }
        Ok(())
    }

    /// `mg`: the one read that takes part in wins (B6).
    fn read_meta(
        &mut self,
        said: &Said<'_>,
        get: &Get<'_>,
        hit: &Hit<'_>,
        marks: Marks,
    ) -> Result<(), Breach> {
        let key = said.key;
        let Marks { stale, won, sent } = marks;
        let is_made = self.is_made(key, get, hit, marks);
        let gone = match is_made {
            Some(true) => {
                self.vivified(key, get.new_cas, hit.cas)?;
                Gone::Never
            }
            Some(false) => self.beliefs[key].gone,
            None => {
                self.doubt_whether_made(key, get, hit)?;
                Gone::Unknown
            }
        };
        let walk = self.walk(gone, &get.steps, is_made, said.ask.style.ttl_after);
        self.confirm(key, hit)?;
        self.showed_ttl(key, &walk, hit.ttl)?;
        self.compare(key, get, hit)?;
        let belief = &mut self.beliefs[key];
        belief.gone = walk.gone;
        if belief.stale.is_some_and(|known| known != stale) {
            breach!(
                "B6",
                "key {key} is shown with stale {stale}, and that is wrong"
            );
        }
        belief.stale = Some(stale);
        if won && sent {
            breach!("B6", "key {key}: one reader both won and did not");
        }
        let may_win = stale || is_made != Some(false) || walk.may_run_short;
        match belief.won {
            Some(true) if won => breach!("B6", "key {key} was won twice"),
            Some(true) if !sent => breach!("B6", "key {key} was won, and a reader was not told"),
            Some(false) if sent => {
                breach!("B6", "key {key} is not won, and a reader was sent away")
            }
            Some(false) if stale && !won => breach!("B6", "key {key} is stale, and nobody won it"),
            Some(false) if walk.must_run_short && !won => {
                breach!("B6", "key {key} runs short, and nobody won it");
            }
            Some(false) if won && !may_win => {
                breach!("B6", "key {key} was won without a reason");
            }
            _ => {}
        }
        belief.won = Some(won || sent);
        self.tally.wins += u64::from(won);
        self.tally.waits += u64::from(sent);
        Ok(())
    }

    /// Whether a `mg` has made the item that it shows; `None` if nobody can tell. Who makes one
    /// wins, and it is fresh; without an `R`, one that was there is won only if it is stale.
    fn is_made(&self, key: usize, get: &Get<'_>, hit: &Hit<'_>, marks: Marks) -> Option<bool> {
        if !get.steps.vivifies() || !marks.won || marks.stale {
            return Some(false);
        }
        let belief = &self.beliefs[key];
        if self.must_be_gone(key) {
            return Some(true);
        }
        // One that was won before would have been shown as that.
        if belief.won == Some(true) && !self.must_be_there(key) {
            return Some(true);
        }
        let has_value = hit.value.is_some_and(|value| !value.is_empty());
        if has_value || self.must_be_there(key) {
            return Some(false);
        }
        let may_run_short = self
            .walk(belief.gone, &get.steps, Some(false), None)
            .may_run_short;
        if !may_run_short {
            return Some(true);
        }
        match (get.new_cas, belief.cas, hit.cas) {
            // What a client has chosen, the server may give later.
            (NewCas::Next, Some(known), Some(_)) if belief.cas_chosen == Some(known) => None,
            (NewCas::Next, Some(known), Some(shown)) => Some(known != shown),
            (NewCas::Is(new), _, Some(shown)) if shown != new.number() => Some(false),
            (NewCas::Is(new), Some(known), Some(_)) if known != new.number() => Some(true),
            (NewCas::Next | NewCas::Is(_), _, _) => None,
        }
    }

    /// The item that is there now is the one that was, or a new one that is empty.
    fn doubt_whether_made(
        &mut self,
        key: usize,
        get: &Get<'_>,
        hit: &Hit<'_>,
    ) -> Result<(), Breach> {
        self.doubt(key);
        if let NewCas::Is(_) = get.new_cas {
            // Who chooses a version asks to be shown it, so this is it.
            self.new_cas(key, get.new_cas, hit.cas)?;
        }
        let belief = &mut self.beliefs[key];
        belief.client_flags = None;
        belief.there = There::Yes;
        Ok(())
    }

    /// `mg` with the version that the client has: the value is left out if and only if that is the
    /// item's (B5).
    fn compare(&mut self, key: usize, get: &Get<'_>, hit: &Hit<'_>) -> Result<(), Breach> {
        let Some(known) = get.known_cas.map(Cas::number) else {
            return Ok(());
        };
        match hit.is_unchanged {
            Some(true) => self.showed_cas(key, Some(known)),
            Some(false) if self.beliefs[key].cas == Some(known) => {
                breach!(
                    "B5",
                    "key {key} has version {known}, and a client that has it was shown the value"
                );
            }
            Some(false) | None => Ok(()),
        }
    }
}
