//! `latchd-model`: checks the models and shows them.

use std::fs;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use latchd_harness::transcript::parse::parse;
use latchd_model::search::Compared;
use latchd_model::{
    Framed, Offence, QUICK, all, election, every, lease, of_grants, of_sessions, pairs, rule,
    unwaited, waited,
};
use mimalloc::MiMalloc;

/// A state is a few dozen small allocations, which one thread makes and another frees: the system's
/// allocator takes a lock for each.
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
    /// Explores every state of some models of each kind, within a minute, and prints the
    /// complaints.
    Check {
        #[command(flatten)]
        run: Run,
        /// Explore every model of locks and wins.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Looks for the shortest way to a wrong state of one model, and prints it: the number of
    /// steps, the broken rule, and the transcript. Fails if there is one.
    Search {
        /// Which model.
        name: String,
        /// The most steps of the way.
        #[arg(long)]
        steps: Option<usize>,
    },
    /// Describes each model: its alphabet, its invariants, and its witnesses.
    List {
        /// Only the models with this prefix of their name.
        name: Option<String>,
    },
    /// Tests the views that tell states apart. Of two states with the same view, each must have
    /// every step of the other, with the same event, reply and witnesses, to the same state.
    View {
        /// Only the models with this prefix of their name.
        name: Option<String>,
        /// How many models are checked at a time.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// How many steps to take in each model at most; without it all, which takes hours in the largest ones.
        #[arg(long)]
        steps: Option<usize>,
    },
    /// Explores every state of the client's locks on memcached: two clients of the library against the core, over a
    /// hostile network and with clocks that differ. Then falls into the traps of the usual recipes.
    Lease {
        #[command(flatten)]
        run: Run,
        /// Print the shortest way into each trap.
        #[arg(long)]
        show: bool,
        /// Seconds to go, instead of the pinned number.
        #[arg(long)]
        steps: Option<u64>,
        /// Whether the watchdog renews, instead of the pinned choice.
        #[arg(long)]
        renews: Option<bool>,
    },
    /// Explores every state of the elections: real elections against an authority, over a hostile
    /// network and with clocks that differ. Then falls into the mistakes that an election can have.
    Election {
        #[command(flatten)]
        run: Run,
        /// Print the shortest way into each mistake.
        #[arg(long)]
        show: bool,
    },
    /// Explores every state of the client's locks on latchd: two clients of the library against the core, over a network that
    /// delays and cuts, and with clocks that differ.
    Grants(Run),
    /// Explores every state of the models of waiting for locks and for values, and of sessions.
    Waits(Run),
    /// Serves stateright's Explorer for one model, on the loopback interface.
    Explore {
        /// Which model.
        #[arg(default_value = "locks-2x1")]
        name: String,
        /// On which port.
        #[arg(long, default_value_t = 3000)]
        port: u16,
    },
}

/// Which models to check, and how.
#[derive(Args)]
struct Run {
    /// Only the models with this prefix of their name.
    name: Option<String>,
    /// How many threads search.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The file for the transcript of a failure.
    #[arg(long, default_value = "target/model")]
    save: PathBuf,
}

fn main() -> ExitCode {
    // A panic in a core is caught and reported as a failure: an invariant that does not hold.
    std::panic::set_hook(Box::new(|_| {}));
    let is_good = match Arguments::parse().command {
        Task::Check { run, all: true } => check_unwaited(&run),
        Task::Check { run, all: false } => check_some(&run),
        Task::Search { name, steps } => search(&name, steps.unwrap_or(usize::MAX)),
        Task::List { name } => {
            for model in chosen(all(), name.as_deref()) {
                println!("{}: {}", model.name(), model.about());
                for (_, words) in model.must_see() {
                    println!("  sometimes {words}");
                }
            }
            true
        }
        Task::View {
            name,
            threads,
            steps,
        } => {
            let models = chosen(all(), name.as_deref());
            view(&models, threads, steps.unwrap_or(usize::MAX))
        }
        Task::Lease {
            run,
            show,
            steps,
            renews,
        } => {
            let bounds: Vec<_> = lease::within(steps, renews).collect();
            let models = bounds.iter().map(|bounds| bounds as &dyn Framed);
            let traps = lease::TRAPS.iter();
            let traps =
                traps.map(|(trap, steps)| (format!("{trap:?}"), lease::fall_into(*trap), *steps));
            trapped(&chosen(models, run.name.as_deref()), traps, &run, show)
        }
        Task::Election { run, show } => {
            let models = election::ALL.iter().map(|bounds| bounds as &dyn Framed);
            let traps = election::TRAPS.iter();
            let traps = traps
                .map(|(trap, steps)| (format!("{trap:?}"), election::fall_into(*trap), *steps));
            trapped(&chosen(models, run.name.as_deref()), traps, &run, show)
        }
        Task::Grants(run) => {
            let models = chosen(of_grants(), run.name.as_deref());
            conclude(models.len(), &check(&models, &run))
        }
        Task::Waits(run) => {
            let models = chosen(waited().chain(of_sessions()), run.name.as_deref());
            conclude(models.len(), &check(&models, &run))
        }
        Task::Explore { name, port } => {
            let model = chosen(all(), Some(&name))[0];
            let name = model.name();
            println!("{name}: open http://127.0.0.1:{port}/ and end with ^C");
            model.explore(port);
            true
        }
    };
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The models with this prefix of their name; ends the process if there is none.
fn chosen<'a>(
    models: impl Iterator<Item = &'a dyn Framed>,
    name: Option<&str>,
) -> Vec<&'a dyn Framed> {
    let (name, models) = (name.unwrap_or_default(), models.collect::<Vec<_>>());
    let mut chosen = models.clone();
    chosen.retain(|model| model.name().starts_with(name));
    if chosen.is_empty() {
        let names: Vec<_> = models.iter().map(|model| model.name()).collect();
        eprintln!("there is no model {name}: choose from {}", names.join(", "));
        std::process::exit(2);
    }
    chosen
}

/// Explores every state of each, and returns the complaints.
fn check(models: &[&dyn Framed], run: &Run) -> String {
    println!(
        "{:20} {:>9} {:>12} {:>6} {:>8} {:>10}",
        "model", "states", "transitions", "depth", "seconds", "witnesses"
    );
    let mut complaints = String::new();
    let (began, count) = (Instant::now(), models.len());
    for (before, model) in models.iter().enumerate() {
        let (name, number) = (model.name(), before + 1);
        let outcome = model.check(run.threads, &|states| {
            if stderr().is_terminal() {
                let seconds = began.elapsed().as_secs();
                // Progress that nobody sees is no failure.
                let _ = write!(
                    stderr(),
                    "\rmodel {number} of {count} {name}: {states} states, {seconds} s "
                );
                let _ = stderr().flush();
            }
        });
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\r{:70}\r", "");
        }
        let (seen, due) = outcome.witnesses;
        println!(
            "{name:20} {:>9} {:>12} {:>6} {:>8.1} {:>10}",
            outcome.states,
            outcome.transitions,
            outcome.depth,
            outcome.time.as_secs_f64(),
            format!("{seen}/{due}"),
        );
        complaints.push_str(&outcome.complaints);
        if outcome.is_wrong
            && let Err(offence) = model.search(usize::MAX)
        {
            let text = offence.transcript;
            let path = run.save.join(format!("{name}.txt"));
            let saved = fs::create_dir_all(&run.save).and_then(|()| fs::write(&path, &text));
            println!("\n{text}");
            match saved {
                Ok(()) => println!("saved as {}\n", path.display()),
                Err(error) => println!("not saved as {}: {error}\n", path.display()),
            }
        }
    }
    complaints
}

/// Prints the complaints, if there are any.
fn conclude(models: usize, complaints: &str) -> bool {
    if complaints.is_empty() {
        println!("\n{models} models, everything holds and everything was seen");
    } else {
        println!("\n{complaints}");
    }
    complaints.is_empty()
}

/// Checks the models with this name, or those that take a minute.
fn check_some(run: &Run) -> bool {
    let name = run.name.as_deref();
    let is_wanted = |model: &&dyn Framed| name.is_some() || QUICK.contains(&model.name());
    let models = chosen(every().filter(is_wanted), name);
    let is_good = conclude(models.len(), &check(&models, run));
    if name.is_none() {
        println!(
            "`check --all`, `waits`, `grants`, `lease` and `election` explore the other models"
        );
    }
    is_good
}

/// Checks all models in which no client waits.
fn check_unwaited(run: &Run) -> bool {
    let models: Vec<_> = unwaited().collect();
    let mut complaints = check(&models, run);
    // Only all models together ask for everything that can be answered.
    println!("\n{}", pairs::table());
    complaints.push_str(&pairs::complaints());
    conclude(models.len(), &complaints)
}

/// `model/mutants/src/layer.rs` reads the first line.
fn search(name: &str, steps_max: usize) -> bool {
    let Some(model) = all().find(|model| model.name() == name) else {
        eprintln!("there is no model {name}");
        std::process::exit(2);
    };
    match model.search(steps_max) {
        Ok(states) => {
            println!("{name}: nothing is wrong in {states} states");
            true
        }
        Err(offence) => {
            let (steps, text) = (offence.steps, offence.transcript);
            // A reader plays the transcript, so it must be one.
            if let Err(mistake) = parse(name, &text) {
                eprintln!("the way there is no transcript: {mistake}\n{text}");
                std::process::exit(2);
            }
            println!(
                "{name}: {steps} steps break {}\n{text}",
                rule(&offence.fault)
            );
            false
        }
    }
}

fn view(models: &[&dyn Framed], threads: usize, steps_max: usize) -> bool {
    let next = Mutex::new(models.iter());
    let (told, tells) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (next, told) = (&next, told.clone());
            scope.spawn(move || {
                let next = || next.lock().expect("no panic poisons it").next();
                while let Some(model) = next() {
                    let began = Instant::now();
                    let found = model.twins(steps_max);
                    told.send((model.name(), found, began.elapsed().as_secs_f64()))
                        .expect("the receiver exists");
                }
            });
        }
        drop(told);
        println!(
            "{:20} {:>9} {:>5} {:>8}",
            "model", "pairs", "all", "seconds"
        );
        let mut is_good = true;
        for (name, found, seconds) in tells {
            match found {
                Ok(Compared { pairs, is_all }) => {
                    let is_all = if is_all { "yes" } else { "no" };
                    println!("{name:20} {pairs:>9} {is_all:>5} {seconds:>8.1}");
                }
                Err(difference) => {
                    println!("{name}: {difference}");
                    is_good = false;
                }
            }
        }
        if is_good {
            let models = models.len();
            println!("\n{models} models: states with the same view lead to the same states");
        }
        is_good
    })
}

/// Checks the models, then each trap: its name, the way into it, and the pinned length of that.
fn trapped(
    models: &[&dyn Framed],
    traps: impl Iterator<Item = (String, Option<Offence>, usize)>,
    run: &Run,
    show: bool,
) -> bool {
    let mut complaints = check(models, run);
    println!("\n{:22} {:>5}  breaks", "trap", "steps");
    for (name, offence, pinned) in traps {
        let Some(offence) = offence else {
            complaints += &["  ", &name, " is not found\n"].concat();
            continue;
        };
        println!("{name:22} {:>5}  {}", offence.steps, offence.fault);
        if show {
            println!("{}", offence.transcript);
        }
        if offence.steps != pinned {
            complaints += &["  ", &name, " is found in another number of steps\n"].concat();
        }
    }
    conclude(models.len(), &complaints)
}
