//! CAS numbers of two servers, and how they map.

use std::collections::HashMap;

use latchd_harness::random::Random;

/// The versions of one item that both servers have shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CasPair {
    /// The peer's number.
    pub theirs: u64,
    /// latchd's.
    pub ours: u64,
}

/// The known versions, by key.
#[derive(Debug, Default)]
pub struct CasBook {
    by_key: HashMap<String, Vec<CasPair>>,
    to_ours: HashMap<u64, u64>,
    to_theirs: HashMap<u64, u64>,
    /// The peer gives a number more than once, so numbers map by key only.
    repeats: bool,
}

/// How many versions of a key are remembered.
const VERSIONS_MAX: usize = 6;

impl CasBook {
    /// For a peer that counts the versions of each item separately.
    #[must_use]
    pub fn repeating() -> Self {
        Self {
            repeats: true,
            ..Self::default()
        }
    }

    /// Notes that both servers have shown a version of `key` at the same place.
    ///
    /// # Errors
    /// The numbers do not map one to one, or latchd's goes back where the peer's goes on.
    pub fn learn(&mut self, key: &str, pair: CasPair, made_up: bool) -> Result<(), String> {
        if !self.repeats {
            let ours = *self.to_ours.entry(pair.theirs).or_insert(pair.ours);
            let theirs = *self.to_theirs.entry(pair.ours).or_insert(pair.theirs);
            if (ours, theirs) != (pair.ours, pair.theirs) {
                return Err(format!(
                    "CAS {} of the peer is {} of latchd here, and was {ours} (which was {theirs})",
                    pair.theirs, pair.ours
                ));
            }
        }
        let versions = self.by_key.entry(key.to_owned()).or_default();
        let last = versions.last().copied();
        if last == Some(pair) {
            return Ok(());
        }
        if let Some(last) = last
            && !made_up
            && !self.repeats
            && pair.theirs > last.theirs
            && pair.ours <= last.ours
        {
            return Err(format!("CAS of {key} goes from {last:?} to {pair:?}"));
        }
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(pair);
        Ok(())
    }

    /// The last version of a key.
    #[must_use]
    pub fn current(&self, key: &str) -> Option<CasPair> {
        self.by_key.get(key)?.last().copied()
    }

    /// Any version of a key, the last one more often than not.
    pub fn any(&self, key: &str, random: &mut Random) -> Option<CasPair> {
        let versions = self.by_key.get(key)?;
        if random.chance(2, 3) {
            versions.last().copied()
        } else {
            Some(*random.choose(versions))
        }
    }
}
