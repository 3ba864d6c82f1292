//! Elections: real elections of one partition, an authority, and a network and clocks that do their worst.
//!
//! Each process has the real [`Election`](latchd_cluster::election::Election). The authority executes a transaction
//! when the network brings it: in time, after the next one was sent, twice or never. Its answer arrives, arrives after
//! the next transaction was sent, or never.
//! Processes are stopped and continued, killed and started again with the same state directory, and told to leave.
//! The record can be deleted. The clock of the first process and that of the client run at 0.8 of the others' rate,
//! so a hold and a wait that are safe for 5 % are not used: these are safe for that.
//!
//! - X1: No two processes hold a partition at once, and no reply leaves a process while another one serves.
//! - X2: While a client believes in a lock by the time that `mn H` gave it, no process grants locks but the one that it
//!   asked. Its belief ends early only if it has closed its connection, because the process left.
//! - X3: A number that a term gives is above all numbers of earlier terms.
//! - X5: If all processes are alive and the authority answers, one serves within T + 1 s.
//! - X6: A term is not over while the record names it.
//!
//! Time ends after [`Bounds::steps`] steps, so the search ends.

mod trap;
mod world;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::frame::{Bounded, Framed, Judged, Offence, Shown, named, witnesses};

pub use trap::{TRAPS, Trap};
pub use world::World;

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// How many processes.
    pub processes: usize,
    /// Steps of time.
    pub steps: u64,
    /// Steps of time that a transaction may wait for the authority or for its answer, in total.
    pub delays: u8,
    /// Transactions that are executed or answered after another one was sent, or a second time.
    pub lates: u8,
    /// How often processes may be stopped.
    pub stops: u8,
    /// How often processes may be killed and started again.
    pub restarts: u8,
    /// Deletions of the record.
    pub deletions: u8,
    /// How many processes may be told to leave.
    pub leaves: u8,
    /// Requests of the client.
    pub asks: u8,
    /// The trap between the elections and the world.
    pub trap: Option<Trap>,
    /// States and transitions, as of the last intended change of model or election.
    pub pinned: (usize, usize),
}

/// Two processes and a network that delays; the others differ from it.
const DELAYED: Bounds = Bounds {
    name: "election-delayed",
    processes: 2,
    steps: 9,
    delays: 6,
    lates: 1,
    stops: 0,
    restarts: 0,
    deletions: 0,
    leaves: 0,
    asks: 0,
    trap: None,
    pinned: (816_665, 3_075_735),
};

/// The models that are checked.
pub const ALL: &[Bounds] = &[
    DELAYED,
    Bounds {
        name: "election-stopped",
        steps: 8,
        delays: 1,
        lates: 0,
        stops: 1,
        asks: 1,
        pinned: (139_291, 288_077),
        ..DELAYED
    },
    Bounds {
        name: "election-cut",
        steps: 8,
        delays: 5,
        lates: 0,
        asks: 1,
        pinned: (499_244, 1_067_692),
        ..DELAYED
    },
    Bounds {
        name: "election-restart",
        steps: 5,
        delays: 3,
        lates: 0,
        restarts: 1,
        asks: 1,
        pinned: (255_933, 535_320),
        ..DELAYED
    },
    Bounds {
        name: "election-deleted",
        steps: 7,
        delays: 3,
        deletions: 1,
        pinned: (178_165, 608_407),
        ..DELAYED
    },
    Bounds {
        name: "election-deleted-twice",
        processes: 3,
        steps: 6,
        delays: 2,
        lates: 0,
        deletions: 2,
        pinned: (469_675, 793_994),
        ..DELAYED
    },
    Bounds {
        name: "election-leaves",
        steps: 5,
        delays: 2,
        lates: 0,
        leaves: 1,
        asks: 1,
        pinned: (56_449, 145_152),
        ..DELAYED
    },
    Bounds {
        name: "election-three",
        processes: 3,
        steps: 6,
        delays: 4,
        lates: 0,
        pinned: (81_785, 140_891),
        ..DELAYED
    },
];

/// The events.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Happening {
    /// Time passes, and each process that is not stopped does its due work.
    Time,
    /// The authority executes the transaction of a process, which gets the answer at once.
    Execute(usize),
    /// It executes it, and the answer is late.
    ExecuteMute(usize),
    /// It executes it, and a copy of it is still on the way.
    ExecuteOne(usize),
    /// The authority executes a transaction late.
    ExecuteLate(usize),
    /// A process gets its late answer.
    Hear(usize),
    /// A process gets the answer to a transaction before the one under way, or a second answer.
    HearLate(usize),
    /// A process is stopped: it neither hears nor does anything.
    Stop(usize),
    /// It continues.
    Continue(usize),
    /// A process is killed, and another one starts with its state directory.
    Restart(usize),
    /// The record is deleted.
    Delete,
    /// A process gets SIGTERM.
    Leave(usize),
    /// It has closed.
    Close(usize),
    /// A process executes the client's request. The reply is deferred or not.
    Ask(usize, bool),
    /// The reply leaves the process.
    Send(usize),
    /// The client gets it.
    HearReply,
}

witnesses! {
    &'static str, Bounds;
    HandedOver of "X1", "another process serves", |_| true;
    Outlived of "X1", "a hold is over while its process lives", |b| b.stops > 0 || b.asks > 0 && b.delays > 4;
    Dropped of "X1", "a reply is dropped before it leaves", |b| b.stops > 0;
    Resumed of "X1", "a suspended process serves again", |b| b.delays > 4;
    Doubted of "X1", "a heartbeat or a claim without an answer turns out to have been executed", |b| b.delays > 1;
    LateInVain of "X1", "a transaction that is executed late changes nothing", |b| b.lates > 0;
    LateCounts of "X1", "an answer after the next transaction begins or lengthens a hold", |b| b.lates > 0;
    Believed of "X2", "a client believes in a process that does not serve any more", |b| b.asks > 0 && (b.stops > 0 || b.delays > 4);
    Withheld of "X2", "a client believes in a process while its successor serves", |b| b.asks > 0 && b.restarts > 0;
    Numbered of "X3", "a second term gives a number", |b| b.asks > 1;
    Restarted of "X1", "a process that was started again claims at once", |b| b.restarts > 0;
    Free of "X1", "a free record is claimed", |b| b.leaves > 0;
    Again of "X1", "a vacant record is claimed", |b| b.deletions > 0;
}

named!(Bounds, |bounds| format!("{bounds:?}"));

impl Bounded for Bounds {
    type World = World;
    type Happening = Happening;
    type View = u64;
    type Label = Happening;

    fn first(&self) -> World {
        World::new(self)
    }

    fn happenings(&self, world: &World, happenings: &mut Vec<Happening>) {
        world.happenings(happenings);
    }

    fn happen(&self, world: &mut World, happening: Happening) -> Judged {
        world.happen(happening)
    }

    fn probe(&self, world: &World) -> Result<Shown, String> {
        world.ends_well().map(|()| Shown::default())
    }

    fn view(&self, world: &World) -> u64 {
        let mut hasher = DefaultHasher::new();
        world.view.hash(&mut hasher);
        hasher.finish()
    }

    fn label(happening: &Happening, _: &World) -> Happening {
        *happening
    }

    fn seen(world: &World) -> Shown {
        world.seen
    }
}

/// The shortest way into a trap, within the bounds that have it.
#[must_use]
pub fn fall_into(trap: Trap) -> Option<Offence> {
    trap.bounds().search(usize::MAX).err()
}
