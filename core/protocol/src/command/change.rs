//! The requests that change an item: store, delete and count.

use super::TtlSteps;
use crate::fence::Fence;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::time::Exptime;
use crate::value::Value;

/// Stores a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Set<'a> {
    /// The key of the item to store, or to add to.
    pub key: Key<'a>,
    /// How the key was written.
    pub key_form: KeyForm,
    /// The bytes to store; at most `value_bytes_max`.
    pub value: Value<'a>,
    /// The client's own number. Append and prepend to an existing item keep its own.
    pub client_flags: u32,
    /// Append and prepend to an existing item keep its own.
    pub exptime: Exptime,
    /// The condition, and the place of the value: instead of the old one, behind it or before it.
    pub mode: SetMode,
    /// The version that the item must have.
    pub guard: Guard,
    /// The item's new version.
    pub new_cas: NewCas,
    /// The grant under which it is stored. `None` is any grant of this connection. Otherwise it is stored only
    /// while the grant with this number is in force, and then as its holder.
    pub fence: Option<Fence>,
    /// The effect on the key's lock.
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

/// The condition on which a [`Set`] stores, and its effect on the old value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SetMode {
    /// Whether or not there is an item.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the value of an existing item. If there is none, `missing` decides.
    Append {
        /// The effect of a miss.
        missing: OnMissing,
    },
    /// Before the value of an existing item. If there is none, `missing` decides.
    Prepend {
        /// The effect of a miss.
        missing: OnMissing,
    },
}

impl SetMode {
    /// Whether the value is added to an existing one instead of replacing it.
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

/// The effect of an append or prepend without an item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OnMissing {
    /// Nothing is stored.
    Refuse,
    /// The item is made with the [`Set`]'s exptime and client flags (`ms … MA N<exptime>`).
    Create,
}

/// The condition for a change. In `ms`, flag `I` has a meaning only with `C`; as `(Option<Cas>, bool)` this
/// would have a fourth state that no request can express.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Guard {
    /// Always.
    #[default]
    None,
    /// If the item has this version.
    Match(Cas),
    /// If the item has this version. If its version is lower, the value is stored all the same but stays stale,
    /// with its TTL and its win (`ms … C<cas> I`).
    MatchElseStale(Cas),
    /// Never: no item has version 0 (`ms … C0`, `cas … 0`).
    Never,
}

/// The version of an item after a change.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum NewCas {
    /// The next one of the server.
    #[default]
    Next,
    /// This one (`E`); the server's counter does not change.
    Is(Cas),
}

/// The effect of a change on the key's lock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LockAfter {
    /// It stays as it is.
    #[default]
    Keep,
    /// The connection must hold it, and releases it in the same step (replace-and-unlock, `U`).
    Release,
}

/// Removes or marks an item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Delete<'a> {
    /// The key of the item to remove, clear or mark.
    pub key: Key<'a>,
    /// How the key was written, for an item that is cleared.
    pub key_form: KeyForm,
    /// The version that the item must have; for another one the reply is
    /// [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// The effect on the item.
    pub removal: Removal,
    /// The item's new version, if it stays.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// The effect on the key's lock.
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

/// The effect of a [`Delete`] on an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Removal {
    /// It is removed.
    #[default]
    Remove,
    /// It stays and is marked stale: the next reader wins (`md I`). Its version changes.
    MarkStale {
        /// Its new exptime; `None` keeps the old one.
        exptime: Option<Exptime>,
    },
    /// It stays without its value (`md x`). Its version changes only by `E`.
    Clear {
        /// The new exptime; the old one is removed with the value.
        exptime: Exptime,
        /// The new client flags.
        client_flags: u32,
    },
    /// Both of the above (`md x I`). Its version changes.
    ClearAndMarkStale {
        /// The new exptime; the old one is removed with the value.
        exptime: Exptime,
        /// The new client flags.
        client_flags: u32,
    },
}

/// Adds to a decimal number, or subtracts from it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Arithmetic<'a> {
    /// The key of the item; its value is the number, in decimal digits.
    pub key: Key<'a>,
    /// How the key was written, for an item that is vivified.
    pub key_form: KeyForm,
    /// Up or down, and the behaviour at the ends.
    pub direction: Direction,
    /// The amount. With 0 the number stays, but the version changes all the same.
    pub delta: u64,
    /// The number in a new item, which is made only if `steps` vivify.
    pub initial: u64,
    /// Touch and vivify, in the order of execution.
    pub steps: TtlSteps,
    /// The version that the item must have; for another one the reply is
    /// [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// The item's new version.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// The effect on the key's lock.
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

/// The direction of an [`Arithmetic`].
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
