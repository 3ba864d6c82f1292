//! Searches: the shortest way to a fault, and pairs of states with the same view.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

/// Looks for the shortest way to a fault, of at most `steps_max` steps: layer by layer, with `key`
/// to tell states apart. Returns how many states are so near if there is none.
pub(crate) fn shortest<M: Model, K: Eq + Hash, F>(
    model: &M,
    steps_max: usize,
    key: impl Fn(&M::State) -> K,
    fault: impl Fn(&M::State) -> Option<F>,
) -> Result<usize, (Vec<M::Action>, F)>
where
    M::Action: Copy,
{
    // How each state was reached first: the state before, and the step.
    let mut reached: Vec<(usize, Option<M::Action>)> = Vec::new();
    let mut known: HashSet<K> = HashSet::new();
    let mut layer: Vec<(usize, M::State)> = Vec::new();
    for state in model.init_states() {
        known.insert(key(&state));
        reached.push((0, None));
        layer.push((0, state));
    }
    let mut actions = Vec::new();
    let mut steps = 0;
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for (number, state) in layer {
            if let Some(fault) = fault(&state) {
                return Err((way_to(&reached, number), fault));
            }
            if steps == steps_max {
                continue;
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
        steps += 1;
    }
    Ok(reached.len())
}

/// The start of the random order in which [`twins`] expands states.
const SEED: u64 = 1;

/// The extent of a search for twins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Compared {
    /// Pairs of states with the same view.
    pub pairs: usize,
    /// Whether these are all pairs.
    pub is_all: bool,
}

/// Two states with the same view, and different successors.
pub(crate) type Difference<S> = Box<(S, S)>;

/// Takes every pair of states with the same view, and compares their successors. Every step of one
/// must have its like at the other, with the same event and reply (`label`), and lead to the same
/// state. Ends after `steps_max` steps, if it has not compared all pairs by then; states are
/// expanded in no order, so the compared ones are from everywhere.
///
/// This tests the canonical view itself (V2, V3), on which every proof here rests.
///
/// # Errors
/// A pair that does not lead to the same.
pub(crate) fn twins<M: Model, K: Clone + Eq + Hash + Ord, L: Hash + Ord>(
    model: &M,
    view: impl Fn(&M::State) -> K,
    label: impl Fn(&M::Action, &M::State) -> L,
    steps_max: usize,
) -> Result<Compared, Difference<M::State>>
where
    M::State: Clone,
    M::Action: Copy,
{
    let steps = Cell::new(0);
    let next_of = |state: &M::State| {
        let mut actions = Vec::new();
        model.actions(state, &mut actions);
        steps.set(steps.get() + actions.len());
        let next = actions.into_iter().filter_map(|action| {
            let next = model.next_state(state, action)?;
            Some((label(&action, &next), next))
        });
        next.collect::<Vec<_>>()
    };
    let outlook = |next: Vec<(L, M::State)>| {
        let mut outlook: Vec<_> = next
            .iter()
            .map(|(label, next)| (label, view(next)))
            .collect();
        outlook.sort_unstable();
        fingerprint(&outlook)
    };
    let mut states: Vec<(M::State, Option<u64>)> = Vec::new();
    let mut known: HashMap<K, usize> = HashMap::new();
    let mut open = Vec::new();
    for state in model.init_states() {
        known.insert(view(&state), states.len());
        open.push(states.len());
        states.push((state, None));
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut pairs = 0;
    while !open.is_empty() {
        let number = open.swap_remove(random.usize(..open.len()));
        let next = next_of(&states[number].0);
        for (_, next) in &next {
            let Some(&first) = known.get(&view(next)) else {
                known.insert(view(next), states.len());
                open.push(states.len());
                states.push((next.clone(), None));
                continue;
            };
            let (state, outlook_of_first) = &mut states[first];
            let outlook_of_first = *outlook_of_first.get_or_insert_with(|| outlook(next_of(state)));
            if outlook(next_of(next)) != outlook_of_first {
                return Err(Box::new((states[first].0.clone(), next.clone())));
            }
            pairs += 1;
            if steps.get() >= steps_max {
                let is_all = false;
                return Ok(Compared { pairs, is_all });
            }
        }
        states[number].1.get_or_insert_with(|| outlook(next));
    }
    let is_all = true;
    Ok(Compared { pairs, is_all })
}

fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
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
