//! `latchd-model`: checks the models and shows them.

use std::io::{IsTerminal, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use clap::{Parser, Subcommand};
use latchd_harness::transcript::parse::parse;
use latchd_model::report::{self, Outcome};
use latchd_model::search::Compared;
use latchd_model::{Explored, Setup, all, framed, lease, pairs, search};
use mimalloc::MiMalloc;
use stateright::Model;

/// A state is a few dozen small allocations, which one thread makes and another gives back: the system's allocator takes
/// a lock for each.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Every interleaving of locks and wins, within bounds, on the real core of latchd.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Explores every state of every model, and says what does not hold.
    Check {
        /// Only the models whose name begins with this.
        name: Option<String>,
        /// How many threads search.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Where to put the transcript of what is wrong.
        #[arg(long, default_value = "target/model")]
        save: PathBuf,
    },
    /// Looks for the shortest way to a state of one model that is wrong, and says it: how many steps
    /// it has, what it breaks, and the transcript. Fails if there is one.
    Search {
        /// Which model.
        name: String,
        /// How many steps the way may have at most.
        #[arg(long)]
        steps: Option<usize>,
    },
    /// Says what each model is about: its alphabet, what must always hold, and what must be seen.
    List {
        /// Only the models whose name begins with this.
        name: Option<String>,
    },
    /// Puts the views to the test by which states are told apart: of two that are taken for the same each must
    /// have the like of every step of the other, told by what is done, answered and shown, and to the same state.
    View {
        /// Only the models whose name begins with this.
        name: Option<String>,
        /// How many models are looked at at a time.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// How many steps to take in each model at most; without it all, which takes hours in the largest ones.
        #[arg(long)]
        steps: Option<usize>,
    },
    /// Explores every state of the leases: two clients of the library against the core, over a
    /// network and by clocks that do their worst. Then falls into the traps of the usual recipes.
    Lease {
        /// How many threads search.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Print the shortest way into each trap.
        #[arg(long)]
        show: bool,
        /// Only one of them.
        #[arg(long)]
        name: Option<String>,
        /// Seconds to go, instead of what is pinned.
        #[arg(long)]
        steps: Option<u64>,
        /// Whether the watchdog renews, instead of what is pinned.
        #[arg(long)]
        renews: Option<bool>,
    },
    /// Explores every state of the models of locks that are waited for, and of gets that wait.
    Waits {
        /// Only the models whose name begins with this.
        name: Option<String>,
        /// How many threads search.
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Serves stateright's Explorer for one model, on loopback.
    Explore {
        /// Which model.
        #[arg(default_value = "locks-2x1")]
        name: String,
        /// On which port.
        #[arg(long, default_value_t = 3000)]
        port: u16,
    },
}

fn main() -> ExitCode {
    // What panics in a core is caught and told as what it is: an invariant that does not hold.
    std::panic::set_hook(Box::new(|_| {}));
    let is_good = match Arguments::parse().command {
        Task::Check {
            name,
            threads,
            save,
        } => check(&chosen(name.as_deref()), threads, &save),
        Task::Search { name, steps } => search(&name, steps.unwrap_or(usize::MAX)),
        Task::List { name } => {
            for setup in chosen(name.as_deref()) {
                println!("{}", report::details(setup));
            }
            true
        }
        Task::View {
            name,
            threads,
            steps,
        } => view(
            name.as_deref().unwrap_or_default(),
            threads,
            steps.unwrap_or(usize::MAX),
        ),
        Task::Lease {
            threads,
            show,
            name,
            steps,
            renews,
        } => leases(threads, show, name.as_deref(), steps, renews),
        Task::Waits { name, threads } => waits(name.as_deref().unwrap_or_default(), threads),
        Task::Explore { name, port } => explore(&name, port),
    };
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn chosen(name: Option<&str>) -> Vec<&'static Setup> {
    let name = name.unwrap_or_default();
    let chosen: Vec<_> = all().filter(|setup| setup.name.starts_with(name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all().map(|setup| setup.name).collect();
        eprintln!("there is no model {name}: choose from {}", names.join(", "));
        std::process::exit(2);
    }
    chosen
}

fn check(setups: &[&'static Setup], threads: usize, save: &Path) -> bool {
    println!("{}", report::head());
    let mut complaints = String::new();
    for setup in setups {
        let model = Explored::new((*setup).clone());
        let found = search::exhaust(&model, threads, |states| {
            if stderr().is_terminal() {
                eprint!("\r{}: {states} states … ", setup.name);
                // What is shown on the way is not worth failing for.
                let _ = stderr().flush();
            }
        });
        if stderr().is_terminal() {
            eprint!("\r{:40}\r", "");
        }
        let outcome = Outcome {
            found,
            missing: model.missing(),
        };
        println!("{}", report::line(setup, &outcome));
        complaints.push_str(&report::complaints(setup, &outcome));
        if outcome.found.is_wrong
            && let Err(offence) = search::shortest_offence(&model, usize::MAX)
        {
            let text = report::offence(&model, &offence);
            let path = save.join(format!("{}.txt", setup.name));
            let saved = std::fs::create_dir_all(save).and_then(|()| std::fs::write(&path, &text));
            println!("\n{text}");
            match saved {
                Ok(()) => println!("saved as {}\n", path.display()),
                Err(error) => println!("not saved as {}: {error}\n", path.display()),
            }
        }
    }
    // Only all models together ask for everything that can be answered.
    if setups.len() == all().count() {
        println!("\n{}", pairs::table());
        complaints.push_str(&pairs::complaints());
    }
    if complaints.is_empty() {
        println!(
            "\n{} models, everything holds and everything was seen",
            setups.len()
        );
    } else {
        println!("\n{complaints}");
    }
    complaints.is_empty()
}

/// How it is said is what `model/mutants/src/layer.rs` reads.
fn search(name: &str, steps_max: usize) -> bool {
    if let Some(model) = framed().find(|model| model.name() == name) {
        return show_way(name, model.search(steps_max));
    }
    let Some(setup) = all().find(|setup| setup.name == name) else {
        eprintln!("there is no model {name}");
        std::process::exit(2);
    };
    let model = Explored::new(setup.clone());
    match search::shortest_offence(&model, steps_max) {
        Ok(states) => {
            println!("{name}: nothing is wrong in {states} states");
            true
        }
        Err(offence) => {
            let (steps, invariant) = (offence.steps.len(), offence.fault.invariant);
            let text = report::offence(&model, &offence);
            // What is no transcript is of no use to whoever wants to see it again.
            if let Err(mistake) = parse(name, &text) {
                eprintln!("the way there is no transcript: {mistake}\n{text}");
                std::process::exit(2);
            }
            println!("{name}: {steps} steps break {invariant}\n{text}");
            false
        }
    }
}

/// What a search of those who wait has come to.
fn show_way(name: &str, found: Result<usize, (Vec<String>, String)>) -> bool {
    match found {
        Ok(states) => {
            println!("{name}: nothing is wrong in {states} states");
            true
        }
        Err((way, fault)) => {
            // What a core's own check says has more words before the rule.
            let words = fault.split_whitespace();
            let mut rules = words.filter_map(|word| word.strip_suffix(':'));
            let rule = rules.find(|rule| rule.len() <= 3).unwrap_or("M");
            println!("{name}: {} steps break {rule}", way.len());
            for step in way {
                println!("# {step}");
            }
            println!("# {fault}");
            false
        }
    }
}

fn waits(name: &str, threads: usize) -> bool {
    let mut complaints = String::new();
    let mut models = 0;
    println!(
        "{:20} {:>9} {:>12} {:>6} {:>8}",
        "model", "states", "transitions", "depth", "seconds"
    );
    for model in framed().filter(|model| model.name().starts_with(name)) {
        let outcome = model.check(threads);
        println!(
            "{:20} {:>9} {:>12} {:>6} {:>8.1}",
            model.name(),
            outcome.states,
            outcome.transitions,
            outcome.depth,
            outcome.time.as_secs_f64()
        );
        complaints.push_str(&outcome.complaints);
        models += 1;
    }
    if complaints.is_empty() {
        println!("\n{models} models, everything holds and everything was seen");
    } else {
        println!("\n{complaints}");
    }
    complaints.is_empty() && models > 0
}

fn view(name: &str, threads: usize, steps_max: usize) -> bool {
    type Look<'a> = Box<dyn FnOnce() -> Result<Compared, String> + Send + 'a>;
    let of_setup = all().map(|setup| {
        let look = move || {
            let model = Explored::new(setup.clone());
            search::twins_of(&model, steps_max).map_err(|twins| format!("{twins:#?}"))
        };
        (setup.name, Box::new(look) as Look<'_>)
    });
    let of_framed = framed().map(|model| {
        let look = move || model.twins(steps_max);
        (model.name(), Box::new(look) as Look<'_>)
    });
    let looks = of_setup.chain(of_framed);
    let looks: Vec<_> = looks.filter(|(of, _)| of.starts_with(name)).collect();
    let models = looks.len();
    let looks = Mutex::new(looks.into_iter());
    let (told, tells) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (looks, told) = (&looks, told.clone());
            scope.spawn(move || {
                let next = || looks.lock().expect("nobody panics with it").next();
                while let Some((of, look)) = next() {
                    let began = Instant::now();
                    let found = look();
                    told.send((of, found, began.elapsed().as_secs_f64()))
                        .expect("somebody listens");
                }
            });
        }
        drop(told);
        println!(
            "{:20} {:>9} {:>5} {:>8}",
            "model", "pairs", "all", "seconds"
        );
        let mut is_good = models > 0;
        for (of, found, seconds) in tells {
            match found {
                Ok(Compared { pairs, is_all }) => {
                    println!(
                        "{of:20} {pairs:>9} {:>5} {seconds:>8.1}",
                        if is_all { "yes" } else { "no" }
                    );
                }
                Err(difference) => {
                    println!("{of}: {difference}");
                    is_good = false;
                }
            }
        }
        if is_good {
            println!("\n{models} models, what is taken for the same leads to the same");
        }
        is_good
    })
}

fn leases(
    threads: usize,
    show: bool,
    name: Option<&str>,
    steps: Option<u64>,
    renews: Option<bool>,
) -> bool {
    let mut complaints = String::new();
    println!(
        "{:20} {:>9} {:>12} {:>6} {:>8}",
        "model", "states", "transitions", "depth", "seconds"
    );
    for bounds in lease::ALL {
        if name.is_some_and(|name| name != bounds.name) {
            continue;
        }
        let mut bounds = *bounds;
        bounds.steps = steps.unwrap_or(bounds.steps);
        bounds.renews = renews.unwrap_or(bounds.renews);
        let outcome = lease::check(&bounds, threads);
        println!(
            "{:20} {:>9} {:>12} {:>6} {:>8.1}",
            bounds.name,
            outcome.states,
            outcome.transitions,
            outcome.depth,
            outcome.time.as_secs_f64()
        );
        complaints.push_str(&outcome.complaints);
    }
    println!("\n{:20} {:>5}  breaks", "trap", "steps");
    for (trap, pinned) in lease::TRAPS {
        let name = format!("{trap:?}");
        let Some((way, fault)) = lease::fall_into(*trap) else {
            complaints += &["  ", &name, " is not found\n"].concat();
            continue;
        };
        println!("{name:20} {:>5}  {fault}", way.len());
        if show {
            println!("  {way:?}");
        }
        if way.len() != *pinned {
            complaints += &["  ", &name, " is found in another number of steps\n"].concat();
        }
    }
    if !complaints.is_empty() {
        println!("\n{complaints}");
    }
    complaints.is_empty()
}

fn explore(name: &str, port: u16) -> bool {
    let setup = chosen(Some(name))[0];
    println!(
        "{}: open http://127.0.0.1:{port}/ and end with ^C",
        setup.name
    );
    // Serves until the process ends.
    Explored::new(setup.clone())
        .checker()
        .serve(("127.0.0.1", port));
    true
}
