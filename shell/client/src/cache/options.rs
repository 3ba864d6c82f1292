//! Options to store and to read a value.

use latchd_protocol::time::Exptime;

use crate::setters::setters;

/// The mode of a store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum StoreMode {
    /// With or without an existing item.
    #[default]
    Set = b'S',
    /// Only if there is no item.
    Add = b'E',
    /// Only if there is an item.
    Replace = b'R',
    /// After the existing value.
    Append = b'A',
    /// Before the existing value.
    Prepend = b'P',
}

/// Options to store a value. By default it replaces any other, and never expires.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreOptions {
    pub(super) mode: StoreMode,
    pub(super) exptime: Exptime,
    pub(super) client_flags: u32,
    pub(crate) cas: Option<u64>,
    pub(super) invalidate: bool,
}

impl StoreOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The mode of the store (`M`).
        [const] mode(mode: StoreMode) => mode = mode;

        /// When the item expires (`T`); append and prepend do not change it.
        [const] exptime(exptime: Exptime) => exptime = exptime;

        /// Client flags to store with the value (`F`).
        [const] client_flags(client_flags: u32) => client_flags = client_flags;

        /// Only if the item still has this version (`C`).
        [const] cas(cas: u64) => cas = Some(cas);

        /// With [`cas`](Self::cas): also stores over an older version, and marks the item stale (`I`).
        [const] invalidate() => invalidate = true;
    }
}

/// Options to read an item. By default reading changes nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GetOptions {
    pub(super) touch: Option<Exptime>,
    pub(super) vivify: Option<Exptime>,
    pub(super) recache: Option<Exptime>,
}

impl GetOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets this exptime (`T`).
        [const] touch(exptime: Exptime) => touch = Some(exptime);

        /// If there is no item, makes an empty one with this exptime, which the reader wins (`N`).
        [const] vivify(exptime: Exptime) => vivify = Some(exptime);

        /// Lets one reader win an item that has less than this left (`R`).
        [const] recache(left: Exptime) => recache = Some(left);
    }
}
