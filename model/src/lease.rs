//! Leases: two clients that ship, a server that ships, and a network and clocks that do their
//! worst.
//!
//! Both clients are the real [`Lease`](latchd_core::client::Lease), the server is the real core
//! behind the real [`Connection`](latchd_core::connection::Connection), and what travels are bytes.
//! The world between them loses requests and answers with their connection, executes a request long
//! after its client has given it up, stops a client for a while, and lets the second client's clock
//! run one percent slow. The server counts time as a memcached does: in whole seconds that begin
//! when it likes, so that an item is gone half a second early here.
//!
//! - N1: at most one client believes at a time, each by its own clock.
//! - N2: who believes, to them the item belongs on the server.
//! - N3: a later grant has a higher number. So a resource that refuses a lower number than it has
//!   seen refuses a holder who comes late.
//!
//! A server that restarts has no items, and counts its versions from the beginning. What it had
//! granted before is given away, and nobody believes in it from when the connections broke: a client
//! that asks over a new one (`OnDisconnect::Ask`) is in doubt until it is answered.
//!
//! Time ends after [`Bounds::steps`] steps, so the search does.

mod trap;
mod world;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant as StdInstant;

use latchd_core::client::OnDisconnect;
use stateright::{Checker, Model, Property};

use crate::frame::Outcome;
use crate::search;

pub use trap::{TRAPS, Trap};
pub use world::World;
use world::{LeaseClient, STEP_MS};

/// How far a world may go.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// Steps of a second.
    pub steps: u64,
    /// How often a client may be stopped, all in all.
    pub stops: u8,
    /// Connections that may break, all in all.
    pub breaks: u8,
    /// Restarts of the server.
    pub restarts: u8,
    /// Obtains that each client may begin.
    pub obtains: u8,
    /// What a broken connection means.
    pub on_disconnect: OnDisconnect,
    /// Whether the watchdog renews.
    pub renews: bool,
    /// What must be seen at least once, or the proof is about nothing.
    pub witnesses: &'static [Witness],
    /// States, as of the last change of model or client on purpose.
    pub pinned: usize,
}

/// Two clients who lose what they hold with their connection; the others differ from it.
const LOST: Bounds = Bounds {
    name: "lease-lost",
    steps: 4,
    stops: 0,
    breaks: 1,
    restarts: 0,
    obtains: 1,
    on_disconnect: OnDisconnect::Lost,
    renews: true,
    witnesses: &[Witness::HandedOver, Witness::Resolved, Witness::LateInVain],
    pinned: 1_570_154,
};

/// The same with a server that restarts.
const RESTART_LOST: Bounds = Bounds {
    name: "lease-restart-lost",
    breaks: 0,
    restarts: 1,
    witnesses: &[Witness::HandedOver, Witness::LateAfterRestart],
    pinned: 359_936,
    ..LOST
};

/// What is checked.
pub const ALL: &[Bounds] = &[
    LOST,
    Bounds {
        name: "lease-ask",
        on_disconnect: OnDisconnect::Ask,
        pinned: 1_852_814,
        ..LOST
    },
    Bounds {
        name: "lease-stopped",
        stops: 1,
        breaks: 0,
        witnesses: &[Witness::HandedOver, Witness::LateHolder],
        pinned: 109_655,
        ..LOST
    },
    RESTART_LOST,
    Bounds {
        name: "lease-restart-ask",
        on_disconnect: OnDisconnect::Ask,
        pinned: 474_712,
        ..RESTART_LOST
    },
];

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Happening {
    /// A second passes, and who is not stopped does what is to be done.
    Time,
    /// A client begins to obtain.
    Obtain(usize),
    /// A client gives back.
    Release(usize),
    /// A client is stopped: it neither hears nor does anything.
    Stop(usize),
    /// It goes on.
    Continue(usize),
    /// The server executes a client's request.
    Serve(usize),
    /// A client gets its answer.
    Hear(usize),
    /// A client's connection breaks. What it has sent may still be executed.
    Break(usize),
    /// The server executes what a client has sent on a connection that is broken.
    ServeLate(usize),
    /// The server ends and starts again. All connections break, and what was sent is not executed.
    Restart,
}

/// Something that must be seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Witness {
    /// The lock changes hands.
    HandedOver = 1,
    /// A holder who comes late has a lower number than its successor.
    LateHolder = 2,
    /// A lost answer turns out to be that the item is ours.
    Resolved = 4,
    /// A request that is executed late changes nothing.
    LateInVain = 8,
    /// Who gives back after a restart what was granted before it is told that it is not theirs.
    LateAfterRestart = 16,
}

/// Two clients and a server, within bounds.
#[derive(Clone, Debug)]
pub struct Leases {
    bounds: Bounds,
    trap: Option<Trap>,
    /// What any step has shown, also one to a state that was known already.
    seen: Arc<AtomicU8>,
}

impl Model for Leases {
    type State = World;
    type Action = Happening;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Happening>) {
        if world.view.fault.is_some() {
            return;
        }
        if world.view.now_ms < self.bounds.steps * STEP_MS {
            actions.push(Happening::Time);
        }
        let is_out = |one: &LeaseClient| one.request.is_some() || one.answer.is_some();
        if world.view.restarts_left > 0
            && world.view.clients.iter().any(|one| is_out(one) || one.told)
        {
            actions.push(Happening::Restart);
        }
        for (client, one) in world.view.clients.iter().enumerate() {
            if one.is_stopped {
                actions.push(Happening::Continue(client));
            } else {
                if one.obtains_left > 0 && !one.told && one.request.is_none() {
                    actions.push(Happening::Obtain(client));
                }
                if one.owes_release {
                    actions.push(Happening::Release(client));
                }
                if one.told && world.view.stops_left > 0 {
                    actions.push(Happening::Stop(client));
                }
                if one.answer.is_some() {
                    actions.push(Happening::Hear(client));
                }
                if world.view.breaks_left > 0 && (is_out(one) || one.told) {
                    actions.push(Happening::Break(client));
                }
            }
            if one.request.is_some() {
                actions.push(Happening::Serve(client));
            }
            if one.late.is_some() {
                actions.push(Happening::ServeLate(client));
            }
        }
    }

    fn next_state(&self, world: &World, happening: Happening) -> Option<World> {
        let mut next = world.clone();
        next.happen(happening, self.trap);
        self.seen.fetch_or(next.seen, Ordering::Relaxed);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ALWAYS, |_, world: &World| {
            world.view.fault.is_none()
        })]
    }
}

/// What must always hold.
const ALWAYS: &str = "N1, N2, N3";

/// Explores every state within the bounds, and checks that it is as many as are pinned.
#[must_use]
pub fn check(bounds: &Bounds, threads: usize) -> Outcome {
    let model = Leases {
        bounds: *bounds,
        trap: None,
        seen: Arc::default(),
    };
    let seen = Arc::clone(&model.seen);
    let start = StdInstant::now();
    let checker = model.checker().threads(threads).spawn_bfs().join();
    let mut complaints = String::new();
    if let Some(path) = checker.discovery(ALWAYS) {
        let fault = path.last_state().view.fault.unwrap_or(ALWAYS);
        let way = path.into_actions();
        let _ = writeln!(complaints, "  {}: {fault}, after {way:?}", bounds.name);
    }
    for witness in bounds.witnesses {
        if seen.load(Ordering::Relaxed) & *witness as u8 == 0 {
            let _ = writeln!(complaints, "  {}: never seen: {witness:?}", bounds.name);
        }
    }
    let states = checker.unique_state_count();
    if complaints.is_empty() && states != bounds.pinned {
        let _ = writeln!(
            complaints,
            "  {}: {states} states, and pinned are {}: if the model or the client has changed on \
             purpose, pin the new number",
            bounds.name, bounds.pinned
        );
    }
    Outcome {
        states,
        transitions: checker.state_count() - 1,
        depth: checker.max_depth() - 1,
        time: start.elapsed(),
        complaints,
    }
}

/// The shortest way into a trap, in the model where it is known to show, and what is wrong at its
/// end.
#[must_use]
pub fn fall_into(trap: Trap) -> Option<(Vec<Happening>, &'static str)> {
    // Who believes for ever is told of its loss unless it is stopped.
    let name = match trap {
        Trap::BelievesForEver => "lease-stopped",
        Trap::TrustsOldVersion => "lease-restart-lost",
        Trap::CountsFromAnswer
        | Trap::NoMargin
        | Trap::ReleasesBlindly
        | Trap::RenewsBlindly
        | Trap::ObtainsBlindly
        | Trap::ComparesPrefix
        | Trap::GuessesDone => "lease-ask",
    };
    let bounds = ALL.iter().find(|bounds| bounds.name == name)?;
    let model = Leases {
        bounds: *bounds,
        trap: Some(trap),
        seen: Arc::default(),
    };
    let fingerprint = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    search::shortest(&model, usize::MAX, fingerprint, |world| world.view.fault).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trap_is_fallen_into() {
        for (trap, steps) in TRAPS {
            let (way, fault) = fall_into(*trap).unwrap_or_else(|| panic!("{trap:?} is not found"));
            println!("{trap:?}: {fault} after {way:?}");
            assert_eq!(way.len(), *steps, "{trap:?}");
        }
    }
}
