//! Draws sequences of operations for quickcheck, and shortens the failing ones.

use arbitrary::{Arbitrary as _, Unstructured};
use latchd_core::command::{LockAfter, Removal, TtlStep, TtlSteps};
use latchd_core::time::Exptime;
use latchd_harness::alphabet::{Op, SmallRequest};
use quickcheck::{Arbitrary, Gen};

/// More bytes than any operation is drawn from.
const OP_BYTES: usize = 48;

/// One operation, as quickcheck draws and shortens it. Any sequence of them is one that can happen,
/// so what quickcheck leaves out of a sequence leaves a valid one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrawnOp(pub Op);

impl Arbitrary for DrawnOp {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(draw_op(&mut random_of(g)))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.plainer().into_iter().map(Self))
    }
}

/// One of a sequence that has to do with locks and little else, so that many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrawnTurn(pub Op);

impl Arbitrary for DrawnTurn {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut random = random_of(g);
        let mut op = draw_op(&mut random);
        while !is_about_locks(&op) {
            op = draw_op(&mut random);
        }
        Self(op)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.plainer().into_iter().map(Self))
    }
}

/// One of a sequence that has to do with wins and little else: many gets bind theirs, and many wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrawnRead(pub Op);

/// How long gets wait, in milliseconds: some less than a sequence lasts, and one longer.
const WAITS_MS: [Option<u32>; 4] = [None, Some(400), Some(1_500), Some(60_000)];

impl Arbitrary for DrawnRead {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut random = random_of(g);
        let mut op = draw_op(&mut random);
        while !is_about_wins(&op) {
            op = draw_op(&mut random);
        }
        if let Op::Request { request, .. } = &mut op
            && let SmallRequest::Get(get) = request
            && get.recaches
        {
            get.binds = random.chance(2, 3);
            get.wait_ms = *random.choose(&WAITS_MS);
            // So that there is something to wait for.
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
        Op::Open { .. } | Op::Close { .. } | Op::Advance { .. } | Op::Tick | Op::Due => true,
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
        Op::Open { .. } | Op::Close { .. } | Op::Advance { .. } | Op::Tick | Op::Due => true,
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

/// Quickcheck's own numbers come with a taste for the extreme; bytes are to be even.
fn random_of(g: &mut Gen) -> Random {
    let seed = (0..8).fold(0, |seed, _| {
        seed << 8 | *g.choose(&BYTES).expect("not empty")
    });
    Random::new(seed)
}

/// Draws an operation.
///
/// # Panics
/// If an operation took more bytes than there are.
pub fn draw_op(random: &mut Random) -> Op {
    let mut bytes = [0; OP_BYTES];
    random.fill(&mut bytes);
    Op::arbitrary(&mut Unstructured::new(&bytes)).expect("there are bytes enough")
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

/// Random numbers from a seed: the same seed, the same numbers, on every machine.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014),
/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number; every one is as likely.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. A little uneven for bounds near 2^64.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether something happens that happens `times` in `of` times.
    pub const fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One of a list that is not empty.
    pub fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(of.len() as u64)).expect("an index");
        &of[index]
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}
