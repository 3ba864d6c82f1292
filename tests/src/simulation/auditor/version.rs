//! Versions, and who passes a guard (B5).

use latchd_core::command::{Guard, NewCas};

use super::{Auditor, Breach, breach};

impl Auditor {
    /// An answer shows the version of an item that nothing has changed.
    pub(super) fn showed_cas(&mut self, key: usize, cas: Option<u64>) -> Result<(), Breach> {
        let Some(cas) = cas else { return Ok(()) };
        let belief = &mut self.beliefs[key];
        let may_be_chosen = belief.cas_chosen == Some(cas);
        match belief.cas {
            Some(known) if known != cas => {
                breach!(
                    "B5",
                    "key {key} has version {cas}, and nothing changed since {known}"
                );
            }
            None if cas <= belief.cas_above && !may_be_chosen => {
                let above = belief.cas_above;
                breach!(
                    "B5",
                    "key {key} changed, and its version {cas} is not above {above}"
                );
            }
            Some(_) | None => belief.cas = Some(cas),
        }
        if !may_be_chosen {
            belief.cas_chosen = None;
            self.cas_highest = self.cas_highest.max(cas);
        }
        Ok(())
    }

    /// An item got a new version, which the answer may show.
    pub(super) fn new_cas(
        &mut self,
        key: usize,
        new_cas: NewCas,
        shown: Option<u64>,
    ) -> Result<(), Breach> {
        let highest = self.cas_highest;
        let belief = &mut self.beliefs[key];
        belief.forget_cas();
        belief.cas_above = highest;
        let chosen = match new_cas {
            NewCas::Next => None,
            NewCas::Is(cas) => Some(cas.number()),
        };
        belief.cas_chosen = chosen;
        belief.cas = chosen;
        self.showed_cas(key, shown)
    }

    /// An item may have got a new version, or still have its old one.
    pub(super) fn doubt_cas(&mut self, key: usize) {
        let belief = &mut self.beliefs[key];
        if let Some(known) = belief.cas
            && belief.cas_chosen.is_none()
        {
            // What the server gives is not below it.
            belief.cas_above = known - 1;
        }
        belief.forget_cas();
    }

    /// A guard has let a change pass, or not.
    pub(super) fn guarded(&self, key: usize, guard: Guard, passed: bool) -> Result<(), Breach> {
        let (wanted, else_stale) = match guard {
            Guard::None => return Ok(()),
            Guard::Match(cas) => (cas.number(), false),
            Guard::MatchElseStale(cas) => (cas.number(), true),
            Guard::Never => (0, false),
        };
        let belief = &self.beliefs[key];
        let may_be = wanted > belief.cas_above || belief.cas_chosen == Some(wanted);
        let may_pass = match belief.cas {
            Some(cas) => wanted == cas || else_stale && wanted < cas,
            None => may_be || else_stale,
        };
        let may_fail = belief.cas.is_none() || !may_pass;
        if passed && !may_pass {
            breach!(
                "B5",
                "key {key}: a guard for {wanted} passed, and the version is {:?}, or above {}",
                belief.cas,
                belief.cas_above
            );
        }
        if !passed && !may_fail {
            breach!(
                "B5",
                "key {key}: a guard for {wanted} failed, and the version is {:?}",
                belief.cas
            );
        }
        Ok(())
    }
}

impl super::Belief {
    /// Its version is not known any more, and a client may remember the one it had.
    pub(super) const fn forget_cas(&mut self) {
        if let Some(cas) = self.cas.take() {
            self.cas_past = Some(cas);
        }
    }
}
