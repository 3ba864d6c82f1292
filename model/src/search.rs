//! Searches: all states of a model, and the shortest way to one that is wrong.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, Model};

use crate::action::Action;
use crate::canonical::Canonical;
use crate::explore::Explored;
use crate::fault::Fault;
use crate::setup::Counts;
use crate::world::World;

/// What a search over all states has come across.
#[derive(Clone, Debug)]
pub struct Found {
    /// How much there was.
    pub counts: Counts,
    /// The longest way that had to be gone.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// Whether something is wrong.
    pub is_wrong: bool,
}

/// Explores every state with stateright, on so many threads, and shows how far it has come.
pub fn exhaust(model: &Explored, threads: usize, mut progress: impl FnMut(usize)) -> Found {
    let start = Instant::now();
    let mut checker = model.clone().checker().threads(threads).spawn_bfs();
    let workers = checker.handles();
    while !workers.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(50));
        progress(checker.unique_state_count());
    }
    for worker in workers {
        worker
            .join()
            .expect("what panics in a core is caught in the world");
    }
    let counts = Counts {
        states: checker.unique_state_count(),
        // The state it starts with is counted, and no transition leads there.
        transitions: checker.state_count() - 1,
    };
    let discoveries = checker.discoveries();
    let always = crate::invariants::Invariant::ALL;
    let is_wrong = always
        .iter()
        .any(|one| discoveries.contains_key(one.title()));
    // stateright counts states on a way, not steps.
    Found {
        counts,
        depth: checker.max_depth() - 1,
        time: start.elapsed(),
        is_wrong,
    }
}

/// A way to a state that is wrong. There is no shorter one.
#[derive(Clone, Debug)]
pub struct Offence {
    /// The steps.
    pub steps: Vec<Action>,
    /// What is wrong at their end.
    pub fault: Fault,
}

/// Looks for the shortest way to a state that is wrong among at most `states_max` states. Returns how
/// many there are if nothing is wrong.
///
/// # Errors
/// The shortest way to a state that is wrong.
pub fn shortest_offence(model: &Explored, states_max: usize) -> Result<usize, Offence> {
    let fault = |world: &World| model.fault(world);
    shortest(model, states_max, |world| *world.canonical(), fault)
        .map_err(|(steps, fault)| Offence { steps, fault })
}

/// As [`shortest_offence`], in any model: layer by layer, states told apart by `key`.
pub(crate) fn shortest<M: Model, K: Eq + Hash, F>(
    model: &M,
    states_max: usize,
    key: impl Fn(&M::State) -> K,
    fault: impl Fn(&M::State) -> Option<F>,
) -> Result<usize, (Vec<M::Action>, F)>
where
    M::Action: Copy,
{
    // How each state was reached first: from which one, and by which step.
    let mut reached: Vec<(usize, Option<M::Action>)> = Vec::new();
    let mut known: HashSet<K> = HashSet::new();
    let mut layer: Vec<(usize, M::State)> = Vec::new();
    for state in model.init_states() {
        known.insert(key(&state));
        reached.push((0, None));
        layer.push((0, state));
    }
    let mut actions = Vec::new();
    while !layer.is_empty() && reached.len() < states_max {
        let mut next_layer = Vec::new();
        for (number, state) in layer {
            if let Some(fault) = fault(&state) {
                return Err((way_to(&reached, number), fault));
            }
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&state, action) else {
                    continue;
                };
                if known.insert(key(&next)) {
                    reached.push((number, Some(action)));
                    next_layer.push((reached.len() - 1, next));
                }
            }
        }
        layer = next_layer;
    }
    Ok(reached.len())
}

/// Two worlds with the same canonical view, and a difference between what they lead to.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The world that was there first.
    pub first: World,
    /// The world that was taken for the same.
    pub second: World,
}

/// Takes every pair of worlds that the search takes for the same, and compares what they lead to:
/// the successors of both must be the same states. Returns how many pairs there were.
///
/// This puts the canonical view itself to the test (V2, V3), which every proof here rests on.
///
/// # Errors
/// A pair that leads to different states.
pub fn twins(model: &Explored) -> Result<usize, Box<Difference>> {
    let mut pairs = 0;
    let mut known: HashMap<Canonical, World> = HashMap::new();
    let mut open = model.init_states();
    known.extend(open.iter().map(|world| (*world.canonical(), world.clone())));
    let mut actions = Vec::new();
    while let Some(world) = open.pop() {
        model.actions(&world, &mut actions);
        for action in actions.drain(..) {
            let Some(next) = model.next_state(&world, action) else {
                continue;
            };
            match known.get(next.canonical()) {
                None => {
                    known.insert(*next.canonical(), next.clone());
                    open.push(next);
                }
                Some(first) => {
                    pairs += 1;
                    if successors(model, first) != successors(model, &next) {
                        return Err(Box::new(Difference {
                            first: first.clone(),
                            second: next,
                        }));
                    }
                }
            }
        }
    }
    Ok(pairs)
}

fn successors(model: &Explored, world: &World) -> Vec<Canonical> {
    let mut all: Vec<_> = model
        .next_states(world)
        .iter()
        .map(|next| *next.canonical())
        .collect();
    all.sort_unstable();
    all
}

fn way_to<A: Copy>(reached: &[(usize, Option<A>)], mut number: usize) -> Vec<A> {
    let mut steps = Vec::new();
    while let (from, Some(action)) = reached[number] {
        steps.push(action);
        number = from;
    }
    steps.reverse();
    steps
}
