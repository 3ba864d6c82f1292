//! What a request to change an item can ask for: to store, to take out or to count.

use super::TtlSteps;
use crate::fence::Fence;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::time::Exptime;
use crate::value::Value;

/// Stores a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Set<'a> {
    /// The item to store, or to add to.
    pub key: Key<'a>,
    /// How the key was written.
    pub key_form: KeyForm,
    /// The bytes to store; at most [`value_bytes_max`](crate::Limits::value_bytes_max).
    pub value: Value<'a>,
    /// The client's own number. Append and prepend to an existing item keep its own.
    pub client_flags: u32,
    /// Append and prepend to an existing item keep its own.
    pub exptime: Exptime,
    /// On what condition, and onto what.
    pub mode: SetMode,
    /// Which version of the item the client must have seen.
    pub guard: Guard,
    /// The version it gets.
    pub new_cas: NewCas,
    /// In whose right it is stored: `None` is the connection's own, otherwise only while the grant
    /// with this number is in force, and then as its holder.
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Set<'a> {
    /// A plain `set` that never expires.
    #[must_use]
    pub const fn new(key: Key<'a>, value: &'a [u8]) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            value: Value::Borrowed(value),
            client_flags: 0,
            exptime: Exptime::Never,
            mode: SetMode::Set,
            guard: Guard::None,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// On what condition a [`Set`] stores, and what becomes of the old value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SetMode {
    /// Whether or not there is an item.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the value of an existing item; if there is none, as `missing` says.
    Append {
        /// What a miss means.
        missing: OnMissing,
    },
    /// Before the value of an existing item; if there is none, as `missing` says.
    Prepend {
        /// What a miss means.
        missing: OnMissing,
    },
}

impl SetMode {
    /// Whether the value is added to one that is there, instead of taking its place.
    #[must_use]
    pub const fn extends(self) -> bool {
        match self {
            Self::Append { .. } | Self::Prepend { .. } => true,
            Self::Set | Self::Add | Self::Replace => false,
        }
    }

    /// Whether it is an append or prepend that makes a missing item.
    #[must_use]
    pub const fn creates(self) -> bool {
        match self {
            Self::Append { missing } | Self::Prepend { missing } => {
                matches!(missing, OnMissing::Create)
            }
            Self::Set | Self::Add | Self::Replace => false,
        }
    }
}

/// What an append or prepend does when there is no item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OnMissing {
    /// Nothing is stored.
    Refuse,
    /// The item is made with the [`Set`]'s exptime and client flags (`ms … MA N<exptime>`).
    Create,
}

/// When a change may proceed. In `ms`, flag `I` means something only beside `C`; as
/// `(Option<Cas>, bool)` this would have a fourth state that no request can ask for.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Guard {
    /// Always.
    #[default]
    None,
    /// If this is the item's version.
    Match(Cas),
    /// If this is the item's version; and if it is lower, the value is stored all the same but
    /// stays stale, with its TTL and its win (`ms … C<cas> I`).
    MatchElseStale(Cas),
    /// If its version is 0, which no item has (`ms … C0`, `cas … 0`).
    Never,
}

/// Which version an item gets when it changes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum NewCas {
    /// The next one of the server.
    #[default]
    Next,
    /// This one (`E`); the server's counter stays where it is.
    Is(Cas),
}

/// What becomes of a key's lock when a change happens.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LockAfter {
    /// It stays as it is.
    #[default]
    Keep,
    /// The connection must hold it, and gives it back in the same step (replace-and-unlock, `U`).
    Release,
}

/// Removes an item, or marks it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Delete<'a> {
    /// The item to remove, to empty or to mark.
    pub key: Key<'a>,
    /// How the key was written, for an item that is emptied.
    pub key_form: KeyForm,
    /// The version that the client has seen; another one is [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// What is done to it.
    pub removal: Removal,
    /// The version it gets, if it stays.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Delete<'a> {
    /// A plain `delete`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            guard: Guard::None,
            removal: Removal::Remove,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// What a [`Delete`] does to an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Removal {
    /// It goes.
    #[default]
    Remove,
    /// It stays and is marked out of date: the next reader wins (`md I`). Its version changes.
    MarkStale {
        /// Its new exptime; `None` keeps the old one.
        exptime: Option<Exptime>,
    },
    /// It stays without its value (`md x`). Its version changes only by `E`.
    Clear {
        /// From now on; the old one goes with the value.
        exptime: Exptime,
        /// From now on, as the exptime.
        client_flags: u32,
    },
    /// Both of the above (`md x I`). Its version changes.
    ClearAndMarkStale {
        /// From now on; the old one goes with the value.
        exptime: Exptime,
        /// From now on, as the exptime.
        client_flags: u32,
    },
}

/// Adds to a decimal number, or takes from it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Arithmetic<'a> {
    /// The item whose value is the number, in decimal digits.
    pub key: Key<'a>,
    /// How the key was written, for an item that is made.
    pub key_form: KeyForm,
    /// Up or down, and what happens at the ends.
    pub direction: Direction,
    /// How much is added or taken. By 0 nothing is counted, and the version changes all the same.
    pub delta: u64,
    /// The number of an item that is made; one is made only if `steps` vivify.
    pub initial: u64,
    /// Touch and vivify, in the order they are to act.
    pub steps: TtlSteps,
    /// The version that the client has seen; another one is [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// The version it gets.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Arithmetic<'a> {
    /// A plain `incr` or `decr`.
    #[must_use]
    pub const fn new(key: Key<'a>, direction: Direction, delta: u64) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            direction,
            delta,
            initial: 0,
            steps: TtlSteps::NONE,
            guard: Guard::None,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// Which way an [`Arithmetic`] goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// Up; past 2^64 it starts again at 0.
    Increment,
    /// Down; it stops at 0.
    Decrement,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_append_and_prepend_extend_and_only_some_of_them_create() {
        let (refuse, create) = (OnMissing::Refuse, OnMissing::Create);
        let modes = [
            (SetMode::Set, false, false),
            (SetMode::Add, false, false),
            (SetMode::Replace, false, false),
            (SetMode::Append { missing: refuse }, true, false),
            (SetMode::Prepend { missing: refuse }, true, false),
            (SetMode::Append { missing: create }, true, true),
            (SetMode::Prepend { missing: create }, true, true),
        ];
        for (mode, extends, creates) in modes {
            assert_eq!(
                (mode.extends(), mode.creates()),
                (extends, creates),
                "{mode:?}"
            );
        }
    }
}
