//! Makes a failing sequence short: plainer forms of an op.

use super::{GuardChoice, Op, Request, SmallValue};
use crate::command::{Removal, TtlSteps};
use crate::key::KeyForm;
use crate::time::Exptime;
use alloc::vec::Vec;

impl Op {
    /// Ops that do less of the same, plainest first. Empty for one that cannot be plainer.
    #[must_use]
    pub fn plainer(&self) -> Vec<Self> {
        match *self {
            Self::Request { client, request } => request
                .plainer()
                .into_iter()
                .map(|request| Self::Request { client, request })
                .collect(),
            Self::Advance { ms } if ms > 1_000 => [Self::Advance { ms: 1_000 }].to_vec(),
            Self::Open { .. }
            | Self::Close { .. }
            | Self::Advance { .. }
            | Self::Rewind { .. }
            | Self::WallClock { .. }
            | Self::Tick
            | Self::Pressure { .. } => Vec::new(),
        }
    }
}

impl Request {
    /// Each option that it has, left out.
    fn plainer(&self) -> Vec<Self> {
        let mut plainer = Vec::new();
        let mut offer = |request: Self| {
            if request != *self {
                plainer.push(request);
            }
        };
        match *self {
            Self::Get {
                key,
                key_form,
                steps,
                bump,
                known_cas,
                new_cas,
                recaches,
                lock,
            } => {
                let with = |key_form, steps, bump, known_cas, new_cas| Self::Get {
                    key,
                    key_form,
                    steps,
                    bump,
                    known_cas,
                    new_cas,
                    recaches,
                    lock,
                };
                offer(with(KeyForm::Plain, TtlSteps::NONE, true, None, None));
                for step in steps.iter() {
                    offer(with(
                        key_form,
                        TtlSteps::one(step),
                        bump,
                        known_cas,
                        new_cas,
                    ));
                }
                offer(with(key_form, steps, true, known_cas, new_cas));
                offer(with(key_form, steps, bump, None, new_cas));
                offer(with(key_form, steps, bump, known_cas, None));
            }
            Self::Set {
                key,
                key_form,
                value,
                client_flags,
                exptime,
                mode,
                guard,
                new_cas,
                lock,
            } => {
                let with = |key_form, value, client_flags, exptime, guard, new_cas| Self::Set {
                    key,
                    key_form,
                    value,
                    client_flags,
                    exptime,
                    mode,
                    guard,
                    new_cas,
                    lock,
                };
                let plain = KeyForm::Plain;
                let none = GuardChoice::None;
                offer(with(
                    plain,
                    SmallValue::default(),
                    0,
                    Exptime::Never,
                    none,
                    None,
                ));
                offer(with(
                    key_form,
                    SmallValue::default(),
                    0,
                    exptime,
                    guard,
                    new_cas,
                ));
                offer(with(key_form, value, 0, Exptime::Never, guard, new_cas));
                offer(with(key_form, value, client_flags, exptime, none, new_cas));
                offer(with(key_form, value, client_flags, exptime, guard, None));
            }
            Self::Delete {
                key,
                key_form,
                guard,
                removal,
                new_cas,
            } => {
                let with = |key_form, guard, removal, new_cas| Self::Delete {
                    key,
                    key_form,
                    guard,
                    removal,
                    new_cas,
                };
                let remove = Removal::Remove;
                offer(with(KeyForm::Plain, GuardChoice::None, remove, None));
                offer(with(key_form, GuardChoice::None, removal, new_cas));
                if removal != remove {
                    offer(with(
                        key_form,
                        guard,
                        Removal::MarkStale { exptime: None },
                        new_cas,
                    ));
                }
                offer(with(key_form, guard, removal, None));
            }
            Self::Arithmetic {
                key,
                key_form,
                direction,
                delta,
                initial,
                steps,
                guard,
                new_cas,
            } => {
                let with = |key_form, delta, initial, steps, guard, new_cas| Self::Arithmetic {
                    key,
                    key_form,
                    direction,
                    delta,
                    initial,
                    steps,
                    guard,
                    new_cas,
                };
                let none = GuardChoice::None;
                offer(with(KeyForm::Plain, 1, 0, TtlSteps::NONE, none, None));
                for step in steps.iter() {
                    let one = TtlSteps::one(step);
                    offer(with(key_form, delta, initial, one, guard, new_cas));
                }
                offer(with(key_form, 1, initial, steps, guard, new_cas));
                offer(with(key_form, delta, 0, steps, guard, new_cas));
                offer(with(key_form, delta, initial, steps, none, new_cas));
                offer(with(key_form, delta, initial, steps, guard, None));
            }
            Self::FlushAll { .. } => offer(Self::FlushAll { at: Exptime::Never }),
            Self::Keys { .. } => offer(Self::Keys { prefix: None }),
            Self::SetTooLarge { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::UnlockAll
            | Self::Stats
            | Self::StatsReset => {}
        }
        plainer
    }
}
