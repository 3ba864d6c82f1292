//! Draws sequences of operations for quickcheck, and shortens the failing ones.

use latchd_harness::alphabet::{Op, SmallRequest};
use latchd_harness::random::{Random, draw};
use latchd_protocol::command::{LockAfter, Removal, TtlStep, TtlSteps};
use latchd_protocol::time::Exptime;
use quickcheck::{Arbitrary, Gen};

/// One operation, as quickcheck draws and shortens it. Any sequence of them can happen, so
/// shortening a sequence leaves a valid one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DrawnOp(pub(crate) Op);

impl Arbitrary for DrawnOp {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(draw(&mut random_of(g)))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.plainer().into_iter().map(Self))
    }
}

/// One op of a sequence about locks and little else, so that many clients wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DrawnTurn(pub(crate) Op);

impl Arbitrary for DrawnTurn {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut random = random_of(g);
        let mut op = draw(&mut random);
        while !is_about_locks(&op) {
            op = draw(&mut random);
        }
        Self(op)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.plainer().into_iter().map(Self))
    }
}

/// One op of a sequence about wins and little else: many gets bind theirs, and many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DrawnRead(pub(crate) Op);

/// How long gets wait, in milliseconds: some less than a sequence lasts, and one longer.
const WAITS_MS: [Option<u32>; 4] = [None, Some(400), Some(1_500), Some(60_000)];

impl Arbitrary for DrawnRead {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut random = random_of(g);
        let mut op = draw(&mut random);
        while !is_about_wins(&op) {
            op = draw(&mut random);
        }
        if let Op::Request { request, .. } = &mut op
            && let SmallRequest::Get(get) = request
            && get.recaches
        {
            get.bound_to_owner = random.chance(2, 3);
            get.wait_ms = *random.choose(&WAITS_MS);
            // So that there is a value to wait for.
            if random.chance(1, 2) {
                get.steps = TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 2 }));
            }
        }
        Self(op)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.plainer().into_iter().map(Self))
    }
}

fn is_about_wins(op: &Op) -> bool {
    match op {
        Op::Open { .. }
        | Op::Close { .. }
        | Op::Detach { .. }
        | Op::Advance { .. }
        | Op::Tick
        | Op::Withhold { .. }
        | Op::Due => true,
        Op::Rewind { .. } | Op::WallClock { .. } | Op::Pressure { .. } | Op::Limit { .. } => false,
        Op::Request { request, .. } => match request {
            SmallRequest::Get(_)
            | SmallRequest::Set(_)
            | SmallRequest::SetTooLarge { .. }
            | SmallRequest::Delete(_)
            | SmallRequest::Arithmetic(_)
            | SmallRequest::Lock { .. }
            | SmallRequest::Unlock { .. }
            | SmallRequest::UnlockAll
            | SmallRequest::FlushAll { .. }
            | SmallRequest::Stats => true,
            SmallRequest::Acquire(acquire) => acquire.wait_ms.is_some(),
            SmallRequest::Release { .. } | SmallRequest::Keys { .. } | SmallRequest::StatsReset => {
                false
            }
        },
    }
}

fn is_about_locks(op: &Op) -> bool {
    match op {
        Op::Open { .. }
        | Op::Close { .. }
        | Op::Detach { .. }
        | Op::Advance { .. }
        | Op::Tick
        | Op::Withhold { .. }
        | Op::Due => true,
        Op::Rewind { .. } | Op::WallClock { .. } | Op::Pressure { .. } | Op::Limit { .. } => false,
        Op::Request { request, .. } => match request {
            SmallRequest::Acquire(_)
            | SmallRequest::Release { .. }
            | SmallRequest::Lock { .. }
            | SmallRequest::Unlock { .. }
            | SmallRequest::UnlockAll
            | SmallRequest::SetTooLarge { .. } => true,
            SmallRequest::Get(get) => get.lock,
            SmallRequest::Set(set) => set.lock == LockAfter::Release,
            SmallRequest::Delete(delete) => {
                delete.lock == LockAfter::Release || delete.removal == Removal::Remove
            }
            SmallRequest::Arithmetic(sum) => sum.lock == LockAfter::Release,
            SmallRequest::FlushAll { .. }
            | SmallRequest::Keys { .. }
            | SmallRequest::Stats
            | SmallRequest::StatsReset => false,
        },
    }
}

/// Quickcheck prefers extreme numbers; bytes are to be uniform.
fn random_of(g: &mut Gen) -> Random {
    let seed = (0..8).fold(0, |seed, _| {
        seed << 8 | *g.choose(&BYTES).expect("not empty")
    });
    Random::new(seed)
}

const BYTES: [u64; 256] = {
    let mut bytes = [0; 256];
    let mut n = 0;
    while n < 256 {
        bytes[n] = n as u64;
        n += 1;
    }
    bytes
};
