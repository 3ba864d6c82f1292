//! Plays simulations: one seed, to see its events, or many, to see that nothing breaks.
//!
//! `simulate --seed N --events M [-v]` plays one; `-v` prints every event, and `--fault NAME` plants
//! one of the faults of [`Fault`].
//! `simulate --seeds K --events M --threads T [--from N]` plays K seeds of M/K events each.
//! `simulate cluster …` plays the processes of a cluster instead of one server; it has no faults to plant.
//!
//! The digest stands for all events of all seeds: it is the same for the same seeds and events, on
//! any machine and on any number of threads.

use std::io::{IsTerminal, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchd_harness::alphabet::Pairs;
use latchd_tests::simulation::{
    Buffering, Cluster, Failure, Fault, Plan, Report, Scene, Sessions, Tally, is_left_out, run,
};

const USAGE: &str = "usage: simulate [cluster] --seed N --events M [--fault NAME] [-v]\n       \
                     simulate [cluster] --seeds K --events M [--threads T] [--from N]";

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: u64,
    events: u64,
    threads: Option<u64>,
    fault: Option<Fault>,
    aloud: bool,
    scene: Scene,
}

impl Arguments {
    fn plan(&self, seed: u64, events: u64) -> Plan {
        Plan {
            aloud: self.aloud,
            fault: self.fault,
            scene: self.scene,
            ..Plan::new(seed, events)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        events: 1_000_000,
        ..Arguments::default()
    };
    while let Some(word) = words.next() {
        if word == "-v" {
            arguments.aloud = true;
            continue;
        }
        if word == "cluster" {
            arguments.scene = Scene::Cluster;
            continue;
        }
        if word == "--fault" {
            arguments.fault = Some(Fault::named(&words.next()?)?);
            continue;
        }
        let number = words.next()?.replace('_', "").parse().ok()?;
        match word.as_str() {
            "--seed" => arguments.seed = Some(number),
            "--seeds" => arguments.seeds = Some(number).filter(|seeds| *seeds > 0),
            "--from" => arguments.from = number,
            "--events" => arguments.events = number,
            "--threads" => arguments.threads = Some(number),
            _ => return None,
        }
    }
    let is_one_way = arguments.seed.is_some() != arguments.seeds.is_some();
    let is_possible = arguments.scene == Scene::Server || arguments.fault.is_none();
    (is_one_way && is_possible).then_some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A failing assertion of the core is reported with its seed; its own message comes with it.
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let outcome = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => run(&arguments.plan(seed, arguments.events)).map(|report| (1, report)),
        (None, Some(seeds)) => play_many(&arguments, seeds).map(|report| (seeds, report)),
        (None, None) => unreachable!("one of them is given"),
    };
    match outcome {
        Ok((seeds, report)) => {
            let is_enough = match arguments.scene {
                Scene::Server => {
                    print_server(&report);
                    are_pairs_right(seeds, &report.pairs)
                        && are_buffers_met(seeds, &report.buffers)
                        && are_sessions_met(report.events, &report.sessions)
                        && is_all_judged(seeds, &report.tally)
                }
                Scene::Cluster => {
                    println!("{}", report.cluster);
                    is_all_met(seeds, &report.cluster)
                }
            };
            print_report(seeds, &report, start.elapsed());
            if is_enough {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// The number of seeds from which on every pair must have been seen, and every state of the
/// buffers: fewer may not meet the rare ones.
const SEEDS_FOR_ALL_PAIRS: u64 = 500;

/// Prints the replies that no request should have got, and those that no request has got.
fn are_pairs_right(seeds: u64, pairs: &Pairs) -> bool {
    let impossible: Vec<_> = pairs.impossible().collect();
    let missing: Vec<_> = pairs.missing(is_left_out).collect();
    if !impossible.is_empty() {
        println!("cannot be, and was seen: {impossible:?}");
    }
    if !missing.is_empty() {
        println!("never seen: {missing:?}");
    }
    impossible.is_empty() && (missing.is_empty() || seeds < SEEDS_FOR_ALL_PAIRS)
}

/// Says which states of a connection's buffers no seed has met.
fn are_buffers_met(seeds: u64, buffers: &Buffering) -> bool {
    let counts = buffers.counts();
    let missing: Vec<_> = counts.iter().filter(|(_, count)| *count == 0).collect();
    if seeds < SEEDS_FOR_ALL_PAIRS || missing.is_empty() {
        return true;
    }
    println!("never met: {missing:?}");
    false
}

/// The number of events from which on each event of sessions must have happened so often.
const EVENTS_FOR_SESSIONS: u64 = 8_000_000;
const EACH_OF_SESSIONS: u64 = 50;

/// Says which events of sessions were too rare.
fn are_sessions_met(events: u64, sessions: &Sessions) -> bool {
    let counts = sessions.counts();
    let rare = counts.iter().filter(|(_, count)| *count < EACH_OF_SESSIONS);
    let rare: Vec<_> = rare.collect();
    if events < EVENTS_FOR_SESSIONS || rare.is_empty() {
        return true;
    }
    println!("too rare: {rare:?}");
    false
}

/// The number of seeds among which every kind occurs.
const SEEDS_OF_ALL_KINDS: u64 = 8;

/// Says which cases the oracle did not judge, and which it did not have to follow.
fn is_all_judged(seeds: u64, tally: &Tally) -> bool {
    let counts = [
        (
            SEEDS_OF_ALL_KINDS,
            "where memory is scarce",
            tally.judged_scarce,
        ),
        (SEEDS_OF_ALL_KINDS, "at the edge", tally.judged_edge),
        (SEEDS_OF_ALL_KINDS, "an item that expired", tally.reclaimed),
        (SEEDS_FOR_ALL_PAIRS, "an eviction", tally.followed),
        (SEEDS_FOR_ALL_PAIRS, "a refusal", tally.believed),
    ];
    let missing = counts
        .iter()
        .filter(|(from, _, count)| seeds >= *from && *count == 0);
    let missing: Vec<_> = missing.map(|(_, what, _)| what).collect();
    if !missing.is_empty() {
        println!("never judged: {missing:?}");
    }
    missing.is_empty()
}

/// The number of seeds of a cluster among which every event occurs.
const SEEDS_OF_A_CLUSTER: u64 = 50;

/// Says which events of a cluster no seed has met.
fn is_all_met(seeds: u64, cluster: &Cluster) -> bool {
    let counts = cluster.counts();
    let missing = counts.iter().filter(|(_, count)| *count == 0);
    let missing: Vec<_> = missing.map(|(what, _)| what).collect();
    if seeds < SEEDS_OF_A_CLUSTER || missing.is_empty() {
        return true;
    }
    println!("never met: {missing:?}");
    false
}

fn play_many(arguments: &Arguments, seeds: u64) -> Result<Report, Box<Failure>> {
    let threads = arguments
        .threads
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get) as u64);
    let each = arguments.events.div_ceil(seeds);
    let (next, done, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let total = Mutex::new(Report::default());
    let failure: Mutex<Option<Box<Failure>>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        break;
                    }
                    match run(&arguments.plan(arguments.from + number, each)) {
                        Ok(report) => {
                            events.fetch_add(report.events, Ordering::Relaxed);
                            total.lock().expect("no panic poisons it").add(&report);
                        }
                        Err(broken) => {
                            failed.store(true, Ordering::Relaxed);
                            // The least of the seeds that fail, whichever thread is faster.
                            let mut failure = failure.lock().expect("no panic poisons it");
                            if failure.as_ref().is_none_or(|old| broken.seed < old.seed) {
                                *failure = Some(broken);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| watch(&done, seeds, &events, &failed));
    });
    match failure.into_inner().expect("no panic poisons it") {
        Some(failure) => Err(failure),
        None => Ok(total.into_inner().expect("no panic poisons it")),
    }
}

/// Shows the progress: on a terminal ten times a second in one line, otherwise a line every ten
/// seconds.
fn watch(done: &AtomicU64, seeds: u64, events: &AtomicU64, failed: &AtomicBool) {
    let start = Instant::now();
    let is_terminal = std::io::stderr().is_terminal();
    let mut looks = 0_u32;
    loop {
        let (so_far, played) = (done.load(Ordering::Relaxed), events.load(Ordering::Relaxed));
        let is_over = so_far >= seeds || failed.load(Ordering::Relaxed);
        if is_terminal || looks % 100 == 99 || is_over {
            let seconds = start.elapsed().as_secs_f64();
            let line = format!(
                "{so_far} of {seeds} seeds, {:.1} M events, {:.2} M/s",
                millions(played),
                millions(played) / seconds.max(0.001)
            );
            let end = if is_terminal && !is_over { "\r" } else { "\n" };
            // Writing fails only if the output is closed: then there is no reader to tell.
            let _ = write!(std::io::stderr(), "{line}{end}");
        }
        if is_over {
            break;
        }
        looks += 1;
        thread::sleep(Duration::from_millis(100));
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a person to read")]
fn millions(count: u64) -> f64 {
    count as f64 / 1e6
}

fn print_server(report: &Report) {
    println!("{}", report.pairs);
    println!("{}", report.tally);
    println!("{}", report.buffers);
    println!("{}", report.sessions);
}

fn print_report(seeds: u64, report: &Report, elapsed: Duration) {
    let Report {
        events,
        commands,
        digest,
        ..
    } = report;
    println!("{seeds} seeds, {events} events, {commands} of them commands");
    println!(
        "{:.1} s, {:.2} M events/s",
        elapsed.as_secs_f64(),
        millions(*events) / elapsed.as_secs_f64().max(0.001)
    );
    println!("digest {digest:016x}");
}
