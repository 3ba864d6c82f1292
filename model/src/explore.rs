//! A setup as a stateright model.
//!
//! The canonical view is all that the hash of a state looks at, so stateright's breadth-first
//! search has the symmetry of clients and keys without knowing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latchd_core::engine::Core;
use latchd_core::store::MapStore;
use stateright::{Model, Property};

use crate::action::Action;
use crate::beliefs;
use crate::fault::Fault;
use crate::invariants::{Invariant, Witness, Witnesses};
use crate::setup::Setup;
use crate::world::World;

/// A setup, ready to be explored.
#[derive(Clone, Debug)]
pub struct Explored {
    setup: Setup,
    start: World,
    /// What any step has shown, also one to a state that was known already.
    /// The bits of [`Witnesses`], the lower half first.
    seen: Arc<[AtomicU64; 2]>,
}

impl Explored {
    /// On cores that are made as the setup says, one a shard.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let cores = (0..setup.shards).map(|shard| Core::reference(setup.config(shard)));
        let start = World::new(&setup, cores.collect());
        Self {
            setup,
            start,
            seen: Arc::default(),
        }
    }

    /// The cores that it starts with.
    pub(crate) fn fresh_cores(&self) -> Vec<Core<MapStore>> {
        self.start.shards.clone()
    }

    /// What is explored.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What has been seen so far.
    #[must_use]
    pub fn seen(&self) -> Witnesses {
        let [low, high] = &*self.seen;
        let high = u128::from(high.load(Ordering::Relaxed)) << 64;
        Witnesses::from_bits(high | u128::from(low.load(Ordering::Relaxed)))
    }

    /// The witnesses that must be seen and were not.
    #[must_use]
    pub fn missing(&self) -> Vec<Witness> {
        let seen = self.seen();
        let due = Witness::ALL
            .iter()
            .filter(|witness| witness.is_due(&self.setup));
        due.filter(|witness| !seen.contains(**witness))
            .copied()
            .collect()
    }

    /// What is wrong with a state: by the step that led to it, or by what would come of it.
    #[must_use]
    pub fn fault(&self, world: &World) -> Option<Fault> {
        world.fault().cloned().or_else(|| self.escape(world).err())
    }

    /// Whether an invariant holds in a state.
    #[must_use]
    pub fn holds(&self, invariant: Invariant, world: &World) -> bool {
        match (invariant, world.fault()) {
            (_, Some(fault)) => fault.invariant != invariant,
            // One probe for both: what it finds is said to be against the first.
            (Invariant::Escape, None) => self.escape(world).is_ok(),
            (_, None) => true,
        }
    }

    fn escape(&self, world: &World) -> Result<(), Fault> {
        self.note(beliefs::escape(world, &self.setup)?);
        Ok(())
    }

    fn note(&self, shown: Witnesses) {
        for (half, seen) in self.seen.iter().enumerate() {
            // The cast drops what belongs to the other half.
            #[allow(clippy::cast_possible_truncation)]
            let shown = (shown.bits() >> (64 * half)) as u64;
            if shown & !seen.load(Ordering::Relaxed) != 0 {
                seen.fetch_or(shown, Ordering::Relaxed);
            }
        }
    }
}

impl Model for Explored {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.setup, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = world.after(&self.setup, action);
        self.note(next.witnessed());
        Some(next)
    }

    fn format_action(&self, action: &Action) -> String {
        action.to_string()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Invariant::ALL
            .iter()
            .map(|one| Property::always(one.title(), one.condition()));
        let due = Witness::ALL.iter().filter(|one| one.is_due(&self.setup));
        let sometimes = due.map(|one| Property::sometimes(one.words(), one.condition()));
        always.chain(sometimes).collect()
    }
}
