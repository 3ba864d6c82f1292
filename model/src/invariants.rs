//! The invariants, and the witnesses without which they mean nothing.
//!
//! The rule of each [`Invariant`] is in `rules`. A rule that is
//! never tested holds as well. So each invariant has [`Witness`]es. A search fails if it does not
//! meet every witness that its alphabet makes possible.

use std::fmt;

use latchd_harness::alphabet::RequestKind as Kind;

use crate::frame::{rule, witnesses};
use crate::setup::{Room, Setup};
use crate::verb::{Manner, Verb, ask};

macro_rules! invariants {
    ($($name:ident = $id:literal, $words:literal;)*) => {
        /// Something that always holds.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Invariant {
            $(#[doc = $words] $name,)*
        }

        impl Invariant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in headers and in the messages of the core's own checks.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// Its sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }


            /// Its id and its sentence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => concat!($id, ": ", $words),)* }
            }
        }
    };
}

invariants! {
    Structure = "M", "the parts of the core agree with each other (M1 to M3, L2, L3, S3), and nothing panics";
    OneBeliever = "L1", "no two clients believe that they hold one key";
    HolderIsOpen = "L4", "the holder of a lock is an open connection, and a connection that has ended is forgotten";
    BeliefIsTruth = "L5", "the core agrees with everything that clients believe from replies alone";
    LockAnswers = "L6", "a lock is granted if and only if it is free and its item is there, if it needs one";
    LockEnds = "L7", "the end of a lock causes the expiry and flushes that it has held off, and nothing else";
    Grants = "L12", "every grant has a fence of its own, greater than those before; a lock ends when it is released, and otherwise stays";
    Fenced = "G1", "a request with a fence is done if and only if its grant is in force";
    Escape = "L8", "once all clients have gone, every key can be stored and locked";
    RefusedIsNothing = "E1", "a refused request has changed nothing";
    HeldIsSafe = "E2", "a held item is not changed or made by another client, by time or by want of memory";
    VersionsGrow = "E3", "a version is assigned once, and is greater than all before";
    OthersUntouched = "E4", "a command changes no item except its own, apart from eviction";
    Guards = "E5", "a guarded change happens if and only if the version matches";
    DoneIsDone = "E6", "the item has the change that the reply reports";
    ReadsAreFree = "E7", "a read finds the present item, whichever client holds it";
    Modes = "E8", "a change is refused for its mode if and only if the item, or its absence, does not fit the mode";
    Flush = "F1", "a flush takes every item that is not held, when it is due and not before";
    Expiry = "T1", "an item goes when its TTL has passed, and not before";
    TimeGoesOn = "T3", "the time of the core never goes back";
    OneWin = "R1", "between two events that open the win, it goes to at most one client";
    WinIsFound = "R2", "a get that asks for the win while it is open gets it";
    StaleStays = "R3", "a store of an older version leaves the item stale, with its TTL and its win";
    MarkOpens = "R4", "md I gives a new version, marks the item stale and opens the win";
    EscapeWin = "R5", "once all clients have gone, md I opens the win again";
}

impl Invariant {
    /// The invariant that a fault names.
    #[must_use]
    pub fn of_fault(fault: &str) -> Self {
        let named = Self::ALL.iter().find(|one| one.id() == rule(fault));
        named.copied().unwrap_or(Self::Structure)
    }

    /// Whether a model puts it to the test.
    #[must_use]
    pub fn is_claimed(self, setup: &Setup) -> bool {
        Witness::ALL
            .iter()
            .any(|witness| witness.rule() == self && witness.is_due(setup))
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.id())
    }
}

/// Whether every one of some verbs is in the alphabet.
fn all(setup: &Setup, verbs: &[Verb]) -> bool {
    verbs.iter().all(|verb| setup.has(*verb))
}

fn any(setup: &Setup, verbs: &[Verb]) -> bool {
    verbs.iter().any(|verb| setup.has(*verb))
}

fn wins(setup: &Setup) -> bool {
    setup.clients >= 2 && any(setup, &[ask(Kind::MetaGet), ask(Kind::Vivify)])
}

witnesses! {
    Invariant, Setup;
    CheckedWithLocks of Invariant::Structure, "the core is checked while a client holds a lock", |s| s.asks(Kind::Lock);
    CheckedWithWin of Invariant::Structure, "the core is checked while a client has a win", |s| s.asks(Kind::Vivify);
    LockRefused of Invariant::OneBeliever, "a lock is refused because another client holds it", |s| s.asks(Kind::Lock) && s.clients >= 2;
    RelockRefused of Invariant::OneBeliever, "a lock is refused because the client holds it already", |s| s.asks(Kind::Lock);
    HandoverByUnlock of Invariant::OneBeliever, "a lock changes hands by unlock", |s| all(s, &[ask(Kind::Lock), ask(Kind::Unlock)]) && s.clients >= 2;
    HandoverByDeath of Invariant::HolderIsOpen, "a lock changes hands by death", |s| all(s, &[ask(Kind::Lock), Verb::Close]) && s.clients >= 2;
    LateRefused of Invariant::HolderIsOpen, "a connection that has ended asks for a lock and gets none", |s| s.has(Verb::Late(Kind::Lock));
    TwoLocks of Invariant::BeliefIsTruth, "a client holds two locks", |s| s.asks(Kind::Lock) && s.keys >= 2 && s.room != Room::Items(1) && s.locks_max > 1;
    TwoHolders of Invariant::BeliefIsTruth, "two clients hold a lock each", |s| s.asks(Kind::Lock) && s.keys >= 2 && s.clients >= 2 && s.room != Room::Items(1);
    LockedAndRead of Invariant::BeliefIsTruth, "a client gets value and lock in one step", |s| s.asks(Kind::LockAndGet);
    Granted of Invariant::LockAnswers, "a lock is granted", |s| s.asks(Kind::Lock);
    NothingToLock of Invariant::LockAnswers, "there is nothing to lock", |s| s.asks(Kind::Lock);
    UnlockRefused of Invariant::LockAnswers, "an unlock is refused because another client holds the lock", |s| all(s, &[ask(Kind::Lock), ask(Kind::Unlock)]) && s.clients >= 2;
    TooManyLocks of Invariant::LockAnswers, "a connection may not have another lock", |s| s.asks(Kind::Lock) && s.locks_max < s.keys;
    Unlocked of Invariant::LockEnds, "a lock ends and the item stays", |s| all(s, &[ask(Kind::Lock), ask(Kind::Unlock)]);
    ExpiredAtUnlock of Invariant::LockEnds, "an item goes with its lock, because its TTL has passed", |s| all(s, &[ask(Kind::Lock), Verb::Pass, Verb::Ask(Kind::Set, Manner::Expiring)]);
    FlushedAtUnlock of Invariant::LockEnds, "an item goes with its lock, because of a flush", |s| s.asks(Kind::Lock) && any(s, &[ask(Kind::FlushAll), Verb::Ask(Kind::FlushAll, Manner::Later)]);
    FlushCleared of Invariant::LockEnds, "an item that its owner has stored again survives the flush before", |s| all(s, &[ask(Kind::Lock), ask(Kind::Set)]) && any(s, &[ask(Kind::FlushAll), Verb::Ask(Kind::FlushAll, Manner::Later)]);
    UnlockedByReplace of Invariant::LockEnds, "replace-and-unlock does both", |s| s.asks(Kind::ReplaceAndUnlock);
    GrantedAgain of Invariant::Grants, "a key is granted again, with a greater fence", |s| s.asks(Kind::Acquire) && any(s, &[ask(Kind::Unlock), ask(Kind::Release)]);
    LockOutlivesItem of Invariant::Grants, "the lock of a key stays when its holder deletes the item", |s| all(s, &[ask(Kind::Acquire), ask(Kind::Delete)]);
    HeldWithoutItem of Invariant::Grants, "a key without an item is held", |s| s.asks(Kind::Acquire);
    LeaseEnds of Invariant::Grants, "a lock ends with its lease", |s| all(s, &[ask(Kind::AcquireLeased), Verb::Pass]);
    LeaseRenewed of Invariant::Grants, "the holder of a lock gets another lease", |s| s.asks(Kind::AcquireLeased);
    FencedByOther of Invariant::Fenced, "another connection than the holder's makes a change in the right of the grant", |s| s.asks(Kind::SetFenced) && s.clients >= 2;
    FenceOver of Invariant::Fenced, "a change in the right of a grant that is over is refused", |s| s.asks(Kind::SetFenced);
    MadeWhileHeld of Invariant::HeldIsSafe, "the holder of a key makes its item", |s| all(s, &[ask(Kind::Acquire), ask(Kind::Set)]);
    MakingRefused of Invariant::HeldIsSafe, "another may not make the item of a key that is held", |s| all(s, &[ask(Kind::Acquire), ask(Kind::Set)]) && s.clients >= 2;
    EscapeOverLock of Invariant::Escape, "all clients go, and one has held a lock", |s| s.asks(Kind::Lock);
    OwnerOnly of Invariant::RefusedIsNothing, "a change is refused because another client holds the item", |s| s.asks(Kind::Lock) && s.clients >= 2;
    NotMine of Invariant::RefusedIsNothing, "replace-and-unlock is refused because another client holds the item", |s| all(s, &[ask(Kind::Lock), ask(Kind::ReplaceAndUnlock)]) && s.clients >= 2;
    NoRoom of Invariant::RefusedIsNothing, "there is no room, because all items are held", |s| s.asks(Kind::Lock) && s.room != Room::Ample;
    OwnerChanges of Invariant::HeldIsSafe, "the holder changes its item", |s| s.asks(Kind::Lock) && s.asks(Kind::Set);
    HeldPastTtl of Invariant::HeldIsSafe, "an item outlives its TTL, because it is held", |s| all(s, &[ask(Kind::Lock), Verb::Pass, Verb::Ask(Kind::Set, Manner::Expiring)]);
    HeldThroughFlush of Invariant::HeldIsSafe, "an item outlives a flush, because it is held", |s| s.asks(Kind::Lock) && any(s, &[ask(Kind::FlushAll), Verb::Ask(Kind::FlushAll, Manner::Later)]);
    EvictionPassesOver of Invariant::HeldIsSafe, "an eviction passes over a held item", |s| s.asks(Kind::Lock) && matches!(s.room, Room::Items(2..));
    NewVersion of Invariant::VersionsGrow, "an item that was there gets a new version", |_| true;
    ChosenVersion of Invariant::VersionsGrow, "an item has the version that a client chose", |s| s.has(Verb::Ask(Kind::Set, Manner::Chosen));
    VersionAfterChosen of Invariant::VersionsGrow, "a chosen version is followed by the next one of the server", |s| s.has(Verb::Ask(Kind::Set, Manner::Chosen));
    Evicted of Invariant::OthersUntouched, "an item is evicted for another", |s| s.room != Room::Ample;
    TwoItems of Invariant::OthersUntouched, "a command finds another item beside its own", |s| s.keys >= 2 && s.room != Room::Items(1);
    LocksOfTwoShards of Invariant::LockEnds, "locks of two shards end in one step", |s| s.asks(Kind::Lock) && s.shards >= 2 && s.locks_max > 1;
    CasMatches of Invariant::Guards, "a guarded change finds the version it wants", |s| any(s, &[ask(Kind::Cas), ask(Kind::ReplaceAndUnlockCas), ask(Kind::DeleteCas)]);
    CasDiffers of Invariant::Guards, "a guarded change finds another version", |s| any(s, &[ask(Kind::Cas), ask(Kind::ReplaceAndUnlockCas), ask(Kind::DeleteCas)]);
    CasKeepsLock of Invariant::Guards, "replace-and-unlock of another version keeps the lock", |s| s.asks(Kind::ReplaceAndUnlockCas);
    StaleRefused of Invariant::Guards, "a stale store of a version that does not exist yet is refused", |s| s.has(Verb::Ask(Kind::CasElseStale, Manner::Ahead));
    Stored of Invariant::DoneIsDone, "a store is answered as done", |_| true;
    Removed of Invariant::DoneIsDone, "a delete is answered as done", |s| s.asks(Kind::Delete);
    Counted of Invariant::DoneIsDone, "a number is counted", |s| s.asks(Kind::Increment);
    NumberMade of Invariant::DoneIsDone, "a count makes the number", |s| s.asks(Kind::IncrementElseCreate);
    Emptied of Invariant::DoneIsDone, "an item is emptied and keeps its version", |s| s.asks(Kind::Clear);
    ReadHeld of Invariant::ReadsAreFree, "a client reads an item that another one holds", |s| s.asks(Kind::Lock) && any(s, &[ask(Kind::Get), ask(Kind::MetaGet)]) && s.clients >= 2;
    TouchHeld of Invariant::ReadsAreFree, "a client touches an item that another one holds", |s| all(s, &[ask(Kind::Lock), ask(Kind::Touch)]) && s.clients >= 2;
    ListHeld of Invariant::ReadsAreFree, "a client lists a held item", |s| s.asks(Kind::Keys) && s.asks(Kind::Lock);
    NotAbsent of Invariant::Modes, "a change is refused because there is an item", |s| s.asks(Kind::Add);
    NotPresent of Invariant::Modes, "a change is refused because there is none", |s| any(s, &[ask(Kind::Append), ask(Kind::Delete), ask(Kind::Increment)]);
    Flushed of Invariant::Flush, "a flush takes an item", |s| s.asks(Kind::FlushAll);
    FlushedLater of Invariant::Flush, "a flush takes an item later, as it was to", |s| all(s, &[Verb::Ask(Kind::FlushAll, Manner::Later), Verb::Pass]);
    Expired of Invariant::Expiry, "an item expires", |s| all(s, &[Verb::Ask(Kind::Set, Manner::Expiring), Verb::Pass]);
    StepBack of Invariant::TimeGoesOn, "a core gets a time before the last one", |s| s.has(Verb::StepBack);
    WonByMaking of Invariant::OneWin, "a get makes the item and wins it", |s| s.asks(Kind::Vivify);
    WonShort of Invariant::WinIsFound, "a get wins an item with a TTL that runs short", |s| s.asks(Kind::Recache);
    WonStale of Invariant::OneWin, "a get wins a stale item", |s| all(s, &[ask(Kind::MarkStale), ask(Kind::MetaGet)]);
    AnotherHasWon of Invariant::OneWin, "a get learns that another has won", wins;
    WinnerDies of Invariant::OneWin, "the connection that has won ends", |s| wins(s) && s.has(Verb::Close);
    WinEndsWithItem of Invariant::WinIsFound, "an item goes while its win is out", |s| all(s, &[ask(Kind::Vivify), Verb::Pass]);
    StoredStale of Invariant::StaleStays, "a store of an older version is kept as stale", |s| s.asks(Kind::CasElseStale);
    MarkedWhileOut of Invariant::MarkOpens, "an item is marked while its win is out", |s| s.asks(Kind::MarkStale) && any(s, &[ask(Kind::Vivify), ask(Kind::MetaGet)]);
    EmptiedWhileOut of Invariant::MarkOpens, "an item is emptied while its win is out, and the win stays out", |s| s.asks(Kind::Clear) && any(s, &[ask(Kind::Vivify), ask(Kind::MetaGet)]);
    EscapeOverWin of Invariant::EscapeWin, "all clients go, and one has had the win", |s| all(s, &[ask(Kind::MarkStale), ask(Kind::Vivify)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_has_a_witness() {
        for invariant in Invariant::ALL {
            let witnesses = Witness::ALL.iter().filter(|one| one.rule() == *invariant);
            assert!(witnesses.count() > 0, "{invariant} may be about nothing");
        }
    }

    #[test]
    fn ids_are_unique() {
        for (number, one) in Invariant::ALL.iter().enumerate() {
            for other in Invariant::ALL.iter().skip(number + 1) {
                assert_ne!(one.id(), other.id());
            }
        }
    }
}
