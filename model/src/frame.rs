//! One frame for all models: worlds within bounds that a view tells apart, and a search of every
//! interleaving.
//!
//! Each step is judged when it is taken, and the first fault ends the path. A check collects the
//! witnesses of every step, also of a step to a known state. It fails for a fault, for a witness
//! that was never seen, and for a number of states or transitions that is not the pinned one.

use std::fmt::{Debug, Write as _};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latchd_harness::lockstep::panic_words;
use stateright::{Checker, Model, Property};

use crate::search::{self, Compared, Difference};

/// The most clients of a model.
pub const CLIENTS_MAX: usize = 4;

/// The broken rule and the observation, if a rule is broken.
pub(crate) type Judged = Result<(), String>;

pub(crate) fn must(holds: bool, what: &str) -> Judged {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The id of the rule that a fault names: the message of a core's own check has more words before
/// it. `M` if it names none.
#[must_use]
pub fn rule(fault: &str) -> &str {
    let words = fault.split_whitespace();
    let mut rules = words.filter_map(|word| word.strip_suffix(':'));
    rules.find(|rule| rule.len() <= 3).unwrap_or("M")
}

/// A set of witnesses, a bit each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Shown(pub(crate) u128);

impl Shown {
    /// Adds a witness, or all of another set.
    pub(crate) fn add(&mut self, more: impl Into<Self>) {
        self.0 |= more.into().0;
    }

    pub(crate) const fn has_all(self, of: Self) -> bool {
        self.0 & of.0 == of.0
    }
}

/// Declares the witnesses of a family of models: facts that some step must show, as otherwise a
/// rule may be about nothing. Each has a name, a rule, words, and the bounds under which it is due.
macro_rules! witnesses {
    ($Rule:ty, $Bounds:ty; $($name:ident of $rule:expr, $words:literal, $due:expr;)*) => {
        /// A fact that some step must show.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Witness {
            $(#[doc = $words] $name,)*
        }

        const _: () = assert!(Witness::ALL.len() <= 128, "a set has a bit for each");

        impl From<Witness> for $crate::frame::Shown {
            fn from(witness: Witness) -> Self {
                Self(1 << witness as u8)
            }
        }

        impl Witness {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The fact.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// The rule that would be about nothing without it.
            #[must_use]
            pub const fn rule(self) -> $Rule {
                match self { $(Self::$name => $rule,)* }
            }

            /// Whether the bounds make it possible. Then some step must show it.
            #[must_use]
            pub fn is_due(self, bounds: &$Bounds) -> bool {
                let due: fn(&$Bounds) -> bool = match self { $(Self::$name => $due,)* };
                due(bounds)
            }

            /// Every witness that is due, with its message if it was never seen.
            pub(crate) fn due(bounds: &$Bounds) -> Vec<($crate::frame::Shown, String)> {
                let due = Self::ALL.iter().filter(|one| one.is_due(bounds));
                due.map(|one| ((*one).into(), format!("{}: {}", one.rule(), one.words()))).collect()
            }
        }
    };
}
pub(crate) use witnesses;

/// The name and the description of a model.
pub trait Named {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// States and transitions, as of the last intended change of model or core.
    fn pinned(&self) -> (usize, usize);

    /// The bounds in a few words.
    fn about(&self) -> String;

    /// The required witnesses, in words.
    fn must_see(&self) -> Vec<(Shown, String)>;
}

/// Names bounds by their fields, and by their witnesses.
macro_rules! named {
    ($Bounds:ty, $about:expr) => {
        impl $crate::frame::Named for $Bounds {
            fn name(&self) -> &'static str {
                self.name
            }

            fn pinned(&self) -> (usize, usize) {
                self.pinned
            }

            fn about(&self) -> String {
                let about: fn(&Self) -> String = $about;
                about(self)
            }

            fn must_see(&self) -> Vec<($crate::frame::Shown, String)> {
                Witness::due(self)
            }
        }
    };
}
pub(crate) use named;

/// The bounds of a model, and how it is played within them.
pub(crate) trait Bounded: Named + Clone + Debug + Send + Sync + 'static {
    /// Cores, clients and the time.
    type World: Clone + Debug + Send + Sync + 'static;
    /// One step.
    type Happening: Copy + Debug + Hash + PartialEq + Send + Sync + 'static;
    /// The part of a world that matters to later steps.
    type View: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static;
    /// A step and its reply, the same for worlds that differ in names alone.
    type Label: Hash + Ord;

    /// The world before the first step.
    fn first(&self) -> Self::World;

    /// Every step that a world can take.
    fn happenings(&self, world: &Self::World, happenings: &mut Vec<Self::Happening>);

    /// Takes a step and judges it. A panic of a core is a fault as well.
    ///
    /// # Errors
    /// The rule that is broken.
    fn happen(&self, world: &mut Self::World, happening: Self::Happening) -> Judged;

    /// Judges a new state by its possible futures. Returns their witnesses.
    ///
    /// # Errors
    /// The rule that is broken.
    fn probe(&self, _: &Self::World) -> Result<Shown, String> {
        Ok(Shown::default())
    }

    /// The view, the same for worlds that differ in names alone.
    fn view(&self, world: &Self::World) -> Self::View;

    /// A step and the reply that it has brought.
    fn label(happening: &Self::Happening, next: &Self::World) -> Self::Label;

    /// The witnesses of the last step.
    fn seen(world: &Self::World) -> Shown;

    /// The shortest way to a fault, for a reader.
    fn transcript(&self, way: &[Self::Happening], fault: &str) -> String {
        let steps = way.iter().map(|step| format!("# {step:?}\n"));
        let fault = fault.lines().map(|line| format!("# {line}\n"));
        steps.chain(fault).collect()
    }
}

/// A world, by its view.
#[derive(Clone, Debug)]
pub(crate) struct State<B: Bounded> {
    pub(crate) world: B::World,
    view: (B::View, bool),
    pub(crate) fault: Option<String>,
}

impl<B: Bounded> PartialEq for State<B> {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view
    }
}

impl<B: Bounded> Hash for State<B> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.view.hash(hasher);
    }
}

/// A model within its bounds, as stateright explores it.
#[derive(Clone, Debug)]
pub(crate) struct Frame<B> {
    bounds: B,
    /// The witnesses of all steps, the lower half first.
    seen: Arc<[AtomicU64; 2]>,
}

impl<B: Bounded> Frame<B> {
    pub(crate) fn new(bounds: &B) -> Self {
        Self {
            bounds: bounds.clone(),
            seen: Arc::default(),
        }
    }

    fn state(&self, world: B::World, fault: Option<String>) -> State<B> {
        // A fault is a state of its own.
        let view = (self.bounds.view(&world), fault.is_some());
        State { world, view, fault }
    }

    fn note(&self, shown: Shown) {
        for (half, seen) in self.seen.iter().enumerate() {
            // The cast drops the other half.
            #[allow(clippy::cast_possible_truncation)]
            let shown = (shown.0 >> (64 * half)) as u64;
            if shown & !seen.load(Ordering::Relaxed) != 0 {
                seen.fetch_or(shown, Ordering::Relaxed);
            }
        }
    }

    fn seen(&self) -> Shown {
        let [low, high] = [0, 1].map(|half| u128::from(self.seen[half].load(Ordering::Relaxed)));
        Shown(high << 64 | low)
    }

    /// The rule that the last step has broken, or that its possible futures break.
    fn fault(&self, state: &State<B>) -> Option<String> {
        if state.fault.is_some() {
            return state.fault.clone();
        }
        self.bounds
            .probe(&state.world)
            .map(|seen| self.note(seen))
            .err()
    }
}

impl<B: Bounded> Model for Frame<B> {
    type State = State<B>;
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
        self.note(B::seen(&world));
        Some(self.state(world, judged.err()))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = |frame: &Self, state: &State<B>| frame.fault(state).is_none();
        vec![Property::always(ALWAYS, holds)]
    }
}

/// The one property of a model.
const ALWAYS: &str = "no rule is broken";

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// States that differ.
    pub states: usize,
    /// Steps taken.
    pub transitions: usize,
    /// The length of the longest way.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// How many witnesses were seen, and how many are due.
    pub witnesses: (usize, usize),
    /// Whether a rule is broken.
    pub is_wrong: bool,
    /// The complaints, a line each; empty if all is well.
    pub complaints: String,
}

/// The shortest way to a fault.
#[derive(Clone, Debug)]
pub struct Offence {
    /// How many steps.
    pub steps: usize,
    /// The broken rule, and the observation.
    pub fault: String,
    /// The way, for a reader.
    pub transcript: String,
}

/// A model of any family.
pub trait Framed: Named + Sync {
    /// Explores every state on `threads` threads, and reports the number of states from time to
    /// time.
    fn check(&self, threads: usize, progress: &dyn Fn(usize)) -> Outcome;

    /// Looks for the shortest way to a fault, of at most `steps_max` steps. Returns how many states
    /// are so near if there is none.
    ///
    /// # Errors
    /// The way there.
    fn search(&self, steps_max: usize) -> Result<usize, Offence>;

    /// Compares the successors of states with the same view, for at most `steps_max` steps.
    ///
    /// # Errors
    /// Two that do not lead to the same.
    fn twins(&self, steps_max: usize) -> Result<Compared, String>;

    /// Serves stateright's Explorer on this port of the loopback, until the process ends.
    fn explore(&self, port: u16);
}

impl<B: Bounded> Framed for B {
    fn check(&self, threads: usize, progress: &dyn Fn(usize)) -> Outcome {
        let frame = Frame::new(self);
        let start = Instant::now();
        let mut checker = frame.clone().checker().threads(threads).spawn_bfs();
        let workers = checker.handles();
        while !workers.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(50));
            progress(checker.unique_state_count());
        }
        for worker in workers {
            worker.join().expect("a panic of a core is caught");
        }
        let states = checker.unique_state_count();
        // stateright also counts the first state, to which no transition leads; the length of a way
        // is the number of its states.
        let (transitions, depth) = (checker.state_count() - 1, checker.max_depth() - 1);
        let is_wrong = checker.discovery(ALWAYS).is_some();
        let (due, seen) = (self.must_see(), frame.seen());
        let missing = due.iter().filter(|(one, _)| !seen.has_all(*one));
        let mut complaints = String::new();
        let mut complain = |what: &str| {
            let _ = writeln!(complaints, "  {}: {what}", self.name());
        };
        if is_wrong {
            complain("a rule is broken");
        }
        for (_, words) in missing.clone() {
            complain(&format!(
                "never seen, so the rule may be about nothing: {words}"
            ));
        }
        let (counts, pinned) = ((states, transitions), self.pinned());
        if !is_wrong && counts != pinned {
            complain(&format!(
                "{counts:?} states and transitions, and pinned are {pinned:?}: if the model or the core has \
                 changed on purpose, pin the new numbers"
            ));
        }
        Outcome {
            states,
            transitions,
            depth,
            time: start.elapsed(),
            witnesses: (due.len() - missing.count(), due.len()),
            is_wrong,
            complaints,
        }
    }

    fn search(&self, steps_max: usize) -> Result<usize, Offence> {
        let frame = Frame::new(self);
        let view = |state: &State<B>| state.view.clone();
        let found = search::shortest(&frame, steps_max, view, |state| frame.fault(state));
        found.map_err(|(way, fault)| Offence {
            steps: way.len(),
            transcript: self.transcript(&way, &fault),
            fault,
        })
    }

    fn twins(&self, steps_max: usize) -> Result<Compared, String> {
        let found = twins_by(self, Clone::clone, steps_max);
        found.map_err(|difference| format!("{difference:#?}"))
    }

    fn explore(&self, port: u16) {
        Frame::new(self).checker().serve(("127.0.0.1", port));
    }
}

/// As [`Framed::twins`], with the part of the view that `view` leaves.
fn twins_by<B: Bounded>(
    bounds: &B,
    view: impl Fn(&B::View) -> B::View,
    steps_max: usize,
) -> Result<Compared, Difference<State<B>>> {
    let label = |happening: &B::Happening, next: &State<B>| B::label(happening, &next.world);
    search::twins(
        &Frame::new(bounds),
        |state| (view(&state.view.0), state.view.1),
        label,
        steps_max,
    )
}

/// The least view over all orders of the clients. `fixed` is the part of the view that comes first,
/// in the order of the names: only the orders that sort it can be the least.
pub(crate) fn least_view<F: Ord>(
    fixed: &[F],
    mut under: impl FnMut([u8; CLIENTS_MAX]) -> Vec<u8>,
) -> Vec<u8> {
    let mut least: Option<Vec<u8>> = None;
    let mut clients: [usize; CLIENTS_MAX] = [0, 1, 2, 3];
    permute(&mut clients, fixed.len(), &mut |clients| {
        if !clients[..fixed.len()].is_sorted_by_key(|client| &fixed[*client]) {
            return;
        }
        let mut names = [0; CLIENTS_MAX];
        for (name, client) in (0..).zip(clients) {
            names[client] = name;
        }
        let view = under(names);
        if least.as_ref().is_none_or(|least| view < *least) {
            least = Some(view);
        }
    });
    least.expect("one order is sorted")
}

/// The first clients in every order (Heap's algorithm).
fn permute(
    clients: &mut [usize; CLIENTS_MAX],
    count: usize,
    each: &mut impl FnMut([usize; CLIENTS_MAX]),
) {
    if count <= 1 {
        return each(*clients);
    }
    for place in 0..count {
        permute(clients, count - 1, each);
        let other = if count.is_multiple_of(2) { place } else { 0 };
        clients.swap(other, count - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;
    use crate::waits::{self, Bounds};
    use crate::{all, models};

    /// The others run by `cargo run --release -p latchd-model`.
    fn small() -> impl Iterator<Item = &'static dyn Framed> {
        all().filter(|model| model.pinned().1 < 30_000)
    }

    fn complaints(model: &dyn Framed) -> String {
        model.check(2, &|_| {}).complaints
    }

    #[test]
    fn small_models_hold_and_show_everything() {
        assert!(small().count() >= 8);
        small().for_each(|model| assert_eq!(complaints(model), ""));
    }

    #[test]
    fn another_count_and_an_unseen_witness_fail() {
        let setup = models::ALL.first().expect("there are some");
        let (states, transitions) = setup.pinned;
        let pinned = (states, transitions + 1);
        assert!(
            complaints(&Setup {
                pinned,
                ..setup.clone()
            })
            .contains("pinned")
        );
        let words = "mg w";
        assert!(
            complaints(&Bounds {
                words,
                ..waits::ALL[0]
            })
            .contains("never seen")
        );
    }

    #[test]
    fn two_searches_find_the_same_states() {
        for model in small() {
            let found = model.search(usize::MAX);
            let found = found.map_err(|offence| offence.fault);
            assert_eq!(found, Ok(model.pinned().0), "{}", model.name());
        }
    }

    #[test]
    fn states_with_one_view_lead_to_the_same() {
        // Each pair of states takes as many transitions.
        let smallest = || small().filter(|model| model.pinned().1 < 12_000);
        assert!(smallest().count() >= 3);
        for model in smallest() {
            let compared = model.twins(usize::MAX);
            let is_good = compared.is_ok_and(|compared| compared.is_all && compared.pairs > 0);
            assert!(is_good, "{}", model.name());
        }
    }

    #[test]
    fn a_look_that_is_cut_short_says_so() {
        let model = small().next().expect("there are some");
        let compared = model.twins(100).expect("nothing is wrong");
        assert!(!compared.is_all && compared.pairs > 0);
    }

    /// Whether it is found that a view says two numbers alike, of everything that it says.
    fn is_found_blind(bounds: &Bounds, one: u8, other: u8) -> bool {
        let blind = |view: &Vec<u8>| {
            let says = |byte: &u8| if *byte == one { other } else { *byte };
            view.iter().map(says).collect()
        };
        twins_by(bounds, blind, 200_000).is_err()
    }

    /// Much is known twice, to the clients and to the core; the tests leave out only facts that are
    /// known once.
    #[test]
    fn a_view_that_says_too_little_is_found() {
        let named = |name| waits::ALL.iter().find(|bounds| bounds.name == name);
        let locks = named("waits-3x1").expect("it is one");
        let gets = named("gets-2x1").expect("it is one");
        // Steps left: one, two, or three.
        for (one, other) in [(10, 20), (20, 30)] {
            assert!(is_found_blind(locks, one, other), "{one} {other}");
            assert!(is_found_blind(gets, one, other), "{one} {other}");
        }
        // Which word a client repeats after the notice that its wait is over.
        assert!(is_found_blind(locks, 2, 3));
        // A flag.
        assert!(is_found_blind(gets, 0, 1));
    }

    #[test]
    fn names_tell_the_models_apart() {
        let mut names: Vec<_> = all().map(Named::name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
    }
}
