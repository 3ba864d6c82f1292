//! How a value is stored, and how it is read.

use latchd_core::time::Exptime;

/// Which kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum StoreMode {
    /// Whether or not there is an item.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
}

/// How a value is stored. The default: whatever is there, and for ever.
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

    /// Which kind of store it is (`M`).
    #[must_use]
    pub const fn mode(mut self, mode: StoreMode) -> Self {
        self.mode = mode;
        self
    }

    /// When the item expires (`T`); an append and a prepend leave that as it is.
    #[must_use]
    pub const fn exptime(mut self, exptime: Exptime) -> Self {
        self.exptime = exptime;
        self
    }

    /// A number that is stored beside the value (`F`).
    #[must_use]
    pub const fn client_flags(mut self, client_flags: u32) -> Self {
        self.client_flags = client_flags;
        self
    }

    /// Only if the item has this version still (`C`).
    #[must_use]
    pub const fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// With [`cas`](Self::cas): stores over an older version as well, and marks it stale (`I`).
    #[must_use]
    pub const fn invalidate(mut self) -> Self {
        self.invalidate = true;
        self
    }
}

/// How an item is read. The default changes nothing.
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

    /// Gives it this exptime (`T`).
    #[must_use]
    pub const fn touch(mut self, exptime: Exptime) -> Self {
        self.touch = Some(exptime);
        self
    }

    /// Makes an empty item with this exptime if there is none, and the reader has won it (`N`).
    #[must_use]
    pub const fn vivify(mut self, exptime: Exptime) -> Self {
        self.vivify = Some(exptime);
        self
    }

    /// One reader wins an item that has less than this left (`R`).
    #[must_use]
    pub const fn recache(mut self, left: Exptime) -> Self {
        self.recache = Some(left);
        self
    }
}
