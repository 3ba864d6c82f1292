//! Locks on memcached: two real clients, a real server, and a network and clocks that do their worst.
//!
//! Both clients are the real [`Leases`](latchd_client_core::Leases). The server is the real core
//! behind the real [`Connection`](latchd_protocol::connection::Connection), and they exchange bytes.
//! The world between them loses requests and replies with their connection. It executes a request
//! long after its client has given it up, stops a client for a while, and lets the second client's
//! clock run one percent slow. The server counts time as a memcached does: in whole seconds with a
//! start of its own, so an item is gone half a second early here.
//!
//! - N1: at most one client believes at a time, each by its own clock.
//! - N2: if a client believes, the item on the server belongs to it.
//!
//! A server that restarts has no items, and counts its versions from the beginning. Its earlier
//! grants are void, and no client believes in them once the connections broke: a client that asks
//! over a new one is in doubt until it is answered.
//!
//! Time ends after [`Bounds::steps`] steps, so the search ends.

mod trap;
mod world;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::frame::{Bounded, Framed, Judged, Offence, Shown, named, witnesses};

pub use trap::{TRAPS, Trap};
pub use world::World;
use world::{LeaseClient, STEP_MS};

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// Steps of a second.
    pub steps: u64,
    /// How often clients may be stopped, in total.
    pub stops: u8,
    /// Connections that may break, in total.
    pub breaks: u8,
    /// Restarts of the server.
    pub restarts: u8,
    /// Obtains that each client may begin.
    pub obtains: u8,
    /// Whether the watchdog renews.
    pub renews: bool,
    /// The trap between the clients and the world.
    pub trap: Option<Trap>,
    /// States and transitions, as of the last intended change of model or client.
    pub pinned: (usize, usize),
}

/// Two clients and a network; the others differ from it.
const ASK: Bounds = Bounds {
    name: "lease-ask",
    steps: 4,
    stops: 0,
    breaks: 1,
    restarts: 0,
    obtains: 1,
    renews: true,
    trap: None,
    pinned: (3_260_863, 8_302_053),
};

/// The models that are checked.
pub const ALL: &[Bounds] = &[
    ASK,
    Bounds {
        name: "lease-stopped",
        stops: 1,
        breaks: 0,
        pinned: (216_891, 500_810),
        ..ASK
    },
    Bounds {
        name: "lease-restart",
        breaks: 0,
        restarts: 1,
        pinned: (463_410, 1_153_981),
        ..ASK
    },
];

/// The events.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Happening {
    /// A second passes, and each client that is not stopped does its due work.
    Time,
    /// A client begins to obtain.
    Obtain(usize),
    /// A client releases.
    Release(usize),
    /// A client is stopped: it neither hears nor does anything.
    Stop(usize),
    /// It continues.
    Continue(usize),
    /// The server executes a client's request.
    Serve(usize),
    /// A client gets its answer.
    Hear(usize),
    /// A client's connection breaks. The requests that it has sent may still be executed.
    Break(usize),
    /// The server executes a request that a client has sent on a broken connection.
    ServeLate(usize),
    /// The server ends and starts again. All connections break, and requests that were sent are not
    /// executed.
    Restart,
}

witnesses! {
    &'static str, Bounds;
    HandedOver of "N1", "the lock changes hands", |_| true;
    Lost of "N1", "a client learns that its lock is lost", |_| true;
    Resolved of "N2", "a lost answer turns out to be that the item is the client's own", |b| b.breaks > 0;
    LateInVain of "N2", "a request that is executed late changes nothing", |b| b.breaks > 0;
    LateAfterRestart of "N2", "a client that releases after a restart a lease granted before learns that it is not its own", |b| b.restarts > 0;
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

    fn happenings(&self, world: &World, actions: &mut Vec<Happening>) {
        if world.view.now_ms < self.steps * STEP_MS {
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
                if one.obtains_left > 0 && one.id.is_none() && one.request.is_none() {
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

    fn happen(&self, world: &mut World, happening: Happening) -> Judged {
        world.happen(happening, self.trap)
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

/// All of them, with these bounds instead of the pinned ones, if given: the seconds, and whether
/// the watchdog renews.
pub fn within(steps: Option<u64>, renews: Option<bool>) -> impl Iterator<Item = Bounds> {
    ALL.iter().map(move |bounds| Bounds {
        steps: steps.unwrap_or(bounds.steps),
        renews: renews.unwrap_or(bounds.renews),
        ..*bounds
    })
}

/// The shortest way into a trap, in the model that shows it.
#[must_use]
pub fn fall_into(trap: Trap) -> Option<Offence> {
    // A client that believes for ever notices its loss unless it is stopped.
    let name = match trap {
        Trap::BelievesForEver => "lease-stopped",
        Trap::TrustsOldVersion => "lease-restart",
        Trap::CountsFromAnswer
        | Trap::NoMargin
        | Trap::ReleasesBlindly
        | Trap::RenewsBlindly
        | Trap::ObtainsBlindly
        | Trap::ComparesPrefix
        | Trap::GuessesDone => "lease-ask",
    };
    let bounds = ALL.iter().find(|bounds| bounds.name == name)?;
    let trap = Some(trap);
    Bounds { trap, ..*bounds }.search(usize::MAX).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trap_is_fallen_into() {
        let found = TRAPS.iter().map(|(trap, _)| {
            let offence = fall_into(*trap);
            println!("{trap:?}: {offence:?}");
            (*trap, offence.map_or(0, |offence| offence.steps))
        });
        assert_eq!(found.collect::<Vec<_>>(), TRAPS);
    }

    #[test]
    fn a_search_stops_at_its_step_limit() {
        let trap = Some(Trap::GuessesDone);
        let trapped = Bounds { trap, ..ALL[0] };
        let steps = |steps_max| trapped.search(steps_max).map_err(|offence| offence.steps);
        assert_eq!(steps(0), Ok(1));
        assert!(steps(1).is_ok());
        assert_eq!(steps(2), Err(2));
    }
}
