//! What has happened in a run, counted: for a person who wants to know whether it is worth anything.

use std::fmt;

/// How often what has happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Locks that were given.
    pub locks: u64,
    /// Locks that somebody had.
    pub contended: u64,
    /// Changes refused because of another's lock.
    pub refused: u64,
    /// Locks that ended with their connection.
    pub died: u64,
    /// Readers who were told to recache.
    pub wins: u64,
    /// Readers who were told that another one does.
    pub waits: u64,
    /// Items that were gone though nobody had removed them: evicted, or expired.
    pub vanished: u64,
    /// Changes refused for want of room.
    pub out_of_memory: u64,
    /// Values over the limit.
    pub too_large: u64,
    /// Values read and found to be the last stored.
    pub confirmed: u64,
}

impl Tally {
    /// Each count, with what it counts.
    #[must_use]
    pub const fn counts(&self) -> [(&'static str, u64); 10] {
        let Self {
            locks,
            contended,
            refused,
            died,
            wins,
            waits,
            vanished,
            out_of_memory,
            too_large,
            confirmed,
        } = *self;
        [
            ("locks granted", locks),
            ("locks contended", contended),
            ("locks that died with their connection", died),
            ("changes refused because of a lock", refused),
            ("changes refused for want of room", out_of_memory),
            ("values too large", too_large),
            ("values read as stored last", confirmed),
            ("items evicted or expired", vanished),
            ("wins given", wins),
            ("readers told to wait", waits),
        ]
    }

    /// Adds another run's counts to these.
    pub const fn add(&mut self, other: &Self) {
        let Self {
            locks,
            contended,
            refused,
            died,
            wins,
            waits,
            vanished,
            out_of_memory,
            too_large,
            confirmed,
        } = other;
        self.locks += *locks;
        self.contended += *contended;
        self.refused += *refused;
        self.died += *died;
        self.wins += *wins;
        self.waits += *waits;
        self.vanished += *vanished;
        self.out_of_memory += *out_of_memory;
        self.too_large += *too_large;
        self.confirmed += *confirmed;
    }
}

/// A line for each count.
impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in self.counts() {
            writeln!(formatter, "{count:>12} {what}")?;
        }
        Ok(())
    }
}
