//! Wrong variants of the rules, to be planted one at a time: each shows that the model would find
//! it if somebody wrote it by mistake.
//!
//! Without the feature `seeded-bugs` nothing can be planted, [`Core::is_seeded`] is `false` at
//! compile time, and no trace of a variant is left in what ships.

use alloc::vec::Vec;

use super::Core;
use crate::key::Key;
use crate::store::Store;

/// A rule that is got wrong. The names say what goes wrong.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(
    not(feature = "seeded-bugs"),
    expect(unreachable_pub, reason = "not to be had then")
)]
pub enum SeededBug {
    /// A closed connection is not forgotten.
    CloseKeepsLocks,
    /// `unlock_all` and close give back the first lock only.
    ReleaseAllStopsAtFirst,
    /// `unlock` does not ask who holds the lock.
    UnlockByAnother,
    /// The holder may take its lock again.
    RelockSucceeds,
    /// Anybody may take a lock that is held.
    LockIsStolen,
    /// A connection that has ended may take a lock.
    DeadTakesLock,
    /// No connection has too many locks.
    LocksUnbounded,
    /// Lock-and-get gets, and does not lock.
    LockAndGetForgetsLock,
    /// A read of what another holds is refused.
    ReadsBlocked,
    /// `set`, `add`, `replace`, `append` and `prepend` do not look at locks.
    SetIgnoresLock,
    /// `delete` and `md` do not look at locks.
    DeleteIgnoresLock,
    /// `incr` and `decr` do not look at locks.
    CountIgnoresLock,
    /// A value that is too large takes away what another holds.
    TooLargeIgnoresLock,
    /// Replace-and-unlock does not ask who holds the lock.
    RauIgnoresOwner,
    /// Replace-and-unlock replaces, and does not unlock.
    RauKeepsLock,
    /// Replace-and-unlock of another version unlocks.
    RauUnlocksWhenRefused,
    /// A held item that is deleted leaves its lock behind, for the next item in its place.
    DeleteLeavesLock,
    /// A held item is evicted if there is nothing else.
    #[cfg(feature = "seeded-bugs")]
    EvictsHeld,
    /// A held item expires.
    ExpiresHeld,
    /// A flush takes held items as well.
    FlushDropsHeld,
    /// A flush does not mark held items.
    FlushForgetsHeld,
    /// An item that its holder has stored after a flush goes all the same.
    StoreStaysDoomed,
    /// A flush that is to happen later happens at once.
    FlushIgnoresDelay,
    /// Nothing expires.
    NothingExpires,
    /// The time goes back with the clock.
    TimeGoesBack,
    /// Whoever vivifies an item leaves the win to the next one.
    VivifiedWonTwice,
    /// A win for a TTL that runs short is not noted.
    ShortWonTwice,
    /// A win for a stale item is not noted.
    StaleWonTwice,
    /// A store does not open the win again.
    StoreKeepsWin,
    /// A plain get takes the win.
    PlainGetTakesWin,
    /// `md I` does not open the win again.
    MarkKeepsWin,
    /// `md I` does not change the version.
    MarkKeepsVersion,
    /// `md x` opens the win again, as it does in memcached 1.6.45.
    ClearOpensWin,
    /// A store of an older version makes the item look fresh.
    StaleStoreLooksFresh,
    /// A store of an older version opens the win again.
    StaleStoreOpensWin,
    /// A store of an older version brings its own TTL.
    StaleStoreTakesTtl,
    /// A store of a version that does not exist yet is taken as one of an older version.
    FutureStored,
    /// A guarded store does not look at the version.
    GuardIgnored,
    /// A refused store uses up a version.
    RefusalTakesVersion,
    /// An append gives away a version and does not use it up.
    VersionGivenTwice,
    /// `add` does not look whether there is an item.
    AddOverwrites,
    /// An append to nothing makes an item, as if it had been asked to.
    AppendMakesItem,
    /// A number that a count makes does not expire.
    MadeNumberLives,
    /// `mg C` of the version that an item has is answered as if the client had another.
    KnownIgnored,
    /// A listing leaves out what is held.
    ListForgetsHeld,
    // The last one, which `COUNT` goes by.
    /// All shards count from the same number, in the same steps.
    #[cfg(feature = "seeded-bugs")]
    ShardsShareVersions,
}

#[cfg(feature = "seeded-bugs")]
impl SeededBug {
    /// How many there are.
    pub const COUNT: usize = Self::ShardsShareVersions as usize + 1;
}

impl<S: Store> Core<S> {
    /// Whether this rule is the one that is got wrong.
    #[cfg(feature = "seeded-bugs")]
    pub(super) fn is_seeded(&self, bug: SeededBug) -> bool {
        self.seeded_bug == Some(bug)
    }

    /// Nothing is.
    #[cfg(not(feature = "seeded-bugs"))]
    #[expect(clippy::unused_self, reason = "it has a use with the feature")]
    pub(super) const fn is_seeded(&self, _: SeededBug) -> bool {
        false
    }

    /// What [`SeededBug::FlushDropsHeld`] does.
    pub(super) fn drop_held(&mut self) {
        let held: Vec<Vec<u8>> = self
            .locks
            .iter()
            .map(|(key, _)| key.as_bytes().to_vec())
            .collect();
        for key in &held {
            let key = Key::new(key).expect("it was made from a key");
            self.locks.release(key);
            if let Some(slot) = self.store.find(key) {
                self.store.remove(slot);
            }
        }
    }
}
