//! Makes a failing sequence short: plainer forms of an op.

use latchd_core::command::{Removal, TtlSteps};
use latchd_core::key::KeyForm;
use latchd_core::time::Exptime;

use super::{Op, SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet, SmallValue};

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

impl SmallRequest {
    /// Each option that it has, left out.
    fn plainer(&self) -> Vec<Self> {
        let mut plainer = match *self {
            Self::Get(get) => get.plainer().map(Self::Get).to_vec(),
            Self::Set(set) => set.plainer().map(Self::Set).to_vec(),
            Self::Delete(delete) => delete.plainer().map(Self::Delete).to_vec(),
            Self::Arithmetic(sum) => sum.plainer().map(Self::Arithmetic).to_vec(),
            Self::FlushAll { .. } => [Self::FlushAll { at: Exptime::Never }].to_vec(),
            Self::Keys { .. } => [Self::Keys { prefix: None }].to_vec(),
            Self::SetTooLarge { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::UnlockAll
            | Self::Stats
            | Self::StatsReset => Vec::new(),
        };
        plainer.retain(|request| request != self);
        plainer
    }
}

impl SmallGet {
    fn plainer(self) -> [Self; 7] {
        let plain = Self::new(self.key);
        let (recaches, lock) = (self.recaches, self.lock);
        let [first, second] = single(self.steps);
        [
            Self {
                recaches,
                lock,
                ..plain
            },
            Self {
                steps: first,
                ..self
            },
            Self {
                steps: second,
                ..self
            },
            Self { bump: true, ..self },
            Self {
                known_cas: None,
                ..self
            },
            Self {
                new_cas: None,
                ..self
            },
            Self {
                key_form: KeyForm::Plain,
                ..self
            },
        ]
    }
}

impl SmallSet {
    fn plainer(self) -> [Self; 6] {
        // A replace-and-unlock has a value.
        let short = match self.value {
            SmallValue::Empty => SmallValue::Empty,
            SmallValue::Word
            | SmallValue::Number
            | SmallValue::Greatest
            | SmallValue::Round
            | SmallValue::Padded
            | SmallValue::Long => SmallValue::Word,
        };
        let plain = Self::new(self.key, short);
        let (mode, lock) = (self.mode, self.lock);
        [
            Self {
                mode,
                lock,
                ..plain
            },
            Self {
                value: short,
                client_flags: 0,
                ..self
            },
            Self {
                client_flags: 0,
                exptime: Exptime::Never,
                ..self
            },
            Self {
                guard: plain.guard,
                ..self
            },
            Self {
                new_cas: None,
                ..self
            },
            Self {
                key_form: KeyForm::Plain,
                ..self
            },
        ]
    }
}

impl SmallDelete {
    fn plainer(self) -> [Self; 5] {
        let plain = Self::new(self.key);
        // What stays and is marked is not removed.
        let removal = match self.removal {
            Removal::Remove => Removal::Remove,
            Removal::MarkStale { .. }
            | Removal::Clear { .. }
            | Removal::ClearAndMarkStale { .. } => Removal::MarkStale { exptime: None },
        };
        [
            plain,
            Self { removal, ..self },
            Self {
                guard: plain.guard,
                ..self
            },
            Self {
                new_cas: None,
                ..self
            },
            Self {
                key_form: KeyForm::Plain,
                ..self
            },
        ]
    }
}

impl SmallArithmetic {
    fn plainer(self) -> [Self; 8] {
        let plain = Self::new(self.key, self.direction, 1);
        let [first, second] = single(self.steps);
        [
            plain,
            Self {
                steps: first,
                ..self
            },
            Self {
                steps: second,
                ..self
            },
            Self { delta: 1, ..self },
            Self { initial: 0, ..self },
            Self {
                guard: plain.guard,
                ..self
            },
            Self {
                new_cas: None,
                ..self
            },
            Self {
                key_form: KeyForm::Plain,
                ..self
            },
        ]
    }
}

/// The first two steps, each by itself; no op is drawn with more.
fn single(steps: TtlSteps) -> [TtlSteps; 2] {
    let mut steps = steps.iter().map(TtlSteps::one);
    let mut next = || steps.next().unwrap_or(TtlSteps::NONE);
    [next(), next()]
}
