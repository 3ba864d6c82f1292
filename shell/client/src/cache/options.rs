//! Options to store and to read a value.

use latchd_protocol::time::Exptime;

/// The mode of a store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum StoreMode {
    /// With or without an existing item.
    #[default]
    Set,
    /// Only if there is no item.
    Add,
    /// Only if there is an item.
    Replace,
    /// After the existing value.
    Append,
    /// Before the existing value.
    Prepend,
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

    /// The mode of the store (`M`).
    #[must_use]
    pub const fn mode(mut self, mode: StoreMode) -> Self {
        self.mode = mode;
        self
    }

    /// When the item expires (`T`); append and prepend do not change it.
    #[must_use]
    pub const fn exptime(mut self, exptime: Exptime) -> Self {
        self.exptime = exptime;
        self
    }

    /// Client flags to store with the value (`F`).
    #[must_use]
    pub const fn client_flags(mut self, client_flags: u32) -> Self {
        self.client_flags = client_flags;
        self
    }

    /// Only if the item still has this version (`C`).
    #[must_use]
    pub const fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// With [`cas`](Self::cas): also stores over an older version, and marks the item stale (`I`).
    #[must_use]
    pub const fn invalidate(mut self) -> Self {
        self.invalidate = true;
        self
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

    /// Sets this exptime (`T`).
    #[must_use]
    pub const fn touch(mut self, exptime: Exptime) -> Self {
        self.touch = Some(exptime);
        self
    }

    /// If there is no item, makes an empty one with this exptime, which the reader wins (`N`).
    #[must_use]
    pub const fn vivify(mut self, exptime: Exptime) -> Self {
        self.vivify = Some(exptime);
        self
    }

    /// Lets one reader win an item that has less than this left (`R`).
    #[must_use]
    pub const fn recache(mut self, left: Exptime) -> Self {
        self.recache = Some(left);
        self
    }
}
