//! A server that is killed and started again, under clients that reconnect.
//!
//! Nothing of a server outlives it, and all connections end with it. So for each run of the server:
//!
//! - P1: the answers to the clients of the wire have an order that begins with an empty server
//!   ([`search`](super::search)). Each request without an answer at the kill may have happened or
//!   not;
//! - P2: no two processes that use the client library are sure at the same moment that they hold
//!   the same lock, leased or bound. This holds also if the server that granted it is gone and
//!   another one grants it anew;
//! - P3: within a run, no two are sure at the same moment that they are the one to compute a value.
//!   A value that is being computed at the kill may be computed again.
//!
//! The clients of the wire send no `flush_all`, which would take the leases of the others. So no
//! request of one round affects another round, and rounds need not wait for each other.
//!
//! Between a server's end and the next one's beginning lies a pause ([`PAUSE`]), in which a process
//! learns that its connections have ended. Without it a process that is not scheduled in time could
//! be sure for too long, like any program that reads a clock and then acts.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use latchd_harness::random::Random;

use super::believer::{Belief, What, monotonic};
use super::client::World;
use super::history::{Operation, Record};
use super::play::{Failure, OPERATIONS_A_ROUND, Seen, judge_one};
use super::tally::Tally;
use super::worker::{Board, Worker};
use crate::abuse::target::{Kind, Start, Target};

/// The length of the shortest run of the server, and by how much others may be longer.
const RUN_MS_MIN: u64 = 400;
const RUN_MS_MORE: u64 = 600;

/// How long no server listens.
const PAUSE: Duration = Duration::from_millis(200);

/// A belief that ends as late as this before the kill was cut short by it.
const SLACK: Duration = Duration::from_millis(20);

/// The settings of a play.
#[derive(Clone, Copy, Debug)]
pub struct Restarts<'a> {
    /// The program.
    pub latchd: &'a Path,
    /// Its flags.
    pub flags: &'a [&'a str],
    /// The seed that chooses the requests, and the moments of the kills.
    pub seed: u64,
    /// How often the server is killed.
    pub kills: u64,
    /// How many connections of the wire ask at a time.
    pub clients: u64,
    /// How many processes use the client library.
    pub processes: u64,
    /// How many keys a round is about.
    pub keys: usize,
}

/// The counts of a play.
#[derive(Clone, Debug, Default)]
pub struct Survived {
    /// Of the clients of the wire.
    pub tally: Tally,
    /// How often a client was sure of each fact.
    pub beliefs: BTreeMap<What, u64>,
    /// How often a client was sure until its server was killed.
    pub cut_short: BTreeMap<What, u64>,
    /// How often a lock or a value had a believer in two runs that follow each other.
    pub again: u64,
}

impl Survived {
    /// Cases that a run must meet and did not.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        let all = [What::Leased, What::Bound, What::Computes];
        let mut unseen = Vec::new();
        for what in all {
            if !self.beliefs.contains_key(&what) {
                unseen.push(format!("{what:?}: no client was sure"));
            }
        }
        // A computing client learns of the end afterwards.
        for what in [What::Leased, What::Bound] {
            if !self.cut_short.contains_key(&what) {
                unseen.push(format!("{what:?}: held when the server was killed"));
            }
        }
        if self.again == 0 {
            unseen.push("a lock is held again after a restart".to_owned());
        }
        if self.tally.open == 0 {
            unseen.push("an operation without an answer".to_owned());
        }
        unseen
    }
}

/// The begin and the end of a server's run.
#[derive(Clone, Copy, Debug)]
struct Run {
    began: u64,
    killed: u64,
}

/// Plays it, and judges.
///
/// # Errors
/// The first violation.
pub fn survive(setting: &Restarts<'_>) -> Result<Survived, Failure> {
    let mut random = Random::new(setting.seed);
    let start = Start::new(setting.flags);
    let mut began = monotonic();
    let mut server = Target::start(Kind::Latchd, setting.latchd, &start)?;
    let address = server.address;
    let mut believers = Believers::start(setting, &address.to_string())?;
    let mut survived = Survived::default();
    let mut runs = Vec::new();
    for number in 0..setting.kills {
        let span = Duration::from_millis(RUN_MS_MIN + random.below(RUN_MS_MORE));
        let world = Arc::new(World::new(address));
        let seed = random.next();
        let (killed, rounds) = run(setting, &world, seed, span, server)?;
        runs.push(Run { began, killed });
        for (round, records) in rounds.into_iter().enumerate() {
            let history = Seen {
                name: format!("run {number}, round {round}"),
                keys: setting.keys,
                records,
                looks: Vec::new(),
                crossed: None,
            };
            judge_one(&history, &mut survived.tally)?;
        }
        thread::sleep(PAUSE);
        began = monotonic();
        server = Target::start_at(Kind::Latchd, setting.latchd, &start, address)?;
    }
    runs.push(Run {
        began,
        killed: u64::MAX,
    });
    let beliefs = believers.end()?;
    drop(server);
    judge(&beliefs, &runs, &mut survived)?;
    Ok(survived)
}

/// Clients ask until the server is killed. Returns the time of the kill, and the records by round.
fn run(
    setting: &Restarts<'_>,
    world: &Arc<World>,
    seed: u64,
    span: Duration,
    server: Target,
) -> Result<(u64, Vec<Vec<Record>>), Failure> {
    let boards: Mutex<Vec<Arc<Board>>> = Mutex::default();
    let board = |round: usize| {
        let mut boards = boards.lock().expect("no panic poisons it");
        while boards.len() <= round {
            // The same names in each run: nothing of the last run may be there.
            let name = format!("round-{}", boards.len());
            boards.push(Arc::new(Board::new(&name, setting.keys)));
        }
        Arc::clone(&boards[round])
    };
    let is_killed = AtomicBool::new(false);
    let workers = (0..setting.clients).map(|number| {
        let worker = Worker::new(Arc::clone(world), number, seed)?;
        Ok(worker.sparing_others())
    });
    let workers = workers.collect::<io::Result<Vec<_>>>()?;
    let (killed_at, by_client) = thread::scope(|scope| {
        let clients: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (board, is_killed) = (&board, &is_killed);
                scope.spawn(move || {
                    let mut rounds = Vec::new();
                    loop {
                        let board = board(rounds.len());
                        let mut records = Vec::new();
                        let mixed = worker.mix(&board, OPERATIONS_A_ROUND, &mut records);
                        rounds.push(records);
                        if let Err(error) = mixed {
                            let is_due = is_killed.load(Ordering::SeqCst);
                            return if is_due { Ok(rounds) } else { Err(error) };
                        }
                    }
                })
            })
            .collect();
        thread::sleep(span);
        is_killed.store(true, Ordering::SeqCst);
        // Not when the clients have ended: on a busy machine that is much later.
        let killed_at = monotonic();
        // SIGKILL
        drop(server);
        let rounds = clients.into_iter().map(|it| it.join().expect("no panic"));
        let rounds = rounds.collect::<io::Result<Vec<_>>>()?;
        Ok::<_, io::Error>((killed_at, rounds))
    })?;
    let killed = world.now();
    let mut rounds: Vec<Vec<Record>> = Vec::new();
    for (round, mut records) in by_client
        .into_iter()
        .flat_map(|of| of.into_iter().enumerate())
    {
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        for record in &mut records {
            if record.operation == Operation::Death {
                record.answered = killed;
            }
        }
        rounds[round].append(&mut records);
    }
    Ok((killed_at, rounds))
}

/// The processes that use the client library.
struct Believers(Vec<Child>);

impl Believers {
    fn start(setting: &Restarts<'_>, address: &str) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let children = (0..setting.processes).map(|number| {
            let seed = setting.seed.wrapping_add(number);
            Command::new(&program)
                .args(["--believe", address, "--seed", &seed.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        });
        Ok(Self(children.collect::<io::Result<_>>()?))
    }

    /// Ends them, and returns the beliefs of each.
    fn end(&mut self) -> io::Result<Vec<Vec<Belief>>> {
        let mut all = Vec::new();
        for mut child in self.0.drain(..) {
            drop(child.stdin.take());
            let mut said = String::new();
            if let Some(mut out) = child.stdout.take() {
                out.read_to_string(&mut said)?;
            }
            let status = child.wait()?;
            let beliefs: Option<Vec<_>> = said.lines().map(Belief::parse).collect();
            match beliefs {
                Some(beliefs) if status.success() => all.push(beliefs),
                _ => return Err(io::Error::other(format!("a process ends: {status}"))),
            }
        }
        Ok(all)
    }
}

impl Drop for Believers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// P2 and P3.
fn judge(beliefs: &[Vec<Belief>], runs: &[Run], survived: &mut Survived) -> Result<(), Failure> {
    let run_of = |at: u64| runs.iter().rposition(|run| run.began <= at);
    let slack = u64::try_from(SLACK.as_nanos()).expect("it is short");
    let mut by_key: BTreeMap<(What, u64), Vec<(usize, Belief)>> = BTreeMap::new();
    for (process, beliefs) in beliefs.iter().enumerate() {
        for belief in beliefs {
            *survived.beliefs.entry(belief.what).or_default() += 1;
            let of_key = by_key.entry((belief.what, belief.key)).or_default();
            of_key.push((process, *belief));
            let killed = run_of(belief.from).map(|run| runs[run].killed);
            if killed.is_some_and(|killed| belief.until.saturating_add(slack) >= killed) {
                *survived.cut_short.entry(belief.what).or_default() += 1;
            }
        }
    }
    for of_key in by_key.values_mut() {
        of_key.sort_by_key(|(_, belief)| belief.from);
        for pair in of_key.windows(2) {
            let [(one, first), (other, second)] = pair else {
                continue;
            };
            let (run, next) = (run_of(first.from), run_of(second.from));
            survived.again += u64::from(run != next);
            let may_overlap = first.what == What::Computes && run != next;
            if second.from < first.until && !may_overlap {
                return Err(Failure::Violation(format!(
                    "two are sure at the same moment: process {one}: {first}, process {other}: {second}; \
                     the server ran {runs:?}"
                )));
            }
        }
    }
    Ok(())
}
