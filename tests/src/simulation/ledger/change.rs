//! What an acknowledged change makes of a belief.

use super::super::ask::{Ask, What};
use super::super::encode::value_into;
use super::{Breach, Gone, Ledger, There, breach};

impl Ledger {
    /// The request's value is the item now.
    pub(super) fn stored(&mut self, ask: &Ask, cas: Option<u64>) -> Result<(), Breach> {
        let key = ask.key();
        // A stale `ms C I` keeps TTL, staleness and win; whether it was one, the versions tell.
        let outdated = ask.else_stale.then(|| {
            let known = self.beliefs[key].cas;
            known.map(|known| ask.guard < known)
        });
        let gone = self.gone(ask.exptime);
        self.new_cas(key, cas)?;
        let belief = &mut self.beliefs[key];
        value_into(ask.text, &mut belief.value);
        belief.is_known = true;
        belief.there = There::Yes;
        belief.doomed = Some(false);
        match outdated {
            None | Some(Some(false)) => {
                belief.gone = gone;
                belief.stale = Some(false);
                belief.won = Some(false);
            }
            Some(Some(true)) => belief.stale = Some(true),
            Some(None) => {
                belief.gone = Gone::Unknown;
                belief.stale = None;
                belief.won = None;
            }
        }
        Ok(())
    }

    /// The request's value was added to the item.
    pub(super) fn extended(&mut self, ask: &Ask, cas: Option<u64>) -> Result<(), Breach> {
        let key = ask.key();
        let bytes_max = self.room.value_bytes_max;
        self.new_cas(key, cas)?;
        value_into(ask.text, &mut self.scratch);
        let belief = &mut self.beliefs[key];
        belief.stale = Some(false);
        belief.won = Some(false);
        if !belief.is_known {
            return Ok(());
        }
        if belief.value.len() + self.scratch.len() > bytes_max {
            breach!("B7", "key {key} grew past the limit of {bytes_max} bytes");
        }
        if ask.what == What::Append {
            belief.value.extend_from_slice(&self.scratch);
        } else {
            belief.value.splice(0..0, self.scratch.iter().copied());
        }
        Ok(())
    }

    /// The item was taken out by request, and its lock with it.
    pub(super) fn removed(&mut self, key: usize) {
        let belief = &mut self.beliefs[key];
        belief.there = There::No;
        belief.holder = None;
        belief.doomed = Some(false);
        belief.cas_past = belief.cas.unwrap_or(belief.cas_past);
    }

    /// The item was marked stale, or emptied, or both.
    pub(super) fn marked(&mut self, ask: &Ask) -> Result<(), Breach> {
        let key = ask.key();
        let gone = self.gone(ask.exptime);
        let empties = ask.what != What::MarkStale;
        let marks = ask.what != What::Clear;
        if marks {
            self.new_cas(key, None)?;
        }
        let belief = &mut self.beliefs[key];
        if empties {
            belief.value.clear();
            belief.is_known = true;
            belief.stale = Some(false);
        }
        if marks {
            belief.stale = Some(true);
            belief.won = Some(false);
        }
        if empties || ask.exptime.is_some() {
            belief.gone = gone;
        }
        Ok(())
    }

    /// The item is a number, and was counted or made.
    pub(super) fn counted(
        &mut self,
        ask: &Ask,
        number: Option<u64>,
        cas: Option<u64>,
    ) -> Result<(), Breach> {
        let key = ask.key();
        let belief = &self.beliefs[key];
        let expected = if belief.is_known && belief.there != There::No {
            leading_number(&belief.value).map(|old| match ask.what {
                What::Decrement => old.saturating_sub(ask.delta.into()),
                _ => old.wrapping_add(ask.delta.into()),
            })
        } else {
            None
        };
        let is_made = ask.vivify.is_some()
            && (belief.there == There::No || number == Some(ask.initial) && number != expected);
        if is_made {
            self.missed(key)?;
            self.stored_number(key, ask.initial, cas)?;
            self.beliefs[key].gone = self.gone(ask.vivify.map(i32::from));
            if number.is_some_and(|number| number != ask.initial) {
                breach!(
                    "B3",
                    "key {key} was made as {number:?}, and not as {}",
                    ask.initial
                );
            }
            return Ok(());
        }
        if ask.vivify.is_some() && number.is_none() {
            // Silence tells neither whether it was there nor what it is now.
            self.new_cas(key, cas)?;
            let belief = &mut self.beliefs[key];
            belief.is_known = false;
            belief.there = There::Yes;
            belief.gone = Gone::Unknown;
            belief.stale = Some(false);
            belief.won = Some(false);
            return Ok(());
        }
        self.found(key)?;
        let belief = &self.beliefs[key];
        if belief.is_known && expected.is_none() {
            breach!("B3", "key {key} was counted, and is no number");
        }
        if let (Some(expected), Some(number)) = (expected, number)
            && expected != number
        {
            breach!(
                "B3",
                "key {key} was counted to {number}, and not to {expected}"
            );
        }
        let width = belief.value.len();
        let was_known = belief.is_known;
        if let Some(number) = number.or(expected) {
            self.stored_number(key, number, cas)?;
            let belief = &mut self.beliefs[key];
            // A number that got shorter keeps its length, padded by blanks.
            belief.is_known = was_known;
            let width = width.max(belief.value.len());
            belief.value.resize(width, b' ');
        } else {
            self.new_cas(key, cas)?;
            let belief = &mut self.beliefs[key];
            belief.is_known = false;
            belief.stale = Some(false);
            belief.won = Some(false);
        }
        if let Some(exptime) = ask.exptime {
            self.beliefs[key].gone = self.gone(Some(exptime));
        }
        Ok(())
    }

    fn stored_number(&mut self, key: usize, number: u64, cas: Option<u64>) -> Result<(), Breach> {
        self.new_cas(key, cas)?;
        let belief = &mut self.beliefs[key];
        belief.value.clear();
        super::super::ask::write_number(&mut belief.value, number);
        belief.is_known = true;
        belief.there = There::Yes;
        belief.stale = Some(false);
        belief.won = Some(false);
        Ok(())
    }
}

/// The number that a value of these tests is, if it is one: digits, and blanks behind them. Values
/// of digits that grew past 64 bits by appending are none.
pub(super) fn leading_number(value: &[u8]) -> Option<u64> {
    let digits = value.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
