//! The requests that read an item.

use super::NewCas;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::time::Exptime;

/// Reads an item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be asked for whatever the others are"
)]
pub struct Get<'a> {
    /// The key of the item to read, or to make if `steps` vivify and there is none.
    pub key: Key<'a>,
    /// How the key was written, for an item that this get vivifies.
    pub key_form: KeyForm,
    /// Touch, vivify and recache, in the order of execution.
    pub steps: TtlSteps,
    /// Whether the read counts for eviction, last access and `fetched`. Not with `u`, and not for `me`.
    pub bump: bool,
    /// The version of the value that the client has. If it is still the item's version, the reply is
    /// [`unchanged`](crate::reply::Hit::unchanged). `C` of meta get.
    pub known_cas: Option<Cas>,
    /// The CAS of an item that this get vivifies.
    pub new_cas: NewCas,
    /// Whether the read takes part in recaching: it shows the win, and may get it. Only `mg` does; every other
    /// read leaves the win alone.
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`, `process_get_cmd`, which ignores the win.
    pub recaches: bool,
    /// Acquires the lock in the same step (lock-and-get).
    pub lock: bool,
    /// Whether a win ends with its connection, so that it is open again (`B`). Only for a connection that was
    /// announced (`Event::Opened`).
    pub bound_to_owner: bool,
    /// How long to wait if another client has the win, in milliseconds (`w`); 0 means not at all. At most
    /// `wait_ms_max`; a higher number is cut to that. The reply is then
    /// [`Reply::Waits`](crate::reply::Reply::Waits). Only for callers that handle the core's later notices (see
    /// [`crate::wait`]).
    pub wait_ms: u64,
}

impl<'a> Get<'a> {
    /// A plain `get`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            steps: TtlSteps::NONE,
            bump: true,
            known_cas: None,
            new_cas: NewCas::Next,
            recaches: false,
            lock: false,
            bound_to_owner: false,
            wait_ms: 0,
        }
    }

    /// Whether it only inspects the item, for a person (`me`). The counters of gets ignore it.
    #[must_use]
    pub const fn is_look(&self) -> bool {
        !self.bump && !self.recaches
    }
}

/// A flag of a meta command that acts on an item's TTL, at its place in the request: `t T30` shows the old TTL,
/// `T30 t` the new one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TtlStep {
    /// `T`: the item gets this exptime.
    Touch(Exptime),
    /// `N`: a missing item is made, and gets this exptime. No effect on an existing item.
    Vivify(Exptime),
    /// `R`: an item with a remaining TTL below this is won, if its win is available. The token is an exptime,
    /// so 0 and negative ones never win.
    Recache(Exptime),
}

/// The most [`TtlStep`]s of a command: each flag comes at most once.
pub const TTL_STEPS_MAX: usize = 3;

/// The TTL flags of a command in request order, at most [`TTL_STEPS_MAX`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TtlSteps([Option<TtlStep>; TTL_STEPS_MAX]);

impl TtlSteps {
    /// No steps.
    pub const NONE: Self = Self([None; TTL_STEPS_MAX]);

    /// One step.
    #[must_use]
    pub const fn one(step: TtlStep) -> Self {
        Self([Some(step), None, None])
    }

    /// Adds a step behind the others; `None` if there are too many, which no request with each flag at most
    /// once can cause.
    #[must_use]
    pub fn then(mut self, step: TtlStep) -> Option<Self> {
        *self.0.iter_mut().find(|slot| slot.is_none())? = Some(step);
        Some(self)
    }

    /// The steps in order.
    pub fn iter(&self) -> impl Iterator<Item = TtlStep> + '_ {
        self.0.iter().map_while(|step| *step)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Whether a missing item is to be made.
    #[must_use]
    pub fn vivifies(&self) -> bool {
        self.iter().any(|step| matches!(step, TtlStep::Vivify(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_order_and_have_an_end() {
        let [one, two, three] =
            [TtlStep::Touch, TtlStep::Vivify, TtlStep::Recache].map(|step| step(Exptime::Never));
        assert!(TtlSteps::NONE.is_empty());
        assert_eq!(TtlSteps::NONE.len(), 0);
        let steps = TtlSteps::one(two).then(one).unwrap().then(three).unwrap();
        assert!(!steps.is_empty() && steps.vivifies());
        assert_eq!(steps.len(), TTL_STEPS_MAX);
        assert!(steps.iter().eq([two, one, three]));
        assert_eq!(steps.then(one), None);
        assert!(!TtlSteps::one(one).vivifies());
    }
}
