//! Makes a failing sequence short: plainer forms of an op.

use latchd_protocol::command::{Removal, TtlSteps};
use latchd_protocol::time::Exptime;

use super::{
    Op, ReleaseChoice, SmallAcquire, SmallArithmetic, SmallDelete, SmallGet, SmallRequest,
    SmallSet, SmallValue,
};

/// `of` with one field after the other as `plain` has it.
macro_rules! each_as_in {
    ($plain:ident, $of:ident: $($field:ident),+) => {
        each_as_in!($plain, $of: Self: $($field),+)
    };
    ($plain:ident, $of:ident: $type:ident: $($field:ident),+) => {
        [$($type { $field: $plain.$field, ..$of }),+]
    };
}

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
            | Self::Detach { .. }
            | Self::Advance { .. }
            | Self::Rewind { .. }
            | Self::WallClock { .. }
            | Self::Tick
            | Self::Due
            | Self::Pressure { .. }
            | Self::Withhold { .. }
            | Self::Limit { .. } => Vec::new(),
        }
    }
}

impl SmallRequest {
    /// Each option that it has, left out.
    fn plainer(&self) -> Vec<Self> {
        let mut plainer: Vec<Self> = match *self {
            Self::Get(get) => get.plainer().into_iter().map(Self::Get).collect(),
            Self::Set(set) => set.plainer().into_iter().map(Self::Set).collect(),
            Self::Delete(delete) => delete.plainer().into_iter().map(Self::Delete).collect(),
            Self::Arithmetic(sum) => sum.plainer().into_iter().map(Self::Arithmetic).collect(),
            Self::FlushAll { .. } => [Self::FlushAll { at: Exptime::Never }].to_vec(),
            Self::Keys { .. } => [Self::Keys { prefix: None }].to_vec(),
            Self::Acquire(acquire) => {
                let plain = SmallAcquire {
                    wait_ms: acquire.wait_ms,
                    ..SmallAcquire::new(acquire.key)
                };
                let less = each_as_in!(plain, acquire: SmallAcquire: reads_item, needs_item, lease, metadata, mode);
                less.map(Self::Acquire).to_vec()
            }
            Self::Release { key, .. } => {
                let of = ReleaseChoice::Own;
                [Self::Release { key, of }].to_vec()
            }
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
    fn plainer(self) -> Vec<Self> {
        let plain = Self {
            recaches: self.recaches,
            lock: self.lock,
            ..Self::new(self.key)
        };
        let steps = single(self.steps).map(|steps| Self { steps, ..self });
        let others =
            each_as_in!(plain, self: bump, known_cas, new_cas, key_form, bound_to_owner, wait_ms);
        [&[plain], &steps[..], &others].concat()
    }
}

impl SmallSet {
    fn plainer(self) -> Vec<Self> {
        // A replace-and-unlock has a value.
        let is_empty = self.value == SmallValue::Empty;
        let plain = Self {
            value: if is_empty {
                self.value
            } else {
                SmallValue::Word
            },
            mode: self.mode,
            lock: self.lock,
            ..Self::new(self.key, self.value)
        };
        let others =
            each_as_in!(plain, self: value, client_flags, exptime, guard, new_cas, fence, key_form);
        [&[plain], &others[..]].concat()
    }
}

impl SmallDelete {
    fn plainer(self) -> Vec<Self> {
        let plain = Self::new(self.key);
        // A removal that keeps the item becomes a plain mark.
        let marked = Self {
            removal: match self.removal {
                Removal::Remove => Removal::Remove,
                Removal::MarkStale { .. }
                | Removal::Clear { .. }
                | Removal::ClearAndMarkStale { .. } => Removal::MarkStale { exptime: None },
            },
            ..self
        };
        let others = each_as_in!(plain, self: guard, new_cas, fence, lock, key_form);
        [&[plain, marked], &others[..]].concat()
    }
}

impl SmallArithmetic {
    fn plainer(self) -> Vec<Self> {
        let plain = Self::new(self.key, self.direction, 1);
        let steps = single(self.steps).map(|steps| Self { steps, ..self });
        let others =
            each_as_in!(plain, self: delta, initial, guard, new_cas, fence, lock, key_form);
        [&[plain], &steps[..], &others].concat()
    }
}

/// The first two steps, each alone;
fn single(steps: TtlSteps) -> [TtlSteps; 2] {
    let mut steps = steps.iter().map(TtlSteps::one);
    let mut next = || steps.next().unwrap_or(TtlSteps::NONE);
    [next(), next()]
}
