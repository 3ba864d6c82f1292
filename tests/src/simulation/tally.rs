//! What has happened in a run, counted: for a person who wants to know whether it is worth anything.

use std::fmt;

/// Declares the counts, each with what it counts.
macro_rules! tally {
    ($($field:ident: $words:literal,)+) => {
        /// How often what has happened.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Tally {
            $(#[doc = $words] pub $field: u64,)+
        }

        impl Tally {
            /// Each count, with what it counts.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$(($words, self.$field)),+]
            }

            /// Adds another run's counts to these.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

tally! {
    locks: "locks granted",
    contended: "locks contended",
    died: "locks that died with their connection",
    refused: "changes refused because of a lock",
    out_of_memory: "changes refused for want of room",
    too_large: "values too large",
    confirmed: "values read as stored last",
    vanished: "items evicted or expired",
    wins: "wins given",
    waits: "readers told to wait",
    settled: "waits for a lock that ended",
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
