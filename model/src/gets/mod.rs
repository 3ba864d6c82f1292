//! Wins that end with their connections, and gets that wait for a value: a real core, clients that ask, wait and go, and
//! the time, to the end of every interleaving.
//!
//! What a client knows it knows by answers and notices, and of these alone a state is made in which the
//! rules are stated, in other words than the core's; then both are compared.
//!
//! - R1, R2: a win goes to one until it is opened again, and whoever asks while it is open is told.
//! - Z5: a wait and an item that is waited for end on time, and the core has said when, and wants to be called at no
//!   other moment.
//! - Z7: a bound win ends with its connection, and nothing is left of one that has ended, be it as winner or in a line.
//! - Z8: after every call nobody waits where a win is open, a value is there or nothing is; where little is done
//!   in one call, the core says that there is more.
//! - Z9: nobody is told of a win past those who have waited for it.
//! - Z10: who was given a win is told so once; what was given to one who ends is passed on, once and in order of arrival.
//! - Z11: everybody who waits is told exactly once how that has ended.
//! - Z12: nobody waits for ever: while somebody waits, either the winner can end that, whatever it does brings the state nearer
//!   to one in which nobody waits, and so does whoever hears what it was told; or the winner has gone or waits itself, and then
//!   the core has named the moment at which the wait is over.
//!
//! Times count from now, so the states come to an end by themselves.

mod bounds;
mod rules;
mod view;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Model, Property};

use crate::waits::{self, Outcome, Pins};

pub use bounds::{ALL, Bounds, Does, Gets, Witness};
use bounds::{ALWAYS_SEEN, SEEN_OF_THREE};
pub use world::World;

/// The most clients of a model.
const CLIENTS_MAX: usize = 4;

/// The most keys.
const KEYS_MAX: usize = 2;

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs)] // The names say it; the numbers are a client's and a key's.
pub enum Happening {
    Open(usize),
    Close(usize),
    Time,
    Pass,
    Tick,
    Get(usize, usize, Gets),
    Hear(usize),
    Set(usize, usize),
    SetExpiring(usize, usize),
    Mark(usize, usize),
    Delete(usize, usize),
    Touch(usize, usize),
    Lock(usize, usize),
    Release(usize, usize),
    UnlockAll(usize),
    Flush,
    FlushLater,
}

/// Everything that can happen to a world.
fn happenings(bounds: &Bounds, world: &World, happenings: &mut Vec<Happening>) {
    happenings.push(Happening::Time);
    if world.is_due() {
        happenings.push(Happening::Pass);
    }
    for does in bounds.does {
        match does {
            Does::Flush => happenings.push(Happening::Flush),
            Does::FlushLater => happenings.push(Happening::FlushLater),
            Does::Tick => happenings.push(Happening::Tick),
            Does::Set
            | Does::SetExpiring
            | Does::Mark
            | Does::Delete
            | Does::Touch
            | Does::Lock
            | Does::Release
            | Does::UnlockAll => {}
        }
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
        if bounds.does.contains(&Does::UnlockAll) {
            happenings.push(Happening::UnlockAll(client));
        }
        for key in 0..bounds.keys {
            let gets = bounds.gets.iter();
            happenings.extend(gets.map(|gets| Happening::Get(client, key, *gets)));
            happenings.extend(
                bounds
                    .does
                    .iter()
                    .filter_map(|does| of_key(*does, client, key)),
            );
        }
    }
}

/// What a client does to a key; `None` if it is not about one.
const fn of_key(does: Does, client: usize, key: usize) -> Option<Happening> {
    Some(match does {
        Does::Set => Happening::Set(client, key),
        Does::SetExpiring => Happening::SetExpiring(client, key),
        Does::Mark => Happening::Mark(client, key),
        Does::Delete => Happening::Delete(client, key),
        Does::Touch => Happening::Touch(client, key),
        Does::Lock => Happening::Lock(client, key),
        Does::Release => Happening::Release(client, key),
        Does::UnlockAll | Does::Flush | Does::FlushLater | Does::Tick => return None,
    })
}

/// Clients and keys, within bounds.
#[derive(Clone, Debug)]
pub struct Waiting {
    bounds: Bounds,
    /// What any step has shown, also one to a state that was known already.
    seen: Arc<AtomicU32>,
}

impl Model for Waiting {
    type State = World;
    type Action = Happening;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Happening>) {
        if world.fault.is_none() {
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
        vec![Property::always(waits::ALWAYS, |_, world: &World| {
            world.fault.is_none()
        })]
    }
}

impl Waiting {
    fn new(bounds: &Bounds) -> Self {
        Self {
            bounds: *bounds,
            seen: Arc::default(),
        }
    }
}

/// Explores every state, and checks that it is as many as are pinned.
#[must_use]
pub fn check(bounds: &Bounds, threads: usize) -> Outcome {
    let model = Waiting::new(bounds);
    let seen = Arc::clone(&model.seen);
    let of_three = if bounds.clients > 2 {
        SEEN_OF_THREE
    } else {
        &[]
    };
    let all = bounds.witnesses.iter().chain(ALWAYS_SEEN).chain(of_three);
    let pins = Pins {
        name: bounds.name,
        counts: bounds.pinned,
        fault: |world: &World| world.fault.clone(),
    };
    waits::exhaust(model, threads, &pins, || {
        let unseen = |witness: &&Witness| seen.load(Ordering::Relaxed) & 1 << **witness as u32 == 0;
        all.filter(unseen)
            .map(|witness| format!("{witness:?}"))
            .collect()
    })
}

/// Looks for the shortest way to a state of one model that is wrong. Returns how many states there are if nothing is.
///
/// # Errors
/// The way there, and what is wrong.
pub fn search(bounds: &Bounds) -> Result<usize, (Vec<Happening>, String)> {
    crate::search::shortest(
        &Waiting::new(bounds),
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

    fn successors(model: &Waiting, world: &World) -> Vec<Vec<u8>> {
        let next = model.next_states(world);
        let mut views: Vec<_> = next.into_iter().map(|next| next.view).collect();
        views.sort_unstable();
        views
    }

    #[test]
    fn worlds_that_are_taken_for_the_same_lead_to_the_same() {
        assert!(small().count() > 0);
        for bounds in small() {
            let model = Waiting::new(bounds);
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
