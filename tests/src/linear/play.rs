//! Rounds: clients send requests at random, then everything is judged.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use latchd_harness::random::Random;
use latchd_harness::wording::Protocol;

use super::client::{Client, Kill, Planned, World};
use super::history::{Answer, Operation, Record, Store, is_session, shown};
use super::one_step::{self, Look};
use super::recorder::{Post, Recorder};
use super::search::{self, Verdict};
use super::tally::Tally;
use super::worker::{Board, Worker};

/// How many operations a client does in a round.
pub(super) const OPERATIONS_A_ROUND: u64 = 64;

/// How many keys such a step spans: with a few threads they are in most shards.
const KEYS_A_STEP: usize = 16;

/// How long the server may take to notice that connections have ended.
const NOTICED: Duration = Duration::from_secs(10);

/// How many rounds may wait to be judged.
const ROUNDS_WAITING: usize = 16;

/// The settings of a play.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Where the server listens. No other client may be connected to it.
    pub address: SocketAddr,
    /// The seed that chooses the requests.
    pub seed: u64,
    /// The least number of operations.
    pub operations: u64,
    /// How many clients there are at a time.
    pub clients: u64,
    /// The number of processes of which they are threads: 1 is this one; otherwise this program is
    /// started again to [`record`](super::record). At most as many as clients.
    pub processes: u64,
    /// How many keys a round is about.
    pub keys: usize,
}

/// Why a run has failed.
#[derive(Debug)]
pub enum Failure {
    /// The server closes, does not answer, or sends an invalid answer.
    World(io::Error),
    /// No order explains the answers of the clients.
    Violation(String),
    /// A history takes more than [`search::STATES_MAX`].
    Undecided(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::World(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::World(error) => write!(formatter, "{error}"),
            Self::Violation(what) => write!(formatter, "VIOLATION: {what}"),
            Self::Undecided(what) => write!(formatter, "UNDECIDED: {what}"),
        }
    }
}

/// A job for a client.
#[derive(Clone)]
enum Job {
    Mix(Arc<Board>),
    Watch {
        board: Arc<Board>,
        holder: Option<u64>,
        begun: Arc<AtomicU64>,
    },
}

/// The result of a job.
enum Done {
    Mixed(Vec<Record>),
    Watched(Vec<Look>),
}

/// The records to judge.
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) keys: usize,
    pub(super) records: Vec<Record>,
    pub(super) looks: Vec<Look>,
    /// How often a client was told that a client of another process holds a lock.
    pub(super) crossed: Option<u64>,
}

/// A step over several keys.
#[derive(Clone, Copy, Debug)]
enum Step {
    Die(Kill),
    UnlockAll,
    Flush,
}

/// Plays rounds until there were enough operations, and judges them.
///
/// # Errors
/// The first violation.
pub fn play(setting: &Setting) -> Result<Tally, Failure> {
    let world = Arc::new(World::new(setting.address));
    thread::scope(|scope| {
        let (results, done) = mpsc::channel();
        let hands = hands(setting, &world)?;
        let jobs = hands.into_iter().map(|hand| {
            let (sender, receiver) = mpsc::channel();
            let results = results.clone();
            scope.spawn(move || work(hand, &receiver, &results));
            sender
        });
        let jobs = jobs.collect();
        let (to_judge, seen) = mpsc::sync_channel(ROUNDS_WAITING);
        let judge = scope.spawn(move || judge_all(&seen));
        let director = Director {
            setting,
            auditor: Client::connect(&world, false)?,
            census: TcpStream::connect(setting.address)?,
            random: Random::new(setting.seed),
            world: Arc::clone(&world),
            jobs,
            done,
        };
        director.direct(to_judge, judge)
    })
}

/// The worker of a job: a client of this process, or all of those of another one.
enum Hand {
    Client(Worker),
    Process(Recorder, u64),
}

fn hands(setting: &Setting, world: &Arc<World>) -> io::Result<Vec<Hand>> {
    let (clients, processes) = (setting.clients, setting.processes);
    if processes <= 1 {
        let worker = |number| Worker::new(Arc::clone(world), number, setting.seed);
        return (0..clients)
            .map(|number| worker(number).map(Hand::Client))
            .collect();
    }
    let first = |process| clients * process / processes;
    let hands = (0..processes).map(|process| {
        let post = Post {
            seed: setting.seed,
            clients: first(process + 1) - first(process),
            first: first(process),
            process,
            processes,
            began: world.began,
        };
        Ok(Hand::Process(Recorder::start(world, &post)?, post.clients))
    });
    hands.collect()
}

impl Hand {
    fn mix(&mut self, board: &Board) -> io::Result<Vec<Record>> {
        match self {
            Self::Client(worker) => {
                let mut records = Vec::new();
                worker.mix(board, OPERATIONS_A_ROUND, &mut records)?;
                Ok(records)
            }
            Self::Process(recorder, _) => recorder.mix(&board.name, board.keys.len()),
        }
    }

    fn watch(
        &mut self,
        board: &Board,
        holder: Option<u64>,
        begun: &AtomicU64,
    ) -> io::Result<Vec<Look>> {
        match self {
            Self::Client(worker) => worker.watch(board, holder, begun),
            Self::Process(recorder, clients) => {
                recorder.watch(&board.name, board.keys.len(), holder, || {
                    begun.fetch_add(*clients, Ordering::SeqCst);
                })
            }
        }
    }
}

fn work(mut hand: Hand, jobs: &Receiver<Job>, results: &Sender<io::Result<Done>>) {
    for job in jobs {
        let done = match job {
            Job::Mix(board) => hand.mix(&board).map(Done::Mixed),
            Job::Watch {
                board,
                holder,
                begun,
            } => hand.watch(&board, holder, &begun).map(Done::Watched),
        };
        if results.send(done).is_err() {
            return;
        }
    }
}

/// How often a client was told that a client of another process holds a lock: `by_hand` has the
/// records of each hand's clients.
fn crossed(by_hand: &[Vec<Record>]) -> u64 {
    let conns = by_hand
        .iter()
        .map(|records| records.iter().map(|record| record.conn).collect());
    let conns: Vec<HashSet<u64>> = conns.collect();
    let mut crossed = 0;
    for (own, records) in conns.iter().zip(by_hand) {
        let holders = records.iter().filter_map(|record| match record.answer {
            Some(Answer::Held { by }) => Some(by),
            _ => None,
        });
        let is_of_another = |by: &u64| !own.contains(by) && conns.iter().any(|of| of.contains(by));
        crossed += holders.filter(is_of_another).count() as u64;
    }
    crossed
}

/// Hands out the jobs.
struct Director<'a> {
    setting: &'a Setting,
    world: Arc<World>,
    auditor: Client,
    /// Asks for the number of connections.
    census: TcpStream,
    random: Random,
    jobs: Vec<Sender<Job>>,
    done: Receiver<io::Result<Done>>,
}

impl Director<'_> {
    fn direct(
        mut self,
        to_judge: SyncSender<Seen>,
        judge: ScopedJoinHandle<'_, Result<Tally, Failure>>,
    ) -> Result<Tally, Failure> {
        let mut operations = 0;
        let mut trouble = None;
        for round in 0.. {
            if operations >= self.setting.operations {
                break;
            }
            let seen = self.round(round).and_then(|seen| {
                let looks = self.step(round)?;
                Ok(Seen { looks, ..seen })
            });
            match seen {
                Ok(seen) => {
                    operations += seen.records.len() as u64;
                    // The judge has stopped: it has found something.
                    if to_judge.send(seen).is_err() {
                        break;
                    }
                }
                Err(error) => {
                    trouble = Some(error);
                    break;
                }
            }
        }
        drop((to_judge, self.jobs));
        let judged = judge.join().expect("the judge does not panic");
        // Recorded answers come first.
        let tally = judged?;
        trouble.map_or(Ok(tally), |error| Err(Failure::World(error)))
    }

    /// Gives every client the same job, and gathers the results.
    fn all_do(&self, job: &Job) -> io::Result<()> {
        for jobs in &self.jobs {
            jobs.send(job.clone()).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn gather(&self) -> io::Result<Vec<Done>> {
        // All results are awaited, so that none is left over for the next job.
        let done: Vec<_> = self.jobs.iter().map(|_| self.done.recv()).collect();
        let done = done.into_iter().map(|done| done.map_err(io::Error::other)?);
        done.collect()
    }

    fn round(&mut self, round: u64) -> io::Result<Seen> {
        let name = format!("round-{round}");
        let board = Arc::new(Board::new(&name, self.setting.keys));
        self.all_do(&Job::Mix(Arc::clone(&board)))?;
        let mut by_hand = Vec::new();
        for done in self.gather()? {
            if let Done::Mixed(seen) = done {
                by_hand.push(seen);
            }
        }
        let crossed = (self.setting.processes > 1).then(|| crossed(&by_hand));
        let mut records = by_hand.concat();
        if records.iter().any(|r| r.operation == Operation::Death) {
            let noticed = self.wait_for_ends()?;
            for record in &mut records {
                if record.operation == Operation::Death {
                    record.answered = noticed;
                }
            }
        }
        // No client holds anything now; the final items are read.
        for key in 0..self.setting.keys {
            let plan = [
                Operation::Acquire,
                Operation::Get,
                Operation::Release { fence: None },
            ]
            .map(|operation| Planned::new(Some(key), Protocol::Meta, operation));
            let audit = self.auditor.exchange(&self.world, &board.keys, plan.into());
            records.append(&mut audit?);
        }
        Ok(Seen {
            name,
            keys: self.setting.keys,
            records,
            looks: Vec::new(),
            crossed,
        })
    }

    /// Waits until the server counts no connection that has ended. Returns when that was seen.
    fn wait_for_ends(&mut self) -> io::Result<u64> {
        let expected = format!("STAT curr_connections {}\r\n", self.setting.clients + 2);
        let began = Instant::now();
        while began.elapsed() < NOTICED {
            self.census.write_all(b"stats\r\n")?;
            let mut answer = Vec::new();
            let mut chunk = [0; 16 << 10];
            while !answer.ends_with(b"END\r\n") {
                let bytes = self.census.read(&mut chunk)?;
                if bytes == 0 {
                    return Err(io::Error::other("the server closes instead of its stats"));
                }
                answer.extend_from_slice(&chunk[..bytes]);
            }
            if String::from_utf8_lossy(&answer).contains(&expected) {
                return Ok(self.world.now());
            }
            thread::sleep(Duration::from_micros(100));
        }
        Err(io::Error::other(format!(
            "connections that have ended are still there after {NOTICED:?}"
        )))
    }

    /// One client locks many keys, and releases all of them in one step, while all the others look.
    fn step(&mut self, number: u64) -> io::Result<Vec<Look>> {
        let steps = [
            Step::Die(Kill::Reset),
            Step::UnlockAll,
            Step::Die(Kill::Close),
            Step::Flush,
        ];
        let step = steps[usize::try_from(number % 4).expect("below 4")];
        let board = Arc::new(Board::new(&format!("step-{number}"), KEYS_A_STEP));
        let world = Arc::clone(&self.world);
        let mut actor = Client::connect(&world, false)?;
        let (holder, operation) = match step {
            Step::Flush => (None, Operation::Store(Store::new(b"1"))),
            Step::Die(_) | Step::UnlockAll => (Some(shown(actor.conn)), Operation::Acquire),
        };
        let plan = (0..KEYS_A_STEP)
            .map(|key| Planned::new(Some(key), Protocol::Meta, operation.clone()))
            .collect();
        for record in actor.exchange(&world, &board.keys, plan)? {
            let taken = matches!(
                record.answer,
                Some(Answer::Granted { .. } | Answer::Stored { .. })
            );
            if !taken {
                return Err(io::Error::other(format!("nobody has the key: {record}")));
            }
        }
        let begun = Arc::new(AtomicU64::new(0));
        self.all_do(&Job::Watch {
            board: Arc::clone(&board),
            holder,
            begun: Arc::clone(&begun),
        })?;
        while begun.load(Ordering::SeqCst) < self.setting.clients {
            thread::yield_now();
        }
        thread::sleep(Duration::from_micros(self.random.below(200)));
        let one = |operation| vec![Planned::new(None, Protocol::Classic, operation)];
        let done = match step {
            Step::Die(kill) => actor.kill(&world, kill),
            Step::UnlockAll => actor
                .exchange(&world, &board.keys, one(Operation::UnlockAll))
                .map(|mut records| records.remove(0)),
            Step::Flush => actor
                .exchange(&world, &board.keys, one(Operation::Flush))
                .map(|mut records| records.remove(0)),
        };
        let gathered = self.gather();
        let record = done?;
        // Before the request the step was not done, and after the answer it was.
        let mut looks = vec![Look {
            record: record.clone(),
            is_done: false,
        }];
        if record.answer.is_some() {
            looks.push(Look {
                record,
                is_done: true,
            });
        }
        for done in gathered? {
            if let Done::Watched(mut seen) = done {
                looks.append(&mut seen);
            }
        }
        Ok(looks)
    }
}

fn judge_all(seen: &Receiver<Seen>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for seen in seen {
        judge_one(&seen, &mut tally)?;
    }
    Ok(tally)
}

pub(super) fn judge_one(seen: &Seen, tally: &mut Tally) -> Result<(), Failure> {
    let name = &seen.name;
    let violation = |what: String| Failure::Violation(format!("{name}: {what}"));
    if let Some(crossed) = seen.crossed {
        *tally.crossed.get_or_insert_default() += crossed;
    }
    for record in &seen.records {
        tally.note(record);
    }
    for key in 0..seen.keys {
        let is_about = |record: &&Record| record.key.is_none_or(|about| about == key);
        let history: Vec<Record> = seen.records.iter().filter(is_about).cloned().collect();
        tally.histories += 1;
        match search::judge(&history) {
            Verdict::Linearizable { states } => {
                tally.states += states as u64;
                tally.states_max = tally.states_max.max(states);
            }
            Verdict::Violation(what) => return Err(violation(format!("key {key}: {what}"))),
            Verdict::Undecided => {
                return Err(Failure::Undecided(format!(
                    "{name}: key {key}: {} operations take more than {} states",
                    history.len(),
                    search::STATES_MAX
                )));
            }
        }
    }
    judge_numbers(&seen.records).map_err(violation)?;
    if !seen.looks.is_empty() {
        tally.steps += 1;
        tally.looks += seen.looks.len() as u64;
        one_step::judge(&seen.looks).map_err(|torn| violation(format!("a step: {torn}")))?;
    }
    Ok(())
}

/// Over all keys: a version belongs to one item, a fence to one grant.
///
/// # Errors
/// Two answers that contradict each other.
pub fn judge_numbers(records: &[Record]) -> Result<(), String> {
    let mut versions: HashMap<u64, &Record> = HashMap::new();
    let mut fences: HashMap<u64, &Record> = HashMap::new();
    for record in records {
        match &record.answer {
            Some(Answer::Hit(hit)) => match hit.cas.map(|cas| versions.entry(cas)) {
                None => {}
                Some(Entry::Vacant(entry)) => {
                    entry.insert(record);
                }
                Some(Entry::Occupied(entry)) => {
                    let other = entry.get();
                    let is_same = record.key == other.key
                        && matches!(&other.answer, Some(Answer::Hit(told))
                            if told.value == hit.value && told.client_flags == hit.client_flags);
                    if !is_same {
                        return Err(format!("two items of one version:\n  {other}\n  {record}"));
                    }
                }
            },
            Some(Answer::Granted { fence }) => {
                // A session is granted the same lock again.
                let before = fences.insert(*fence, record);
                let is_again = |before: &Record| {
                    is_session(record.conn)
                        && (record.conn, record.key) == (before.conn, before.key)
                };
                if before.is_some_and(|before| !is_again(before)) {
                    return Err(format!("a fence was given before:\n  {record}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
