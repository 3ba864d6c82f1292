//! What of a world can matter to what comes, the same for worlds that differ in names alone: the least
//! over all orders of the clients.

use latchd_core::ConnId;
use latchd_core::engine::{Core, Holding, Taken, View};
use latchd_core::key::Key;
use latchd_core::wait::Outcome;

use super::Bounds;
use super::world::{Client, Parked, World};
use crate::frame::{CLIENTS_MAX, least_view};

/// Who has gone.
const GONE: u8 = 0xfe;

/// No such thing.
const NONE: u8 = 0xff;

pub(super) fn of(bounds: &Bounds, world: &World) -> Vec<u8> {
    let cores: Vec<View<'_>> = world.cores.iter().map(Core::view).collect();
    least_view(bounds.clients, |names| under(world, &cores, names))
}

/// Among how many; the models know few numbers.
fn among(among: u32) -> u8 {
    u8::try_from(among).unwrap_or(NONE)
}

fn under(world: &World, cores: &[View<'_>], names: [u8; CLIENTS_MAX]) -> Vec<u8> {
    let shown = Shown { world, names };
    let mut out = Vec::with_capacity(96);
    shown.clients(&mut out);
    shown.lines(&mut out);
    for core in cores {
        shown.core(core, &mut out);
    }
    out
}

/// A world whose clients have these names.
struct Shown<'a> {
    world: &'a World,
    names: [u8; CLIENTS_MAX],
}

impl Shown<'_> {
    /// How far it is to a moment. Who is late is late, however much.
    fn left(&self, until_ms: u64) -> u8 {
        let left_ms = until_ms.saturating_sub(self.world.now_ms);
        u8::try_from(left_ms / 100).unwrap_or(NONE)
    }

    fn name(&self, conn: ConnId) -> u8 {
        let client = self.world.client_of(conn);
        client.map_or(GONE, |client| self.names[client])
    }

    fn clients(&self, out: &mut Vec<u8>) {
        let mut by_name = [Client::default(); CLIENTS_MAX];
        for (client, name) in self.world.clients.iter().zip(&self.names) {
            by_name[usize::from(*name)] = *client;
        }
        for Client { conn, parked } in by_name {
            out.push(conn.is_some().into());
            out.extend(parked.map_or([NONE; 4], |parked| self.parked(parked)));
        }
    }

    fn parked(&self, parked: Parked) -> [u8; 4] {
        let Parked {
            key,
            asks,
            until_ms,
            told,
        } = parked;
        let until = if told.is_some() {
            0
        } else {
            self.left(until_ms)
        };
        let told = match told {
            None => 0,
            Some(Outcome::Granted) => 1,
            Some(Outcome::TimedOut) => 2,
            Some(Outcome::NotFound) => 3,
            Some(Outcome::TooManyLocks) => 4,
        };
        [u8::try_from(key).unwrap_or(NONE), asks as u8, until, told]
    }

    /// Who waits for each key, and who holds it.
    fn lines(&self, out: &mut Vec<u8>) {
        for (line, held) in self.world.lines.iter().zip(&self.world.held) {
            // In the order of the line; who stands in it is said above.
            out.extend(line.iter().map(|client| self.names[*client]));
            out.push(NONE);
            // A core that was not told the time may not know yet what was given is over.
            for held in held {
                let lease = held.lease_until_ms.map_or(NONE, |at| self.left(at));
                out.extend([self.names[held.client], lease, among(held.among)]);
            }
            out.push(NONE);
        }
    }

    fn core(&self, core: &View<'_>, out: &mut Vec<u8>) {
        let View {
            store,
            shares,
            locks,
            connections,
            handovers,
            ended,
            waits,
            // Nobody gets anything.
            bound_wins: _,
            win_waits: _,
            // Taken after every call.
            notices: _,
            limits: _,
            clock,
            // Nobody asks for one.
            next_cas: _,
            cas_stride: _,
            // Nobody flushes.
            flush_at: _,
        } = core;
        out.push(self.left(clock.now.as_millis()));
        out.push((clock.now.as_millis() == self.world.now_ms).into());
        // Nothing is ever evicted, so their order decides nothing.
        let items = store.entries.iter().map(|item| item.key.as_bytes());
        let mut items: Vec<_> = items.collect();
        items.sort_unstable();
        out.extend(items.concat());
        out.push(NONE);
        for (key, holding) in locks {
            out.extend(key.as_bytes());
            out.extend(self.holding(holding));
        }
        out.push(NONE);
        for (key, shares) in shares {
            out.extend(key.as_bytes());
            out.extend(shares.iter().flat_map(|share| self.holding(share)));
            out.push(NONE);
        }
        out.push(NONE);
        let connections = connections.iter();
        let connections = connections.map(|(conn, keys, _)| (self.name(*conn), keys));
        let mut connections: Vec<_> = connections.collect();
        connections.sort();
        for (conn, keys) in connections {
            out.push(conn);
            out.extend(keys.iter().flat_map(Key::as_bytes));
        }
        out.push(NONE);
        out.extend(handovers.iter().flat_map(Key::as_bytes));
        out.push(NONE);
        out.extend(ended.iter().flat_map(Key::as_bytes));
        out.push(NONE);
        for (key, queue) in waits {
            out.extend(key.as_bytes());
            for (conn, waiter) in queue {
                let until = self.left(waiter.until.as_millis());
                let bits = u8::from(waiter.lease.is_some()) << 1 | u8::from(waiter.needs_item);
                out.extend([self.name(*conn), until, bits, among(waiter.mode.among())]);
            }
        }
    }

    fn holding(&self, holding: &Holding) -> [u8; 4] {
        let marks = [
            holding.is_over,
            holding.is_expired,
            holding.has_item,
            holding.is_waited,
            holding.is_untold,
            holding.taken == Taken::ForKey,
        ];
        let bits = marks
            .iter()
            .fold(0, |bits, mark| bits << 1 | u8::from(*mark));
        let lease = holding.lease_until;
        let lease = lease.map_or(NONE, |at| self.left(at.as_millis()));
        let among = among(holding.mode.among());
        [self.name(holding.owner), bits, lease, among]
    }
}
