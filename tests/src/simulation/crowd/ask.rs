//! A request, before it is bytes.

use latchd_core::command::{
    Acquire, Arithmetic, Command, Delete, Direction, Get, GlobalCommand, ItemCommand, Lease,
    LockAfter, Mode, Release, Removal, Set, TtlStep, TtlSteps, Wait,
};
use latchd_core::fence::Fence;
use latchd_core::key::Key;
use latchd_core::time::Exptime;
use latchd_harness::wording::{Style, meta};

/// What a client asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    /// `ml`
    Lock {
        mode: Mode,
        lease: Option<Lease>,
        wait: Wait,
        needs_item: bool,
    },
    /// `mu`
    Unlock { fence: Option<Fence> },
    /// `ms`
    Set {
        right: Right,
        exptime: Exptime,
        value_bytes: u16,
    },
    /// `md`, or `md I`
    Delete { right: Right, marks: bool },
    /// `ma`
    Count { right: Right },
    /// `mg`
    Get(Read),
    /// `unlock_all`, in classic text.
    UnlockAll,
    /// `flush_all`, in classic text.
    FlushAll { seconds: u32 },
}

/// What a get asks for besides the item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Read {
    /// `N` or `R`.
    pub(super) step: Option<TtlStep>,
    /// `B`.
    pub(super) binds: bool,
    /// `w`, in milliseconds; 0 is without.
    pub(super) wait_ms: u64,
}

/// In whose right a change is made, and whether it gives the lock back: `G` and `U`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Right {
    pub(super) fence: Option<Fence>,
    pub(super) unlocks: bool,
}

impl Right {
    const fn after(self) -> LockAfter {
        if self.unlocks {
            LockAfter::Release
        } else {
            LockAfter::Keep
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ask {
    pub(super) verb: Verb,
    pub(super) key: usize,
    /// What `O` says: its number on its connection.
    pub(super) number: u32,
    /// The value is asked for.
    pub(super) looks: bool,
}

impl Ask {
    /// What the core is to be asked. `value` is long enough for any.
    pub(super) fn command<'a>(&self, key: Key<'a>, value: &'a [u8]) -> Command<'a> {
        match self.verb {
            Verb::Lock {
                mode,
                lease,
                wait,
                needs_item,
            } => ItemCommand::Acquire(Acquire {
                mode,
                lease,
                needs_item,
                looks: self.looks,
                wait,
                ..Acquire::new(key)
            })
            .into(),
            Verb::Unlock { fence } => ItemCommand::Release(Release {
                fence,
                ..Release::new(key)
            })
            .into(),
            Verb::Set {
                right,
                exptime,
                value_bytes,
            } => Set {
                exptime,
                fence: right.fence,
                lock: right.after(),
                ..Set::new(key, &value[..value_bytes.into()])
            }
            .into(),
            Verb::Delete { right, marks } => Delete {
                removal: if marks {
                    Removal::MarkStale { exptime: None }
                } else {
                    Removal::Remove
                },
                fence: right.fence,
                lock: right.after(),
                ..Delete::new(key)
            }
            .into(),
            Verb::Count { right } => ItemCommand::Arithmetic(Arithmetic {
                fence: right.fence,
                lock: right.after(),
                ..Arithmetic::new(key, Direction::Increment, 1)
            })
            .into(),
            Verb::Get(read) => Get {
                steps: read.step.map_or(TtlSteps::NONE, TtlSteps::one),
                recaches: true,
                binds: read.binds,
                wait_ms: read.wait_ms,
                ..Get::new(key)
            }
            .into(),
            Verb::UnlockAll => GlobalCommand::UnlockAll.into(),
            Verb::FlushAll { seconds } => GlobalCommand::FlushAll {
                at: Exptime::In { seconds },
            }
            .into(),
        }
    }

    /// The same, when its wait is over.
    pub(super) fn without_wait(mut self) -> Self {
        if let Verb::Lock { wait, .. } = &mut self.verb {
            *wait = Wait::No;
        }
        if let Verb::Get(read) = &mut self.verb {
            read.wait_ms = 0;
        }
        self
    }

    /// Appends it as a client writes it; `order` chooses among the ways.
    pub(super) fn write(&self, command: &Command<'_>, order: u8, out: &mut Vec<u8>) {
        match (self.verb, command) {
            (Verb::FlushAll { seconds }, _) => {
                out.extend_from_slice(format!("flush_all {seconds}\r\n").as_bytes());
            }
            (_, Command::Global(_)) => out.extend_from_slice(b"unlock_all\r\n"),
            (_, Command::Item(command)) => {
                let style = Style {
                    with_value: self.looks,
                    opaque: Some(self.number),
                    order,
                    ..Style::default()
                };
                meta(command, &style, out);
            }
        }
    }
}
