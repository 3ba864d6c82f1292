//! Several shards answer as one core does: the server's shards beside one core, on random sequences. The one core is
//! compared with the oracle elsewhere (`oracles properties`).
//!
//! Numbers of versions differ, since each shard counts in strides of its own; the replies must be the same
//! otherwise. Before each step both do all that is due. `TEST_SEQUENCES` is the number of sequences (default: 3,000).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a few requests and replies are changed, and all others stay"
)]

use std::iter;

use latchd_core::engine::{Config, Core, Event, Notification};
use latchd_core::server::StateMachine;
use latchd_core::{Limits, Owner};
use latchd_harness::alphabet::{
    CLIENTS, CasChoice, ClientNumber, Environment, GuardChoice, Input, KEYS, Op, ReleaseChoice,
    SmallAcquire, SmallKey, SmallRequest, SmallSet, SmallValue, UNIX_S_AT_START, VALUE_BYTES_MAX,
};
use latchd_harness::lockstep::steps;
use latchd_harness::oracle::OwnedReply;
use latchd_harness::random::{Random, draw};
use latchd_protocol::fence::Fence;
use latchd_protocol::wait::Notice;
use latchd_server::verify::sharded::Sharded;

/// The longest sequence.
const OPS_MAX: u64 = 120;

/// The core of each key: two keys share one, or another two do.
const PLACES: [[usize; KEYS.len()]; 3] = [[0, 1, 1], [0, 1, 0], [1, 1, 0]];

/// Both, with an environment each, since they tell different numbers.
struct Both<M> {
    one: M,
    many: Sharded,
    environments: [Environment; 2],
}

impl<M: StateMachine> Both<M> {
    /// One step on both. Returns whether both had the same reply and the same notices.
    fn step(&mut self, op: &Op) -> Result<(), String> {
        let [one, many] = &mut self.environments;
        let asked = [one.asked(op), many.asked(op)];
        let now = one.clock().now;
        let (Some(for_one), Some(for_many)) = (one.enact(op), many.enact(op)) else {
            return Ok(());
        };
        self.one.handle(now, Event::Due);
        self.many.handle(now, Event::Due);
        self.compare_notices()?;
        let inputs = [for_one, for_many];
        let mut replies = [None, None];
        let machines: [&mut dyn StateMachine; 2] = [&mut self.one, &mut self.many];
        let places = machines.into_iter().zip(inputs).zip(&mut self.environments);
        for (((machine, input), environment), (reply, asked)) in
            places.zip(replies.iter_mut().zip(asked))
        {
            match input {
                Input::Event(event) => machine.handle(now, event),
                Input::Command(owner, command) => {
                    machine.execute(now, owner, &command, &mut |told| {
                        if let Some(asked) = &asked {
                            environment.learn(asked, told);
                        }
                        *reply = Some(without_numbers(OwnedReply::of(told, steps(&command).len())));
                    });
                }
                Input::Memory { .. } => return Ok(()),
            }
        }
        let [one, many] = replies;
        if one != many {
            return Err(format!("one core: {one:?}\n two cores: {many:?}"));
        }
        // What a command leaves for other keys follows at once.
        self.one.handle(now, Event::Due);
        self.many.handle(now, Event::Due);
        self.compare_notices()
    }

    fn compare_notices(&mut self) -> Result<(), String> {
        let machines: [&mut dyn StateMachine; 2] = [&mut self.one, &mut self.many];
        let all = machines.map(|machine| {
            let polled = iter::from_fn(|| machine.poll().and_then(Notification::wait_over));
            let mut all: Vec<Notice> = polled
                .filter(|notice| is_open(&self.environments[0], notice.owner))
                .collect();
            all.sort_by_key(|notice| notice.owner);
            all
        });
        for (environment, notices) in self.environments.iter_mut().zip(&all) {
            for notice in notices {
                environment.settle(*notice);
            }
        }
        let [one, many] = all;
        if one != many {
            return Err(format!("one core: {one:?}\n two cores: {many:?}"));
        }
        Ok(())
    }
}

/// The clients. The last one is a session.
fn clients() -> impl Iterator<Item = ClientNumber> {
    (0..CLIENTS).map(|number| ClientNumber::new(u8::try_from(number).expect("a few")))
}

fn is_open(environment: &Environment, owner: Owner) -> bool {
    clients().any(|client| environment.connection(client) == Some(owner))
}

fn without_numbers(mut reply: OwnedReply) -> OwnedReply {
    match &mut reply {
        OwnedReply::Hit(seen)
        | OwnedReply::Granted {
            item: Some(seen), ..
        } => {
            seen.cas = 0;
            if let Some(lock) = &mut seen.lock {
                lock.lock.fence = Fence::FIRST;
            }
        }
        OwnedReply::Stored { cas, .. } | OwnedReply::Number { cas, .. } => *cas = 0,
        OwnedReply::Contended(lock) | OwnedReply::WouldDeadlock(lock) => {
            lock.lock.fence = Fence::FIRST;
        }
        _ => {}
    }
    if let OwnedReply::Granted { fence, .. } = &mut reply {
        *fence = 0;
    }
    reply
}

/// Steps after which clients know two versions and two grants of a key: an unknown one would be number 1, which is
/// another's in each machine.
fn known(key: usize) -> impl Iterator<Item = Op> {
    let key = SmallKey::new(u8::try_from(key).expect("a few"));
    let requests = [
        SmallRequest::Set(SmallSet::new(key, SmallValue::Word)),
        SmallRequest::Acquire(SmallAcquire::new(key)),
        SmallRequest::Release {
            key,
            of: ReleaseChoice::Own,
        },
    ];
    let client = ClientNumber::new(0);
    let twice = requests.into_iter().chain(requests);
    twice.map(move |request| Op::Request { client, request })
}

/// A version that is a little higher than the last known one may be a later one in one machine.
const fn without_higher(guard: GuardChoice) -> GuardChoice {
    match guard {
        GuardChoice::Match(CasChoice::Higher) => GuardChoice::Match(CasChoice::Highest),
        GuardChoice::MatchElseStale(CasChoice::Higher) => {
            GuardChoice::MatchElseStale(CasChoice::Highest)
        }
        other => other,
    }
}

/// The next operation, of those that mean the same for one core and for several: no given versions and no guesses at them, no pages of
/// keys, no clock that steps back, no change of the memory limit.
fn drawn(random: &mut Random) -> Op {
    loop {
        let mut op: Op = draw(random);
        match &mut op {
            Op::Rewind { .. } | Op::Pressure { .. } | Op::Limit { .. } => continue,
            Op::Request { request, .. } => match request {
                SmallRequest::Keys { .. } => continue,
                SmallRequest::Get(get) => {
                    get.new_cas = None;
                    get.known_cas = get.known_cas.filter(|cas| *cas != CasChoice::Higher);
                    if get.recaches {
                        get.bound_to_owner = random.chance(1, 2);
                        get.wait_ms = *random.choose(&[None, Some(400), Some(60_000)]);
                    }
                }
                SmallRequest::Set(set) => {
                    (set.new_cas, set.guard) = (None, without_higher(set.guard));
                }
                SmallRequest::Delete(delete) => {
                    (delete.new_cas, delete.guard) = (None, without_higher(delete.guard));
                }
                SmallRequest::Arithmetic(arithmetic) => {
                    (arithmetic.new_cas, arithmetic.guard) =
                        (None, without_higher(arithmetic.guard));
                }
                _ => {}
            },
            _ => {}
        }
        return op;
    }
}

fn play(seed: u64) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let mut limits = Limits::new(8 << 20, VALUE_BYTES_MAX);
    let has_session = random.chance(1, 2);
    if random.chance(1, 2) {
        limits.locks_per_connection_max = 2;
        limits.bound_wins_per_connection_max = 2;
    }
    let places = *random.choose(&PLACES);
    let keys: Vec<_> = KEYS.into_iter().zip(places).collect();
    let mut both = Both {
        one: Core::reference(Config::new(limits, UNIX_S_AT_START)),
        many: Sharded::new(limits, UNIX_S_AT_START, &keys),
        environments: [Environment::new(), Environment::new()],
    };
    let (mut waiting, mut ops) = (0, Vec::new());
    let opens = clients().map(|client| Op::Open { client });
    let known = (0..KEYS.len()).flat_map(known);
    let requests = (0..random.below(OPS_MAX)).map(|_| drawn(&mut random));
    let closes = clients().map(|client| Op::Close { client });
    for op in opens.chain(known).chain(requests).chain(closes) {
        if let Op::Open { client } = op
            && client.is_session()
            && !has_session
        {
            continue;
        }
        if let Op::Request { client, .. } = op
            && both.environments[0].connection(client).is_none()
        {
            continue;
        }
        ops.push(op);
        both.step(&op).map_err(|parted| {
            let lines: Vec<String> = ops.iter().map(|op| format!("  {op:?}\n")).collect();
            format!(
                "seed {seed}, cores {places:?}, after\n{}{parted}",
                lines.concat()
            )
        })?;
        waiting += both.many.waiting();
    }
    assert_eq!(both.many.waiting(), 0, "seed {seed}: no client is left");
    Ok(waiting)
}

#[test]
fn two_cores_answer_as_one() {
    let sequences = std::env::var("TEST_SEQUENCES").map_or(3_000, |count| count.parse().unwrap());
    let mut waiting = 0;
    for seed in 0..sequences {
        waiting += play(seed).unwrap_or_else(|parted| panic!("{parted}"));
    }
    assert!(waiting > 1_000, "{waiting}");
}
