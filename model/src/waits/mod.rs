//! Locks that are waited for: real cores, clients that ask and wait, and the time, to the end of every
//! interleaving.
//!
//! What a client knows it knows by answers and notices, and of these alone a state is made in which the
//! rules are stated, in other words than the core's; then both are compared.
//!
//! - L1, L5, L6, L12: as in the other models, for locks that come by waiting, and for shares, too: none beside one who holds a key
//!   alone, and never more than the least that one of them has asked for.
//! - L15: while a key is shared nobody changes its item, nor makes one.
//! - Q2, Q7: a lock is given to the first in line whose time is not over, and to nobody who has not waited
//!   past one who has.
//! - Q3: a wait and a lease that somebody waits for end on time, and the core has said when.
//! - Q6: after every call no lock could be had that somebody waits for; where little is done in one call, the core says
//!   that there is more, and whoever asks for that lock finds it given.
//! - Q8: nothing is given to one who has gone or whose time is over.
//! - Q9: a request is refused as a deadlock if and only if it would never be answered, whoever gives back what he can, over all cores.
//! - Q10: everybody who waits is told exactly once how that has ended, and then answered.
//! - Q11: whoever waits is answered if those who hold locks give them back: while somebody waits, there is one who can, and
//!   each who gives back or hears what it was told brings the state nearer to one in which nobody waits. (A sum that falls with
//!   each such step: so every way of them ends, and where it ends nobody waits.)
//!
//! Times count from now, so the states come to an end by themselves.

mod asks;
mod bounds;
mod rules;
mod view;
mod world;

use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as StdInstant};

use stateright::{Checker, Model, Property};

use crate::search;

pub use bounds::{ALL, Asks, Bounds, Gives, Witness};
use bounds::{ALWAYS_SEEN, SEEN_OF_TIME};
pub(crate) use view::permute;
pub use world::World;
pub(crate) use world::{Judged, must};

/// The most clients of a model.
const CLIENTS_MAX: usize = 4;

/// The most keys.
const KEYS_MAX: usize = 3;

/// With how many places left over by locks that have ended a state is still gone on from.
const LEFT_OVER_MAX: usize = 5;

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs)] // The names say it; the numbers are a client's and a key's.
pub enum Happening {
    Open(usize),
    Close(usize),
    Time,
    Pass,
    Ask(usize, usize, Asks),
    Hear(usize),
    Release(usize, usize),
    Unlock(usize, usize),
    UnlockAll(usize),
    DeleteAndUnlock(usize, usize),
    Delete(usize, usize),
    Set(usize, usize),
}

/// Everything that can happen to a world.
fn happenings(bounds: &Bounds, world: &World, happenings: &mut Vec<Happening>) {
    if bounds.has_time {
        happenings.push(Happening::Time);
    }
    if world.is_due() {
        happenings.push(Happening::Pass);
    }
    for (client, one) in world.clients.iter().enumerate().take(bounds.clients) {
        if one.conn.is_none() {
            happenings.push(Happening::Open(client));
            continue;
        }
        happenings.push(Happening::Close(client));
        if let Some(parked) = one.parked {
            // It asks nothing else.
            if parked.told.is_some() {
                happenings.push(Happening::Hear(client));
            }
            continue;
        }
        if bounds.gives.contains(&Gives::UnlockAll) {
            happenings.push(Happening::UnlockAll(client));
        }
        for key in 0..bounds.keys {
            let asks = bounds.asks.iter();
            happenings.extend(asks.map(|asks| Happening::Ask(client, key, *asks)));
            happenings.push(Happening::Release(client, key));
            for gives in bounds.gives {
                match gives {
                    Gives::Unlock => happenings.push(Happening::Unlock(client, key)),
                    Gives::DeleteAndUnlock => {
                        happenings.push(Happening::DeleteAndUnlock(client, key));
                    }
                    Gives::Items => {
                        happenings.push(Happening::Delete(client, key));
                        happenings.push(Happening::Set(client, key));
                    }
                    Gives::UnlockAll => {}
                }
            }
        }
    }
}

/// Clients, keys and cores, within bounds.
#[derive(Clone, Debug)]
pub struct Waits {
    bounds: Bounds,
    /// What any step has shown, also one to a state that was known already.
    seen: Arc<AtomicU32>,
}

impl Model for Waits {
    type State = World;
    type Action = Happening;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Happening>) {
        // Where a call lets go of one lock alone, what is left of ended ones piles up until a tick comes.
        if world.fault.is_none() && world.left_over() <= LEFT_OVER_MAX {
            happenings(&self.bounds, world, actions);
        }
    }

    fn next_state(&self, world: &World, happening: Happening) -> Option<World> {
        let mut next = world.clone();
        next.happen(&self.bounds, happening);
        if next.seen & !self.seen.load(Ordering::Relaxed) != 0 {
            self.seen.fetch_or(next.seen, Ordering::Relaxed);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ALWAYS, |_, world: &World| {
            world.fault.is_none()
        })]
    }
}

/// What must always hold.
pub(crate) const ALWAYS: &str = "every rule of waiting";

/// What a check has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// States that differ.
    pub states: usize,
    /// Steps taken.
    pub transitions: usize,
    /// The longest way that had to be gone.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// What does not hold, and what was never seen; empty if all is well.
    pub complaints: String,
}

impl Outcome {
    fn complain(&mut self, name: &str, what: &str) {
        let _ = writeln!(self.complaints, "  {name}: {what}");
    }
}

/// Explores every state, and checks that it is as many as are pinned.
#[must_use]
pub fn check(bounds: &Bounds, threads: usize) -> Outcome {
    let model = Waits {
        bounds: *bounds,
        seen: Arc::default(),
    };
    let seen = Arc::clone(&model.seen);
    let of_time = if bounds.has_time { SEEN_OF_TIME } else { &[] };
    let all = bounds.witnesses.iter().chain(ALWAYS_SEEN).chain(of_time);
    let pins = Pins {
        name: bounds.name,
        counts: bounds.pinned,
        fault: |world: &World| world.fault.clone(),
    };
    exhaust(model, threads, &pins, || {
        let unseen = |witness: &&Witness| seen.load(Ordering::Relaxed) & 1 << **witness as u32 == 0;
        all.filter(unseen)
            .map(|witness| format!("{witness:?}"))
            .collect()
    })
}

/// What is pinned of a model.
pub(crate) struct Pins<S> {
    pub(crate) name: &'static str,
    /// States and transitions.
    pub(crate) counts: (usize, usize),
    /// What is wrong with a state.
    pub(crate) fault: fn(&S) -> Option<String>,
}

/// Explores every state of a model, and says what is wrong, what of it was never seen, and whether there are as many as are
/// pinned.
pub(crate) fn exhaust<M>(
    model: M,
    threads: usize,
    pins: &Pins<M::State>,
    unseen: impl FnOnce() -> Vec<String>,
) -> Outcome
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let start = StdInstant::now();
    let checker = model.checker().threads(threads).spawn_bfs().join();
    let mut outcome = Outcome {
        states: checker.unique_state_count(),
        transitions: checker.state_count() - 1,
        depth: checker.max_depth() - 1,
        time: start.elapsed(),
        complaints: String::new(),
    };
    if let Some(path) = checker.discovery(ALWAYS) {
        let fault = (pins.fault)(path.last_state()).unwrap_or_default();
        let way = path.into_actions();
        outcome.complain(pins.name, &format!("{fault}, after {way:?}"));
    }
    for witness in unseen() {
        outcome.complain(pins.name, &format!("never seen: {witness}"));
    }
    let counts = (outcome.states, outcome.transitions);
    if outcome.complaints.is_empty() && counts != pins.counts {
        let what = format!(
            "{counts:?} states and transitions, and pinned are {:?}: if the model or the core has \
             changed on purpose, pin the new numbers",
            pins.counts
        );
        outcome.complain(pins.name, &what);
    }
    outcome
}

/// Looks for the shortest way to a state of one model that is wrong. Returns how many states there are if nothing is.
///
/// # Errors
/// The way there, and what is wrong.
pub fn search(bounds: &Bounds) -> Result<usize, (Vec<Happening>, String)> {
    let model = Waits {
        bounds: *bounds,
        seen: Arc::default(),
    };
    search::shortest(
        &model,
        usize::MAX,
        |world| world.view.clone(),
        |world| world.fault.clone(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn small() -> impl Iterator<Item = &'static Bounds> {
        ALL.iter().filter(|bounds| bounds.pinned.1 < 30_000)
    }

    fn successors(model: &Waits, world: &World) -> Vec<Vec<u8>> {
        let next = model.next_states(world);
        let mut views: Vec<_> = next.into_iter().map(|next| next.view).collect();
        views.sort_unstable();
        views
    }

    #[test]
    fn worlds_that_are_taken_for_the_same_lead_to_the_same() {
        for bounds in small() {
            let model = Waits {
                bounds: *bounds,
                seen: Arc::default(),
            };
            let mut known: HashMap<Vec<u8>, World> = HashMap::new();
            let mut open = model.init_states();
            while let Some(world) = open.pop() {
                for next in model.next_states(&world) {
                    if let Some(first) = known.get(&next.view) {
                        let (one, other) = (successors(&model, first), successors(&model, &next));
                        assert_eq!(one, other, "{}: {first:?} {next:?}", bounds.name);
                    } else {
                        known.insert(next.view.clone(), next.clone());
                        open.push(next);
                    }
                }
            }
        }
    }

    #[test]
    fn in_the_small_ones_everything_holds_and_everything_is_seen() {
        for bounds in small() {
            let outcome = check(bounds, 2);
            assert!(outcome.complaints.is_empty(), "{}", outcome.complaints);
        }
    }
}
