//! What a request to read an item can ask for.

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
    /// The item to read, or to make if `steps` vivify and there is none.
    pub key: Key<'a>,
    /// How the key was written, for an item that this get vivifies.
    pub key_form: KeyForm,
    /// Touch, vivify and recache, in the order they are to act.
    pub steps: TtlSteps,
    /// Whether the read counts as one: for eviction, last access and `fetched`. Not with `u`, and
    /// not for `me`.
    pub bump: bool,
    /// What the client already has: an item with this CAS is answered
    /// [`unchanged`](crate::reply::Hit::unchanged). `C` of meta get.
    pub known_cas: Option<Cas>,
    /// The CAS of an item that this get vivifies.
    pub new_cas: NewCas,
    /// Whether the read takes part in recaching: it is told who has the win, and may get it. Only
    /// `mg` does; every other read leaves the win alone.
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`, `process_get_cmd`, which looks at no win.
    pub recaches: bool,
    /// Take the lock in the same step (lock-and-get).
    pub lock: bool,
    /// If it is told to recache the item, that ends with its connection: then the win is open again (`B`). Only
    /// for a connection that was announced ([`Event::Opened`](crate::engine::Event::Opened)).
    pub binds: bool,
    /// How long to wait where another has been told, in milliseconds (`w`); 0 is not at all, more than
    /// [`wait_ms_max`](crate::Limits::wait_ms_max) are as many. It is answered
    /// [`Reply::Waits`](crate::reply::Reply::Waits) then: only for those who see to what the core has to tell later (see
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
            binds: false,
            wait_ms: 0,
        }
    }

    /// Whether it only looks at the item, for a person (`me`): no counter of gets knows of it.
    #[must_use]
    pub const fn is_look(&self) -> bool {
        !self.bump && !self.recaches
    }
}

/// One of the flags of meta commands that act on an item's TTL, each at its place in the request:
/// `t T30` shows the old TTL, `T30 t` the new one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TtlStep {
    /// `T`: the item gets this exptime.
    Touch(Exptime),
    /// `N`: a missing item is made, and gets this exptime here. Nothing for an item that was there.
    Vivify(Exptime),
    /// `R`: an item whose remaining TTL is less than this is won, if nobody has the win. The token
    /// is an exptime, so 0 and negative ones never win.
    Recache(Exptime),
}

/// How many [`TtlStep`]s a command can have: each flag stands at most once.
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

    /// Adds a step behind the others; `None` if there is no room, which no request with each flag
    /// at most once can bring about.
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
