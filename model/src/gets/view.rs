//! What of a world can matter to what comes, the same for worlds that differ in names alone: the least
//! over all orders of the clients.

use latchd_core::ConnId;
use latchd_core::engine::View;
use latchd_core::item::{ItemHeader, WinMark};
use latchd_core::time::Deadline;
use latchd_core::wait::Outcome;

use super::Bounds;
use super::world::{Client, Known, World};
use crate::frame::{CLIENTS_MAX, least_view};

/// Who has gone.
const GONE: u8 = 0xfe;

/// No such thing.
const NONE: u8 = 0xff;

pub(super) fn of(bounds: &Bounds, world: &World) -> Vec<u8> {
    let core = world.core.view();
    least_view(bounds.clients, |names| {
        let shown = Shown { world, names };
        let mut view = Vec::with_capacity(96);
        shown.clients(&mut view);
        for known in &world.keys {
            shown.known(known, &mut view);
        }
        shown.core(&core, &mut view);
        view
    })
}

fn bits(marks: &[bool]) -> u8 {
    marks
        .iter()
        .fold(0, |bits, mark| bits << 1 | u8::from(*mark))
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

    fn left_or_none(&self, until_ms: Option<u64>) -> u8 {
        until_ms.map_or(NONE, |until_ms| self.left(until_ms))
    }

    fn name(&self, conn: ConnId) -> u8 {
        let client = self.world.client_of(conn);
        client.map_or(GONE, |client| self.names[client])
    }

    fn name_or(&self, client: Option<usize>) -> u8 {
        client.map_or(GONE, |client| self.names[client])
    }

    fn clients(&self, out: &mut Vec<u8>) {
        let mut by_name = [Client::default(); CLIENTS_MAX];
        for (client, name) in self.world.clients.iter().zip(&self.names) {
            by_name[usize::from(*name)] = *client;
        }
        for Client { conn, parked } in by_name {
            out.push(conn.is_some().into());
            let Some(parked) = parked else {
                out.push(NONE);
                continue;
            };
            let told = match parked.told {
                None => 0,
                Some(Outcome::Granted) => 1,
                Some(Outcome::TimedOut) => 2,
                Some(Outcome::NotFound) => 3,
                Some(Outcome::TooManyLocks) => 4,
            };
            let until_ms = parked.told.is_none().then_some(parked.until_ms);
            out.push(u8::try_from(parked.key).unwrap_or(NONE));
            out.push(parked.gets as u8);
            out.push(told << 1 | u8::from(parked.has_won));
            out.push(self.left_or_none(until_ms));
        }
        out.push(self.left_or_none(self.world.flush_at_ms));
    }

    fn known(&self, known: &Known, out: &mut Vec<u8>) {
        let Known {
            item,
            win,
            is_open,
            line,
            holder,
        } = known;
        if let Some(item) = item {
            out.push(self.left_or_none(item.gone_at_ms));
            out.push(bits(&[item.is_stale, item.is_flushed]));
        }
        out.push(NONE);
        if let Some(won) = win {
            out.push(self.name_or(won.client));
            out.push(bits(&[won.is_bound, won.is_made, won.is_untold]));
        }
        out.push(NONE);
        out.extend(line.iter().map(|client| self.names[*client]));
        out.extend([NONE, (*is_open).into(), self.name_or(*holder)]);
    }

    fn core(&self, core: &View<'_>, out: &mut Vec<u8>) {
        let View {
            store,
            locks,
            // Nobody shares one.
            shares: _,
            // Whoever is open is so in the core (`Client::conn`); what it holds the locks say.
            connections: _,
            handovers,
            ended,
            // Nobody waits for a lock.
            waits: _,
            bound_wins,
            win_waits,
            // Taken after every call.
            notices: _,
            // The same from beginning to end.
            limits: _,
            clock,
            // Nobody asks for one.
            next_cas: _,
            cas_stride: _,
            flush_at,
        } = core;
        out.push((clock.now.as_millis() == self.world.now_ms).into());
        out.push(self.left_or_none(flush_at.map(latchd_core::Instant::as_millis)));
        // Whether there is more to do, and so whether items are still being looked at.
        let next = self.world.core.next_deadline();
        out.push(self.left_or_none(next.map(latchd_core::Instant::as_millis)));
        // Nothing is ever evicted, so their order decides nothing.
        let mut items: Vec<_> = store.entries.iter().collect();
        items.sort_unstable_by_key(|item| item.key);
        for item in items {
            out.extend(item.key.as_bytes());
            self.header(item.header, out);
        }
        out.push(NONE);
        for (key, holding) in locks {
            out.extend(key.as_bytes());
            out.push(self.name(holding.owner));
            out.push(bits(&[
                holding.is_over,
                holding.has_item,
                holding.flush_pending,
            ]));
        }
        out.push(NONE);
        for key in handovers {
            out.extend(key.as_bytes());
        }
        out.push(NONE);
        for key in ended {
            out.extend(key.as_bytes());
        }
        out.push(NONE);
        for (key, win) in bound_wins {
            out.extend(key.as_bytes());
            out.push(self.name(win.winner));
            out.push(bits(&[win.is_made, win.is_untold, win.stays]));
        }
        out.push(NONE);
        for (key, queue) in win_waits {
            out.extend(key.as_bytes());
            for (conn, waiter) in queue {
                // The steps are those of what it asks for, above.
                out.extend([self.name(*conn), self.left(waiter.until.as_millis())]);
            }
        }
    }

    fn header(&self, header: &ItemHeader, out: &mut Vec<u8>) {
        let ItemHeader {
            // Nobody asks for a version, looks at these, or writes a key in two forms.
            cas: _,
            last_access: _,
            client_flags: _,
            key_form: _,
            fetched: _,
            deadline,
            stale,
            win,
            locked,
        } = header;
        let gone_at_ms = deadline.map(|at| Deadline::begins(at).as_millis());
        out.push(self.left_or_none(gone_at_ms));
        let win = match win {
            WinMark::None => 0,
            WinMark::Sent => 1,
            WinMark::Open => 2,
        };
        out.extend([bits(&[*stale, *locked]), win]);
    }
}
