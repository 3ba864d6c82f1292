//! A client's requests: the requests of the alphabet.

use latchd_protocol::command::{
    Acquire, Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, Keys,
    Lease, LockAfter, Mode as LockMode, NewCas, Release, ReleaseOf, Removal, ScanCursor, Set,
    SetMode, TtlSteps, Wait,
};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::KeyForm;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::Exptime;
use latchd_protocol::value::Value;

use super::words::{
    CasChoice, FenceChoice, GuardChoice, Meaning, ReleaseChoice, SmallKey, SmallMetadata,
    SmallValue,
};

/// A client's request: a [`Command`], owned and small.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SmallRequest {
    /// Reads an item, and may touch, vivify, win or lock it.
    Get(SmallGet),
    /// Stores a value.
    Set(SmallSet),
    /// A value that was too large to take in.
    SetTooLarge {
        /// Which item.
        key: SmallKey,
    },
    /// Removes an item, or marks it.
    Delete(SmallDelete),
    /// Adds or subtracts.
    Arithmetic(SmallArithmetic),
    /// Takes a lock, with an item or without.
    Acquire(SmallAcquire),
    /// Releases such a lock.
    Release {
        /// Its key.
        key: SmallKey,
        /// The grant to release.
        of: ReleaseChoice,
    },
    /// Acquires a lock.
    Lock {
        /// Its key.
        key: SmallKey,
    },
    /// Releases a lock.
    Unlock {
        /// Its key.
        key: SmallKey,
    },
    /// Releases every lock of the client.
    UnlockAll,
    /// Removes every item.
    FlushAll {
        /// When.
        at: Exptime,
    },
    /// Lists the first page of keys.
    Keys {
        /// Keys that begin with this one; `None` is all.
        prefix: Option<SmallKey>,
    },
    /// Reads the counters.
    Stats,
    /// Sets the counters back.
    StatsReset,
}

/// Declares requests about one key, each beside its command. A field has a type, a value in a plain
/// request, and a translation, if it does not stand for itself.
macro_rules! small {
    ($(
        $(#[$doc:meta])*
        $small:ident as $full:ident, $(#[$plain_doc:meta])* new($($given:ident: $given_type:ty),*) {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $plain:expr, $word:ident;)*
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[allow(clippy::struct_excessive_bools)] // As in the command.
        pub struct $small {
            /// The key of the item or the lock.
            pub key: SmallKey,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $small {
            $(#[$plain_doc])*
            #[must_use]
            pub const fn new(key: SmallKey, $($given: $given_type),*) -> Self {
                Self { key, $($field: $plain,)* }
            }

            fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> $full<'a> {
                let words = Words { key: self.key, meaning };
                $full { key: meaning.key(self.key), $($field: words.$word(self.$field),)* }
            }
        }
    )+};
}

small! {
    /// Reads an item, as [`command::Get`](latchd_protocol::command::Get).
    SmallGet as Get, /// A plain `get`.
    new() {
        /// How the key is written.
        key_form: KeyForm = KeyForm::Plain, itself;
        /// Touch, vivify and recache.
        steps: TtlSteps = TtlSteps::NONE, itself;
        /// Whether the read counts.
        bump: bool = true, itself;
        /// The version that the client already has.
        known_cas: Option<CasChoice> = None, known;
        /// The version of a vivified item; `None` is the next.
        new_cas: Option<CasChoice> = None, given;
        /// Whether the read takes part in recaching.
        recaches: bool = false, itself;
        /// Acquire the lock in the same step.
        lock: bool = false, itself;
        /// A win ends with its connection.
        bound_to_owner: bool = false, itself;
        /// How long it waits for a value that another client computes, in milliseconds; `None` is
        /// not at all.
        wait_ms: Option<u32> = None, milliseconds;
    }

    /// Stores a value, as [`command::Set`](latchd_protocol::command::Set).
    SmallSet as Set, /// A plain `set` that never expires.
    new(value: SmallValue) {
        /// How the key is written.
        key_form: KeyForm = KeyForm::Plain, itself;
        /// The value.
        value: SmallValue = value, value;
        /// The client's own number.
        client_flags: u32 = 0, itself;
        /// When it expires.
        exptime: Exptime = Exptime::Never, itself;
        /// The condition.
        mode: SetMode = SetMode::Set, itself;
        /// Which version.
        guard: GuardChoice = GuardChoice::None, guard;
        /// The version it gets; `None` is the next.
        new_cas: Option<CasChoice> = None, given;
        /// The grant that it names; `None` is the client's own.
        fence: Option<FenceChoice> = None, fence;
        /// The lock afterwards.
        lock: LockAfter = LockAfter::Keep, itself;
    }

    /// Removes an item or marks it, as [`command::Delete`](latchd_protocol::command::Delete).
    SmallDelete as Delete, /// A plain `delete`.
    new() {
        /// How the key is written.
        key_form: KeyForm = KeyForm::Plain, itself;
        /// Which version.
        guard: GuardChoice = GuardChoice::None, guard;
        /// The kind of removal.
        removal: Removal = Removal::Remove, itself;
        /// The version it gets, if it stays; `None` is the next.
        new_cas: Option<CasChoice> = None, given;
        /// As in [`SmallSet`].
        fence: Option<FenceChoice> = None, fence;
        /// The lock afterwards.
        lock: LockAfter = LockAfter::Keep, itself;
    }

    /// Adds or subtracts, as [`command::Arithmetic`](latchd_protocol::command::Arithmetic).
    SmallArithmetic as Arithmetic, /// A plain `incr` or `decr`.
    new(direction: Direction, delta: u64) {
        /// How the key is written.
        key_form: KeyForm = KeyForm::Plain, itself;
        /// Which way.
        direction: Direction = direction, itself;
        /// How much.
        delta: u64 = delta, itself;
        /// The number of a vivified item.
        initial: u64 = 0, itself;
        /// Touch and vivify.
        steps: TtlSteps = TtlSteps::NONE, itself;
        /// Which version.
        guard: GuardChoice = GuardChoice::None, guard;
        /// The version it gets; `None` is the next.
        new_cas: Option<CasChoice> = None, given;
        /// As in [`SmallSet`].
        fence: Option<FenceChoice> = None, fence;
        /// The lock afterwards.
        lock: LockAfter = LockAfter::Keep, itself;
    }
}

/// The translation of the small words of a request about a key.
struct Words<'w, M> {
    key: SmallKey,
    meaning: &'w M,
}

impl<'a, M: Meaning<'a>> Words<'_, M> {
    #[expect(clippy::unused_self, reason = "one word of several")]
    const fn itself<T: Copy>(&self, it: T) -> T {
        it
    }

    fn value(&self, value: SmallValue) -> Value<'a> {
        self.meaning.value(value).into()
    }

    fn version(&self, choice: CasChoice) -> Cas {
        self.meaning.version(self.key, choice)
    }

    fn known(&self, choice: Option<CasChoice>) -> Option<Cas> {
        choice.map(|choice| self.version(choice))
    }

    fn given(&self, choice: Option<CasChoice>) -> NewCas {
        choice.map_or(NewCas::Next, |choice| NewCas::Is(self.version(choice)))
    }

    fn guard(&self, guard: GuardChoice) -> Guard {
        guard.lower(|choice| self.version(choice))
    }

    fn fence(&self, choice: Option<FenceChoice>) -> Option<Fence> {
        choice.map(|choice| self.meaning.fence(self.key, choice))
    }

    #[expect(clippy::unused_self, reason = "one word of several")]
    fn milliseconds(&self, ms: Option<u32>) -> u64 {
        ms.map_or(0, u64::from)
    }
}

/// Acquires a lock, as [`command::Acquire`](latchd_protocol::command::Acquire).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SmallAcquire {
    /// Its key.
    pub key: SmallKey,
    /// Whether others may hold it too.
    pub mode: LockMode,
    /// The requested lease.
    pub lease: Option<Lease>,
    /// The metadata of the lock.
    pub metadata: Option<SmallMetadata>,
    /// Only if there is an item.
    pub needs_item: bool,
    /// The reply shows the item.
    pub reads_item: bool,
    /// How long it waits for the lock, in milliseconds; `None` is not at all.
    pub wait_ms: Option<u32>,
}

impl SmallAcquire {
    /// A plain `ml`.
    #[must_use]
    pub const fn new(key: SmallKey) -> Self {
        Self {
            key,
            mode: LockMode::Exclusive,
            lease: None,
            metadata: None,
            needs_item: false,
            reads_item: false,
            wait_ms: None,
        }
    }
}

impl SmallRequest {
    /// The key it is about.
    #[must_use]
    pub const fn key(&self) -> Option<SmallKey> {
        match self {
            Self::Get(SmallGet { key, .. })
            | Self::Set(SmallSet { key, .. })
            | Self::SetTooLarge { key }
            | Self::Delete(SmallDelete { key, .. })
            | Self::Arithmetic(SmallArithmetic { key, .. })
            | Self::Acquire(SmallAcquire { key, .. })
            | Self::Release { key, .. }
            | Self::Lock { key }
            | Self::Unlock { key } => Some(*key),
            Self::UnlockAll
            | Self::FlushAll { .. }
            | Self::Keys { .. }
            | Self::Stats
            | Self::StatsReset => None,
        }
    }

    /// The same request, if it may wait, without its wait.
    #[must_use]
    pub const fn without_wait(mut self) -> Self {
        if let Self::Acquire(SmallAcquire { wait_ms, .. }) | Self::Get(SmallGet { wait_ms, .. }) =
            &mut self
        {
            *wait_ms = None;
        }
        self
    }

    /// The command, with its words translated.
    #[must_use]
    pub fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Command<'a> {
        match *self {
            Self::Get(get) => Command::from(get.lower(meaning)),
            Self::Set(set) => Command::from(set.lower(meaning)),
            Self::SetTooLarge { key } => Command::Item(ItemCommand::SetTooLarge {
                key: meaning.key(key),
            }),
            Self::Delete(delete) => Command::from(delete.lower(meaning)),
            Self::Arithmetic(arithmetic) => Command::from(arithmetic.lower(meaning)),
            Self::Acquire(acquire) => Command::Item(ItemCommand::Acquire(Acquire {
                key: meaning.key(acquire.key),
                mode: acquire.mode,
                lease: acquire.lease,
                metadata: acquire.metadata.map(SmallMetadata::lower),
                needs_item: acquire.needs_item,
                reads_item: acquire.reads_item,
                wait: match acquire.wait_ms {
                    Some(ms) => Wait::UpTo { ms: ms.into() },
                    None => Wait::No,
                },
            })),
            Self::Release { key, of } => Command::Item(ItemCommand::Release(Release {
                key: meaning.key(key),
                of: match of {
                    ReleaseChoice::Own => ReleaseOf::Own,
                    ReleaseChoice::OwnGrant(choice) => {
                        ReleaseOf::OwnGrant(meaning.fence(key, choice))
                    }
                    ReleaseChoice::Grant(choice) => ReleaseOf::Grant(meaning.fence(key, choice)),
                },
            })),
            Self::Lock { key } => Command::Item(ItemCommand::Lock {
                key: meaning.key(key),
            }),
            Self::Unlock { key } => Command::Item(ItemCommand::Unlock {
                key: meaning.key(key),
            }),
            Self::UnlockAll => Command::Global(GlobalCommand::UnlockAll),
            Self::FlushAll { at } => Command::Global(GlobalCommand::FlushAll { at }),
            Self::Keys { prefix } => Command::Global(GlobalCommand::Keys(Keys {
                prefix: prefix.map_or(&[], |key| meaning.key(key).as_bytes()),
                cursor: ScanCursor::default(),
            })),
            Self::Stats => Command::Global(GlobalCommand::Stats(StatsTopic::General)),
            Self::StatsReset => Command::Global(GlobalCommand::StatsReset),
        }
    }
}
