//! Taking a lock and giving it back (B1).

use latchd_core::command::Get;
use latchd_harness::wording::Protocol;

use super::super::super::observed::Observed;
use super::super::{Auditor, Breach, breach};
use super::{Said, unfit};

impl Auditor {
    pub(super) fn lock(&mut self, said: &Said<'_>, answer: &Observed<'_>) -> Result<(), Breach> {
        match answer {
            Observed::Ok => {
                self.is_free(said)?;
                self.found(said.key)?;
                self.granted(said)
            }
            _ => self.not_granted(said, answer),
        }
    }

    pub(super) fn lock_and_get(
        &mut self,
        said: &Said<'_>,
        get: &Get<'_>,
        answer: &Observed<'_>,
    ) -> Result<(), Breach> {
        match answer {
            Observed::Hit(hit) => {
                self.is_free(said)?;
                self.confirm(said.key, hit)?;
                self.stepped(said.key, &get.steps);
                self.granted(said)
            }
            _ => self.not_granted(said, answer),
        }
    }

    /// Nobody holds what `said` was given.
    fn is_free(&self, said: &Said<'_>) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        if let Some(holder) = self.holder(key) {
            breach!(
                "B1",
                "key {key} is held by {holder}, and {conn} got its lock"
            );
        }
        Ok(())
    }

    fn granted(&mut self, said: &Said<'_>) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        if self.locks_of(conn) >= self.room.locks_per_connection_max {
            breach!("B7", "{conn} has more locks than a connection may have");
        }
        self.beliefs[key].holder = Some(conn);
        self.tally.locks += 1;
        Ok(())
    }

    fn not_granted(&mut self, said: &Said<'_>, answer: &Observed<'_>) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        match answer {
            Observed::Locked => {
                if self.holder(key).is_none() {
                    breach!(
                        "B1",
                        "key {key} is held by nobody, and {conn} did not get its lock"
                    );
                }
                self.tally.contended += 1;
                self.found(key)
            }
            Observed::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }

    pub(super) fn unlock(&mut self, said: &Said<'_>, answer: &Observed<'_>) -> Result<(), Breach> {
        let Said { conn, key, .. } = *said;
        let is_own = self.holder(key) == Some(conn);
        match answer {
            Observed::Ok if is_own => {
                self.beliefs[key].release();
                Ok(())
            }
            Observed::Ok => breach!("B1", "{conn} unlocked key {key}, which it does not hold"),
            Observed::NotLocked | Observed::Missing if is_own => {
                breach!(
                    "B1",
                    "key {key} is held by {conn}, and it could not unlock it"
                );
            }
            // Text has one answer for both.
            Observed::NotLocked if said.ask.protocol != Protocol::Binary => Ok(()),
            Observed::NotLocked => self.found(key),
            Observed::Missing => self.missed(key),
            _ => unfit(said, answer),
        }
    }
}
