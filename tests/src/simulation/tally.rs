//! Counts of the events of a run. They tell a person whether it is worth anything.

use std::fmt;

use latchd_protocol::reply::{Refusal, Reply, Win};

/// Declares counts, each with its description.
macro_rules! tally {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $words:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $name {
            $(#[doc = $words] pub $field: u64,)+
        }

        impl $name {
            /// Each count, with its description.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$(($words, self.$field)),+]
            }

            /// Adds another run's counts to these.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }

        /// A line for each count.
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (what, count) in self.counts() {
                    writeln!(formatter, "{count:>12} {what}")?;
                }
                Ok(())
            }
        }
    };
}

tally! {
/// How often each event has happened.
Tally {
    locks: "locks granted",
    contended: "locks contended",
    refused: "changes refused because of a lock",
    out_of_memory: "changes refused for want of room",
    too_large: "values too large",
    hits: "items read",
    wins: "wins given",
    waits: "readers told to wait",
    settled: "waits that ended",
    judged_scarce: "commands judged by the oracle where memory is scarce",
    judged_edge: "commands judged by the oracle at the edge of the server",
    followed: "evictions that the oracle has followed",
    reclaimed: "expired items that it has followed to their end",
    believed: "refusals for want of room that it has believed",
}
}

tally! {
/// How often a turn has left the buffers of the server's own connections in which state.
Buffering {
    begun: "requests that had begun and were kept",
    collected: "long requests of which a part was collected",
    sent_in_part: "answers of which the socket took a part",
    not_sent: "answers of which the socket took nothing",
    sent_enough: "answers that were more than one turn sends",
    not_read: "clients that were not read, though there was something",
    output_full: "turns that ended with a full output",
    yielded: "turns that ended because they were long",
    resumed: "turns that went on with requests when the answers before had gone",
    waits_before_more: "requests that began to wait with others behind them",
    waits_unsent: "requests that began to wait with answers unsent",
    told_unsent: "waits that ended while answers were unsent",
    left_unsent: "clients that had left with answers unsent",
    gone_waiting: "clients that went while they waited",
}
}

tally! {
/// How often each event of sessions has happened.
Sessions {
    opened: "sessions opened",
    resumed: "sessions resumed",
    renewed: "sessions renewed by their own connection",
    taken_over: "sessions asked for while another connection had them",
    missed: "requests for a session that was not there",
    ended: "sessions ended by their own connection",
    ended_by_others: "sessions ended by another connection",
    expired: "sessions whose time was over",
    expired_attached: "sessions whose time was over while they had a connection",
    expired_holding: "sessions whose time was over while they held locks",
    heard_late: "clients heard when their time was over and the clock had not woken",
    refused_full: "sessions refused because there were too many",
    refused_attached: "requests refused because the connection had another session",
    refused_holds: "requests refused because the connection held locks",
    within: "requests in a session without a connection of their own",
    refused_within: "such requests refused",
    granted: "locks granted to sessions",
    found: "locks granted again to a session that had them",
    waits: "requests of sessions that began to wait",
    places_left: "connections lost while a request of their session waited",
}
}

tally! {
/// How often each event of a cluster has happened.
Cluster {
    seconds: "seconds of virtual time",
    rough: "episodes of faults",
    short: "short outages of etcd, and nothing else",
    long: "long outages of etcd, and nothing else",
    served: "calms in which both partitions were served in time",
    terms: "terms begun",
    free: "of these, after a process that had left",
    at_once: "of these, under the lock of a state directory",
    suspended: "primaries suspended",
    resumed: "primaries that went on",
    outlasted: "terms that outlasted a long outage and nothing else",
    lost_terms: "terms ended because the record named another",
    stuck: "terms ended because the end of the hold was not confirmed",
    left: "processes that left",
    late: "transactions executed late",
    deleted: "records deleted",
    restored: "records restored",
    grants: "locks obtained",
    lost_locks: "locks lost",
    writes: "items written",
    reads: "items read",
    refused: "requests refused by a process that must not serve",
    dropped: "replies that the end of a hold has stopped",
}
}

impl Tally {
    /// Counts a reply.
    pub(super) const fn note(&mut self, reply: &Reply<'_>) {
        let counter = match reply {
            Reply::Locked | Reply::Granted(_) => &mut self.locks,
            Reply::Contended(_) | Reply::WouldDeadlock(_) | Reply::Withheld { .. } => {
                &mut self.contended
            }
            Reply::Refused(Refusal::Locked) => &mut self.refused,
            Reply::Refused(Refusal::OutOfMemory) => &mut self.out_of_memory,
            Reply::Refused(Refusal::TooLarge) => &mut self.too_large,
            Reply::Hit(hit) => match hit.win {
                Win::Won => &mut self.wins,
                Win::Sent => &mut self.waits,
                Win::None => &mut self.hits,
            },
            _ => return,
        };
        *counter += 1;
    }
}
