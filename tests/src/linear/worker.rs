//! A client that sends random requests, and now and then ends in the midst of one.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use latchd_harness::random::Random;
use latchd_harness::wording::Protocol;

use super::client::{Client, Kill, Planned, World};
use super::history::{Answer, Mode, NEVER, Operation, Record, Store};
use super::one_step::Look;

/// The most requests that are sent in one go.
const DEPTH_MAX: u64 = 12;

/// The most requests in a session that are sent beside its connection in one go.
const DEPTH_BESIDE_MAX: u64 = 4;

/// One of this many batches is the last of its connection.
const BATCHES_A_LIFE: u64 = 60;

/// How many looks at keys are sent in one go.
const LOOKS_A_BATCH: usize = 12;

/// How long an immediate event may take.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The keys of a round, and the last numbers that any client was told about each.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) name: String,
    pub(super) keys: Vec<Vec<u8>>,
    versions: Vec<AtomicU64>,
    fences: Vec<AtomicU64>,
    /// Values of different operations are different.
    values: AtomicU64,
    /// How many processes draw values for these keys.
    processes: u64,
}

impl Board {
    pub(super) fn new(name: &str, keys: usize) -> Self {
        Self::shared(name, keys, 0, 1)
    }

    /// The part of one of several processes: others know other numbers, and draw other values.
    pub(super) fn shared(name: &str, keys: usize, process: u64, processes: u64) -> Self {
        let numbers = || (0..keys).map(|_| AtomicU64::new(0)).collect();
        Self {
            name: name.to_owned(),
            keys: (0..keys)
                .map(|key| format!("{name}-{key}").into_bytes())
                .collect(),
            versions: numbers(),
            fences: numbers(),
            values: AtomicU64::new(1000 + process),
            processes,
        }
    }

    fn note(&self, record: &Record) {
        let Some(key) = record.key else {
            return;
        };
        match &record.answer {
            Some(Answer::Hit(hit)) => store_if_some(&self.versions[key], hit.cas),
            Some(Answer::Stored { cas } | Answer::Counted { cas, .. }) => {
                store_if_some(&self.versions[key], *cas);
            }
            Some(Answer::Granted { fence }) => self.fences[key].store(*fence, Ordering::SeqCst),
            _ => {}
        }
    }

    /// A value that no other operation of the round stores.
    pub(super) fn value(&self) -> Vec<u8> {
        let number = self.values.fetch_add(self.processes, Ordering::Relaxed);
        number.to_string().into_bytes()
    }
}

fn store_if_some(place: &AtomicU64, number: Option<u64>) {
    if let Some(number) = number {
        place.store(number, Ordering::SeqCst);
    }
}

fn some(place: &AtomicU64) -> Option<u64> {
    Some(place.load(Ordering::SeqCst)).filter(|number| *number != 0)
}

/// One client, over all its connections.
#[derive(Debug)]
pub(super) struct Worker {
    world: Arc<World>,
    client: Client,
    random: Random,
    /// Others have items there, which a `flush_all` would take.
    spares_others: bool,
}

impl Worker {
    /// Every third speaks binary, at first.
    pub(super) fn new(world: Arc<World>, number: u64, seed: u64) -> io::Result<Self> {
        let client = Client::connect(&world, number % 3 == 2)?;
        let mut random = Random::new(seed);
        // Similar seeds must not give similar numbers.
        let random = Random::new(random.next() ^ number.wrapping_mul(0x9e37_79b9));
        Ok(Self {
            world,
            client,
            random,
            spares_others: false,
        })
    }

    /// The same beside clients that have items there: it asks for no `flush_all`.
    pub(super) fn sparing_others(mut self) -> Self {
        self.spares_others = true;
        self
    }

    /// Sends `operations` requests, and releases all locks in the end. Requests up to the end are
    /// in `records`, also if the server goes.
    pub(super) fn mix(
        &mut self,
        board: &Board,
        operations: u64,
        records: &mut Vec<Record>,
    ) -> io::Result<()> {
        let mut left = operations;
        while left > 0 {
            let depth = (1 + self.random.below(DEPTH_MAX)).min(left);
            left -= depth;
            let plan: Vec<_> = (0..depth).map(|_| self.plan(board)).collect();
            let beside = self.plan_beside(board);
            let (mut beside, sent_beside) = if beside.is_empty() {
                (Vec::new(), Ok(()))
            } else {
                let world = &self.world;
                self.client.send_beside(world, &board.keys, beside)
            };
            let (mut batch, sent) = self.client.send(&self.world, &board.keys, plan);
            let is_last = self.random.chance(1, BATCHES_A_LIFE);
            // A session may go on.
            let resumes = is_last && self.client.is_session() && self.random.chance(2, 3);
            let read = if is_last {
                self.random.below(depth)
            } else {
                depth
            };
            let read = usize::try_from(read).expect("a batch is short");
            let world = &self.world;
            let keys = &board.keys;
            let heard = sent.and_then(|()| self.client.receive(world, keys, &mut batch, read));
            let client = &mut self.client;
            let heard_beside =
                sent_beside.and_then(|()| client.receive_beside(world, keys, &mut beside));
            let heard = heard.and(heard_beside);
            let mut taken_over = Ok(NEVER);
            if resumes && heard.is_ok() {
                let kills = [None, Some(Kill::Close), Some(Kill::Reset)];
                taken_over = client.resume(world, *self.random.choose(&kills));
            }
            let happened_by = *taken_over.as_ref().unwrap_or(&NEVER);
            for record in &mut batch {
                if record.answer.is_none() {
                    record.answered = happened_by;
                }
                board.note(record);
            }
            for record in &beside {
                board.note(record);
            }
            records.append(&mut batch);
            records.append(&mut beside);
            heard?;
            taken_over?;
            if is_last && !resumes {
                records.push(self.die()?);
            }
        }
        self.client.close_beside();
        let unlock_all = Planned::new(None, self.words(), Operation::UnlockAll);
        records.extend(self.ask(&board.keys, vec![unlock_all])?);
        Ok(())
    }

    fn ask(&mut self, keys: &[Vec<u8>], plan: Vec<Planned>) -> io::Result<Vec<Record>> {
        self.client.exchange(&self.world, keys, plan)
    }

    /// Ends the connection and begins another.
    fn die(&mut self) -> io::Result<Record> {
        let kill = *self.random.choose(&[Kill::Close, Kill::Reset]);
        let client = Client::connect(&self.world, self.random.chance(1, 3))?;
        std::mem::replace(&mut self.client, client).kill(&self.world, kill)
    }

    /// The protocol for a request that every protocol has words for.
    const fn words(&self) -> Protocol {
        if self.client.is_binary() {
            Protocol::Binary
        } else {
            Protocol::Classic
        }
    }

    /// Requests in the session from another connection: none for most batches.
    fn plan_beside(&mut self, board: &Board) -> Vec<Planned> {
        if !self.client.is_session() || !self.random.chance(1, 3) {
            return Vec::new();
        }
        let depth = 1 + self.random.below(DEPTH_BESIDE_MAX);
        let drawn: Vec<_> = (0..depth).map(|_| self.plan(board)).collect();
        let is_said = |planned: &Planned| {
            planned.protocol == Protocol::Meta && may_be_in_session(&planned.operation)
        };
        drawn.into_iter().filter(is_said).collect()
    }

    fn plan(&mut self, board: &Board) -> Planned {
        let keys = u64::try_from(board.keys.len()).expect("they are few");
        let key = usize::try_from(self.random.below(keys)).expect("an index");
        let protocol = if !self.client.is_binary() && self.random.chance(1, 2) {
            Protocol::Meta
        } else {
            self.words()
        };
        let operation = loop {
            let drawn = self.draw(board, key);
            let is_spared = self.spares_others && drawn == Operation::Flush;
            if is_said(&drawn, protocol) && !is_spared {
                break drawn;
            }
        };
        let is_of_all = matches!(operation, Operation::UnlockAll | Operation::Flush);
        Planned {
            with_cas: self.random.chance(1, 2),
            ..Planned::new((!is_of_all).then_some(key), protocol, operation)
        }
    }

    fn draw(&mut self, board: &Board, key: usize) -> Operation {
        let mut version = || some(&board.versions[key]).filter(|_| self.random.chance(1, 2));
        let guard = version();
        let fence = some(&board.fences[key]);
        let random = &mut self.random;
        let store = |random: &mut Random| Store {
            client_flags: u32::try_from(random.below(4)).expect("below 4"),
            ..Store::new(&board.value())
        };
        match random.below(100) {
            0..30 => Operation::Get,
            30..33 => Operation::Vivify,
            33..43 => Operation::Store(store(random)),
            43..53 => Operation::Store(Store {
                guard: some(&board.versions[key]),
                else_stale: random.chance(1, 3),
                ..store(random)
            }),
            53..56 => Operation::Store(Store {
                fence,
                ..store(random)
            }),
            56..65 => {
                let mode = *random.choose(&[Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend]);
                let value = board.value();
                // An appended number stays a number for a while.
                let value = if matches!(mode, Mode::Append | Mode::Prepend) {
                    &value[value.len() - 2..]
                } else {
                    &value
                };
                Operation::Store(Store {
                    mode,
                    ..Store::new(value)
                })
            }
            65..69 => Operation::Delete { guard },
            69..72 => Operation::MarkStale { guard },
            72..79 => Operation::Count {
                up: random.chance(2, 3),
                delta: 1 + random.below(9),
            },
            79..82 => Operation::Lock,
            82..84 => Operation::LockAndGet,
            84..88 => Operation::Unlock,
            88..90 => Operation::ReplaceAndUnlock(Store {
                mode: Mode::Replace,
                guard,
                ..store(random)
            }),
            90..93 => Operation::Acquire,
            93..98 => Operation::Release {
                fence: fence.filter(|_| random.chance(1, 2)),
            },
            98 => Operation::UnlockAll,
            _ if random.chance(1, 3) => Operation::Flush,
            _ => Operation::Get,
        }
    }

    /// Looks at the keys, a few at a time, until each is as it is after a step: unlocked by
    /// `holder`, or without an item if it has none.
    pub(super) fn watch(
        &mut self,
        board: &Board,
        holder: Option<u64>,
        watching: &AtomicU64,
    ) -> io::Result<Vec<Look>> {
        let mut looks = Vec::new();
        let mut done = BTreeSet::new();
        // Only meta text tells the owner of a lock.
        let may_look = holder.is_none() || !self.client.is_binary();
        let began = Instant::now();
        watching.fetch_add(1, Ordering::SeqCst);
        while may_look && done.len() < board.keys.len() {
            if began.elapsed() > AT_ONCE {
                let left = board.keys.len() - done.len();
                let what = holder.map_or("flushed".to_owned(), |conn| {
                    format!("let go by text {conn}")
                });
                return Err(io::Error::other(format!(
                    "after {AT_ONCE:?} {left} of {} keys are not {what}",
                    board.keys.len()
                )));
            }
            let keys = u64::try_from(board.keys.len()).expect("they are few");
            let mut plan = Vec::new();
            for _ in 0..LOOKS_A_BATCH {
                let key = usize::try_from(self.random.below(keys)).expect("an index");
                plan.push(match holder {
                    Some(_) => Planned::new(Some(key), Protocol::Meta, Operation::Acquire),
                    None => Planned::new(Some(key), self.words(), Operation::Get),
                });
            }
            for record in self.ask(&board.keys, plan)? {
                let is_done = match (&record.answer, holder) {
                    (Some(Answer::Held { by }), Some(holder)) => *by != holder,
                    (Some(Answer::Granted { .. }), Some(_)) | (Some(Answer::Missing), None) => true,
                    (Some(Answer::Hit(_)), None) => false,
                    _ => return Err(io::Error::other(format!("no look at a key: {record}"))),
                };
                if is_done {
                    done.extend(record.key);
                }
                looks.push(Look { record, is_done });
            }
        }
        // A free lock was taken; it is asked for under this name no more.
        let unlock_all = Planned::new(None, self.words(), Operation::UnlockAll);
        self.ask(&board.keys, vec![unlock_all])?;
        Ok(looks)
    }
}

/// Whether meta text can say it with `j`.
const fn may_be_in_session(operation: &Operation) -> bool {
    match operation {
        Operation::Store(_)
        | Operation::Delete { .. }
        | Operation::MarkStale { .. }
        | Operation::Count { .. }
        | Operation::Acquire
        | Operation::Release { .. } => true,
        Operation::Get
        | Operation::Vivify
        | Operation::ReplaceAndUnlock(_)
        | Operation::Lock
        | Operation::LockAndGet
        | Operation::Unlock
        | Operation::UnlockAll
        | Operation::Flush
        | Operation::Death => false,
    }
}

/// Whether a protocol has words for it.
fn is_said(operation: &Operation, protocol: Protocol) -> bool {
    let (classic, meta, binary) = match operation {
        Operation::Get | Operation::Count { .. } => (true, true, true),
        Operation::Store(store) => {
            let is_plain = store.fence.is_none() && !store.else_stale;
            (is_plain, true, is_plain)
        }
        Operation::Delete { guard } => (guard.is_none(), true, true),
        Operation::Vivify
        | Operation::MarkStale { .. }
        | Operation::Acquire
        | Operation::Release { .. } => (false, true, false),
        Operation::Lock | Operation::Unlock | Operation::UnlockAll | Operation::Flush => {
            (true, false, true)
        }
        Operation::LockAndGet | Operation::ReplaceAndUnlock(_) => (false, false, true),
        Operation::Death => (false, false, false),
    };
    match protocol {
        Protocol::Classic => classic,
        Protocol::Meta => meta,
        Protocol::Binary => binary,
    }
}
