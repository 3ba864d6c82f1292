//! What the models of those who wait have in common: worlds within bounds, told apart by a view, and searched to the end
//! of every interleaving.
//!
//! A step is judged as it is taken; the first thing that is wrong ends the path. Of everything that any step has
//! shown, also one to a state that was known already, what must be seen is asked for at the end, and there must be
//! as many states and transitions as are pinned.

use std::fmt::{Debug, Write as _};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use latchd_harness::alphabet::ReplyKind;
use latchd_harness::lockstep::panic_words;
use stateright::{Checker, Model, Property};

use crate::search::{self, Compared, Difference};

/// The most clients of a model.
pub(crate) const CLIENTS_MAX: usize = 4;

/// What is wrong, if it is.
pub(crate) type Judged = Result<(), String>;

pub(crate) fn must(holds: bool, what: &str) -> Judged {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The bounds of a model, and how it is played within them.
pub(crate) trait Bounded: Copy + Debug + Send + Sync + 'static {
    /// Cores, clients and the time.
    type World: Clone + Debug + Send + Sync + 'static;
    /// What can happen.
    type Happening: Copy + Debug + Hash + Ord + Send + Sync + 'static;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// States and transitions, as of the last change of model or core on purpose.
    fn pinned(&self) -> (usize, usize);

    /// Nothing has happened yet.
    fn first(&self) -> Self::World;

    /// Everything that can happen to a world.
    fn happenings(&self, world: &Self::World, happenings: &mut Vec<Self::Happening>);

    /// Lets something happen, and judges it. A core that panics is a fault as well.
    ///
    /// # Errors
    /// What is wrong.
    fn happen(&self, world: &mut Self::World, happening: Self::Happening) -> Judged;

    /// What of a world can matter to what comes, the same for worlds that differ in names alone.
    fn view(&self, world: &Self::World) -> Vec<u8>;

    /// The same by whichever client.
    fn by_anybody(happening: Self::Happening) -> Self::Happening;

    /// What kind of reply the last step has brought, if somebody asked for something.
    fn answered(world: &Self::World) -> Option<ReplyKind>;

    /// What the last step has shown, a bit each.
    fn seen(world: &Self::World) -> u32;

    /// What must be seen, by its bit and its name.
    fn must_see(&self) -> Vec<(u32, String)>;
}

/// A world, by its view.
#[derive(Clone, Debug)]
pub(crate) struct State<W> {
    world: W,
    view: Vec<u8>,
    fault: Option<String>,
}

impl<W> PartialEq for State<W> {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view
    }
}

impl<W> Hash for State<W> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.view.hash(hasher);
    }
}

/// A model within its bounds.
#[derive(Clone, Debug)]
struct Frame<B> {
    bounds: B,
    /// What any step has shown.
    seen: Arc<AtomicU32>,
}

impl<B: Bounded> Frame<B> {
    fn new(bounds: &B) -> Self {
        Self {
            bounds: *bounds,
            seen: Arc::default(),
        }
    }

    fn state(&self, world: B::World, fault: Option<String>) -> State<B::World> {
        let mut view = self.bounds.view(&world);
        // What is wrong is no state that was known.
        view.push(fault.is_some().into());
        State { world, view, fault }
    }
}

impl<B: Bounded> Model for Frame<B> {
    type State = State<B::World>;
    type Action = B::Happening;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.state(self.bounds.first(), None)]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<B::Happening>) {
        if state.fault.is_none() {
            self.bounds.happenings(&state.world, actions);
        }
    }

    fn next_state(&self, state: &Self::State, happening: B::Happening) -> Option<Self::State> {
        let mut world = state.world.clone();
        let happens = || self.bounds.happen(&mut world, happening);
        let outcome = catch_unwind(AssertUnwindSafe(happens));
        let judged = outcome.unwrap_or_else(|panic| Err(panic_words(&*panic)));
        let seen = B::seen(&world);
        if seen & !self.seen.load(Ordering::Relaxed) != 0 {
            self.seen.fetch_or(seen, Ordering::Relaxed);
        }
        Some(self.state(world, judged.err()))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ALWAYS, |_, state: &State<B::World>| {
            state.fault.is_none()
        })]
    }
}

/// What must always hold.
const ALWAYS: &str = "every rule of waiting";

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

/// A model of those who wait, whatever they wait for.
pub trait Framed: Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Explores every state on so many threads, and checks that it is as many as are pinned.
    fn check(&self, threads: usize) -> Outcome;

    /// Looks for the shortest way to a state that is wrong, of at most so many steps. Returns how many states are so near
    /// if nothing is.
    ///
    /// # Errors
    /// The steps of the way there, and what is wrong.
    fn search(&self, steps_max: usize) -> Result<usize, (Vec<String>, String)>;

    /// Compares what the states lead to that are taken for the same, for so many steps at most.
    ///
    /// # Errors
    /// Two that do not lead to the same.
    fn twins(&self, steps_max: usize) -> Result<Compared, String>;
}

impl<B: Bounded> Framed for B {
    fn name(&self) -> &'static str {
        Bounded::name(self)
    }

    fn check(&self, threads: usize) -> Outcome {
        let frame = Frame::new(self);
        let seen = Arc::clone(&frame.seen);
        let start = Instant::now();
        let checker = frame.checker().threads(threads).spawn_bfs().join();
        let mut outcome = Outcome {
            states: checker.unique_state_count(),
            // The state it starts with is counted, and no transition leads there.
            transitions: checker.state_count() - 1,
            // stateright counts states on a way, not steps.
            depth: checker.max_depth() - 1,
            time: start.elapsed(),
            complaints: String::new(),
        };
        if let Some(path) = checker.discovery(ALWAYS) {
            let fault = path.last_state().fault.clone().unwrap_or_default();
            let way = path.into_actions();
            outcome.complain(Framed::name(self), &format!("{fault}, after {way:?}"));
        }
        let seen = seen.load(Ordering::Relaxed);
        for (bit, name) in self.must_see() {
            if seen & bit == 0 {
                outcome.complain(Framed::name(self), &format!("never seen: {name}"));
            }
        }
        let counts = (outcome.states, outcome.transitions);
        if outcome.complaints.is_empty() && counts != self.pinned() {
            let what = format!(
                "{counts:?} states and transitions, and pinned are {:?}: if the model or the core has \
                 changed on purpose, pin the new numbers",
                self.pinned()
            );
            outcome.complain(Framed::name(self), &what);
        }
        outcome
    }

    fn search(&self, steps_max: usize) -> Result<usize, (Vec<String>, String)> {
        search::shortest(
            &Frame::new(self),
            steps_max,
            |state| state.view.clone(),
            |state| state.fault.clone(),
        )
        .map_err(|(way, fault)| {
            let way = way.iter().map(|step| format!("{step:?}")).collect();
            (way, fault)
        })
    }

    fn twins(&self, steps_max: usize) -> Result<Compared, String> {
        let found = twins_by(self, <[u8]>::to_vec, steps_max);
        found.map_err(|difference| format!("{difference:#?}"))
    }
}

/// By what `view` leaves of the view.
fn twins_by<B: Bounded>(
    bounds: &B,
    view: impl Fn(&[u8]) -> Vec<u8>,
    steps_max: usize,
) -> Result<Compared, Difference<State<B::World>>> {
    let label = |happening: &B::Happening, next: &State<B::World>| {
        let answered = B::answered(&next.world);
        (B::by_anybody(*happening), answered, B::seen(&next.world))
    };
    search::twins(
        &Frame::new(bounds),
        |state| view(&state.view),
        label,
        steps_max,
    )
}

/// The first so many names of clients in every order (Heap's algorithm).
pub(crate) fn permute(
    names: &mut [u8; CLIENTS_MAX],
    count: usize,
    each: &mut impl FnMut([u8; CLIENTS_MAX]),
) {
    if count <= 1 {
        return each(*names);
    }
    for place in 0..count {
        permute(names, count - 1, each);
        let other = if count.is_multiple_of(2) { place } else { 0 };
        names.swap(other, count - 1);
    }
}

/// The least view over all orders of so many clients.
pub(crate) fn least_view(
    clients: usize,
    mut under: impl FnMut([u8; CLIENTS_MAX]) -> Vec<u8>,
) -> Vec<u8> {
    let mut least: Option<Vec<u8>> = None;
    let mut names = [0; CLIENTS_MAX];
    for (place, name) in (0..).zip(&mut names) {
        *name = place;
    }
    permute(&mut names, clients, &mut |names| {
        let view = under(names);
        if least.as_ref().is_none_or(|least| view < *least) {
            least = Some(view);
        }
    });
    least.expect("there is one order")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{framed, gets, waits};

    fn small<B: Bounded>(all: &'static [B]) -> impl Iterator<Item = &'static B> {
        all.iter().filter(|bounds| bounds.pinned().1 < 30_000)
    }

    /// Says how many there were.
    fn each_has_true_twins<B: Bounded>(all: &'static [B]) -> usize {
        let each = small(all).map(|bounds| {
            let compared = bounds.twins(usize::MAX);
            let is_good = compared.is_ok_and(|compared| compared.is_all && compared.pairs > 0);
            assert!(is_good, "{}", Framed::name(bounds));
        });
        each.count()
    }

    #[test]
    fn states_that_are_taken_for_the_same_lead_to_the_same() {
        assert!(each_has_true_twins(waits::ALL) > 0);
        assert!(each_has_true_twins(gets::ALL) > 0);
    }

    #[test]
    fn a_look_that_is_cut_short_says_so() {
        let model = framed().next().expect("there are some");
        let compared = model.twins(100).expect("nothing is wrong");
        assert!(!compared.is_all && compared.pairs > 0);
    }

    /// Whether it is found that a view says two numbers alike, of everything that it says.
    fn is_found_blind<B: Bounded>(bounds: &B, one: u8, other: u8) -> bool {
        let blind = |view: &[u8]| {
            let says = |byte: &u8| if *byte == one { other } else { *byte };
            view.iter().map(says).collect()
        };
        twins_by(bounds, blind, 200_000).is_err()
    }

    /// Much is said twice, by what clients know and by what is in the core; of this nothing is said again.
    #[test]
    fn a_view_that_says_too_little_is_found() {
        // A step that is left, two, or three.
        for (one, other) in [(10, 20), (20, 30)] {
            assert!(is_found_blind(&waits::ALL[0], one, other), "{one} {other}");
            assert!(is_found_blind(&gets::ALL[0], one, other), "{one} {other}");
        }
        // Among how many, and by whom.
        assert!(is_found_blind(&waits::ALL[0], 1, 2));
        // Whether something is so.
        assert!(is_found_blind(&gets::ALL[0], 0, 1));
    }

    #[test]
    fn in_the_small_ones_everything_holds_and_everything_is_seen() {
        let complaints = |outcome: Outcome| assert_eq!(outcome.complaints, "");
        small(waits::ALL).for_each(|bounds| complaints(bounds.check(2)));
        small(gets::ALL).for_each(|bounds| complaints(bounds.check(2)));
    }
}
