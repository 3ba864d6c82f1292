//! One state: two clients, the bytes on the way, the server, and two clocks.

use std::mem;
use std::time::Duration;

use latchd_client_core::{Action, LockMachine, LockTerms, Machine, Session};
use latchd_core::engine::{Config, Core};
use latchd_core::server;
use latchd_core::store::MapStore;
use latchd_core::{ConnId, Instant, Limits, Server};
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::wire::WireLimits;

use super::client::Client;
use super::names::{FENCES, OWNERS};
use super::{Bounds, Happening, STEP_MS, Witness};
use crate::frame::{Judged, Shown, must};

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) server: Server<Core<MapStore>>,
    pub(super) clients: [Client; 2],
    /// Connections that their clients have left, with the bytes on the way.
    pub(super) left: Vec<(ConnId, Vec<u8>)>,
    pub(super) now_ms: u64,
    pub(super) breaks_left: u8,
    pub(super) cuts_left: u8,
    pub(super) drops_left: u8,
    pub(super) revokes_left: u8,
    /// The client that was granted the lock last.
    pub(super) last: Option<usize>,
    /// The witnesses of the last step.
    pub(super) seen: Shown,
}

/// More turns than any client needs at one moment.
const TURNS_MAX: u32 = 100;

pub(super) fn key() -> Key<'static> {
    Key::new(b"k").expect("it has one byte")
}

fn started() -> Server<Core<MapStore>> {
    let limits = Limits::new(1 << 20, 1 << 10);
    let mut config = Config::new(limits, 0);
    config.fence_first = Fence::new(FENCES).expect("it is not 0");
    let mut wire_limits = WireLimits::from(&limits);
    wire_limits.waits = true;
    Server::with_machine(Core::reference(config), wire_limits).with_opened(OWNERS)
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            server: started(),
            clients: [0, 1].map(|place| Client::new(bounds, place)),
            left: Vec::new(),
            now_ms: 0,
            breaks_left: bounds.breaks,
            cuts_left: bounds.cuts,
            drops_left: bounds.drops,
            revokes_left: bounds.revokes,
            last: None,
            seen: Shown::default(),
        }
    }

    /// The time on a client's clock. The second one's is slow.
    pub(super) const fn clock(&self, client: usize) -> Instant {
        let now_ms = self.now_ms;
        Instant::from_millis(if client == 1 {
            now_ms * 99 / 100
        } else {
            now_ms
        })
    }

    pub(super) const fn server_clock(&self) -> Instant {
        Instant::from_millis(self.now_ms)
    }

    pub(super) const fn is_at_end(&self, bounds: &Bounds) -> bool {
        self.now_ms >= bounds.steps * STEP_MS
    }

    /// The grant in force.
    pub(super) fn granted(&self) -> Option<Fence> {
        let holding = self.server.machine().locks().in_force(key());
        holding.map(|holding| holding.fence)
    }

    pub(super) fn happenings(&self, bounds: &Bounds, all: &mut Vec<Happening>) {
        // Until the first client begins, time has no effect.
        if !self.is_at_end(bounds) && self.clients.iter().any(|one| one.conn.is_some()) {
            all.push(Happening::Time);
        }
        for (client, one) in self.clients.iter().enumerate() {
            let mut push = |is_possible: bool, happening: fn(usize) -> Happening| {
                if is_possible {
                    all.push(happening(client));
                }
            };
            let is_new = one.lock.id.is_none() && one.obtains_left > 0;
            push(is_new, Happening::Obtain);
            push(
                one.lock.is_told && !one.lock.is_releasing,
                Happening::Release,
            );
            let is_used = one.lock.id.is_some() && !one.lock.is_releasing;
            push(is_used && self.drops_left > 0, Happening::Drop);
            push(one.has_sent(), Happening::Serve);
            push(one.has_news(), Happening::Hear);
            let is_revocable = self.revokes_left > 0 && one.lock.is_told && self.is_granted(client);
            push(is_revocable, Happening::Revoke);
            push(is_revocable && bounds.in_session, Happening::EndSession);
            let is_up = bounds.is_slow[client] && one.lock.id.is_some() && one.conn.is_some();
            push(
                is_up && (self.breaks_left > 0 || one.is_cut),
                Happening::Break,
            );
            push(
                is_up && self.cuts_left > 0 && !one.is_closed,
                Happening::Cut,
            );
        }
        for (place, (_, up)) in self.left.iter().enumerate() {
            if !up.is_empty() {
                all.push(Happening::ServeLate(place));
            }
            all.push(Happening::LoseLate(place));
        }
    }

    pub(super) fn happen(&mut self, bounds: &Bounds, happening: Happening) -> Judged {
        self.seen = Shown::default();
        match happening {
            Happening::Time => self.pass()?,
            Happening::Obtain(client) => {
                let (now, now_ms) = (self.clock(client), self.now_ms);
                let one = &mut self.clients[client];
                one.obtains_left -= 1;
                let mut terms = LockTerms::new();
                terms.lease = bounds.lease;
                let wait_ms = bounds.wait_steps * STEP_MS;
                let wait = (wait_ms > 0).then(|| Duration::from_millis(wait_ms));
                one.lock.waits_since = wait.map(|_| now_ms);
                one.lock.id = Some(one.machine.acquire(now, key(), terms, wait));
                self.poll(client)?;
            }
            Happening::Release(client) => self.release(client)?,
            Happening::Drop(client) => {
                self.drops_left -= 1;
                let (now, was_granted) = (self.clock(client), self.is_granted(client));
                let one = &mut self.clients[client];
                (one.lock.is_releasing, one.lock.was_granted) = (true, was_granted);
                if let Some(id) = one.lock.id {
                    if !one.lock.is_told && !one.up.is_empty() {
                        self.seen.add(Witness::Dropped);
                    }
                    one.machine.abandon(now, id);
                }
                self.poll(client)?;
            }
            Happening::Serve(client) => self.serve(client),
            Happening::Hear(client) => self.hear(client)?,
            Happening::Break(client) => {
                if !self.clients[client].is_cut {
                    self.breaks_left -= 1;
                }
                self.leave(client);
                self.poll(client)?;
            }
            Happening::Cut(client) => {
                self.cuts_left -= 1;
                let now = self.server_clock();
                let one = &mut self.clients[client];
                (one.is_cut, one.is_closed) = (true, true);
                one.up.clear();
                if let Some(conn) = one.conn {
                    self.server.close(now, conn);
                }
                self.take_output();
            }
            Happening::ServeLate(place) => self.end_late(place, true),
            Happening::LoseLate(place) => self.end_late(place, false),
            Happening::Revoke(client) => {
                let fence = self.granted().map_or(0, Fence::number);
                self.meddle(client, format!("mu k G{fence}\r\n").as_bytes());
            }
            Happening::EndSession(client) => {
                let token = mem::take(&mut self.clients[client].token);
                self.meddle(client, &[b"mo ", &*token, b" T0\r\n"].concat());
                self.clients[client].token = token;
            }
        }
        for client in 0..2 {
            let mut turns = 0;
            while !bounds.is_slow[client] && self.has_bytes(client) {
                self.turn(client, &mut turns)?;
            }
        }
        self.server.machine().check();
        self.judge(bounds)
    }

    /// A step of time.
    pub(super) fn pass(&mut self) -> Judged {
        self.now_ms += STEP_MS;
        let now = self.server_clock();
        self.server
            .advance(now, Duration::from_millis(now.as_millis()));
        self.take_output();
        self.poll(0)?;
        self.poll(1)
    }

    pub(super) fn release(&mut self, client: usize) -> Judged {
        let (now, was_granted) = (self.clock(client), self.is_granted(client));
        let one = &mut self.clients[client];
        (one.lock.is_releasing, one.lock.was_granted) = (true, was_granted);
        if let Some(id) = one.lock.id {
            one.machine.release(now, id);
        }
        self.poll(client)
    }

    /// The server gets what a client has sent.
    pub(super) fn serve(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let up = mem::take(&mut one.up);
        if let Some(conn) = one.conn {
            self.execute(conn, &up);
        }
    }

    /// The server gets the end of a connection that its client has left, and before that what was sent on it.
    pub(super) fn end_late(&mut self, place: usize, is_whole: bool) {
        let (conn, up) = self.left.remove(place);
        if is_whole {
            let before = self.granted();
            self.execute(conn, &up);
            if self.granted() != before && self.granted().is_some() {
                self.seen.add(Witness::LateGrant);
            }
        }
        self.server.close(self.server_clock(), conn);
        self.take_output();
    }

    /// The server gets what a client has sent, and the client gets the replies.
    pub(super) fn turn(&mut self, client: usize, turns: &mut u32) -> Judged {
        *turns += 1;
        must(*turns < TURNS_MAX, "N5: a client does not come to rest")?;
        self.serve(client);
        self.hear(client)
    }

    /// Whether something is on the way to or from a client.
    pub(super) fn has_bytes(&self, client: usize) -> bool {
        self.clients[client].has_sent() || self.clients[client].has_news()
    }

    pub(super) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    fn execute(&mut self, conn: ConnId, bytes: &[u8]) {
        let before = self.granted();
        self.server.receive(self.server_clock(), conn, bytes);
        self.take_output();
        for one in &mut self.clients {
            let fence = one.lock.id.and_then(|id| one.machine.fence(id));
            if one.lock.is_told && one.lock.is_releasing && before.is_some() && before == fence {
                let granted = self.server.machine().locks().in_force(key());
                one.lock.has_released |= granted.is_none_or(|granted| Some(granted.fence) != fence);
            }
        }
    }

    /// The lock of a client is ended over a connection of another process.
    fn meddle(&mut self, client: usize, request: &[u8]) {
        self.revokes_left -= 1;
        self.clients[client].lock.is_revoked = true;
        let now = self.server_clock();
        let meddler = self.server.open(now);
        self.server.receive(now, meddler, request);
        self.take_output();
        self.server.close(now, meddler);
    }

    /// Hands the server's output to the clients.
    fn take_output(&mut self) {
        loop {
            match self.server.poll() {
                server::Action::Wait(_) => return,
                server::Action::Read(_) => {}
                server::Action::Send(conn, out) => {
                    let bytes: Vec<u8> = out.into();
                    let mut clients = self.clients.iter_mut();
                    if let Some(one) = clients.find(|one| one.conn == Some(conn)) {
                        one.down.extend_from_slice(&bytes);
                    }
                }
                server::Action::Close(conn) => {
                    self.left.retain(|(left, _)| *left != conn);
                    let mut clients = self.clients.iter_mut();
                    if let Some(one) = clients.find(|one| one.conn == Some(conn)) {
                        one.is_closed = true;
                        one.up.clear();
                    }
                }
            }
        }
    }

    /// A client has no connection any more. What it has sent is still on the way.
    fn leave(&mut self, client: usize) {
        let now = self.clock(client);
        let believes = self.believes(client);
        let one = &mut self.clients[client];
        let up = mem::take(&mut one.up);
        if let Some(conn) = one.conn.take()
            && !one.is_closed
        {
            self.left.push((conn, up));
        }
        one.down.clear();
        (one.is_closed, one.is_cut) = (false, false);
        one.lock.is_unanswered |= mem::take(&mut one.lock.has_asked);
        one.lock.is_resuming |= believes;
        one.lock.is_retry |= one.lock.id.is_some() && !one.lock.is_told;
        one.wire = Session::new();
        one.machine.disconnected(now);
    }

    /// Lets a client do its due work.
    pub(super) fn poll(&mut self, client: usize) -> Judged {
        let now = self.clock(client);
        loop {
            let one = &mut self.clients[client];
            // The driver has shown what the holder may believe.
            while one.machine.changed().is_some() {}
            match one.machine.poll(now) {
                Action::Connect { .. } => {
                    one.conn = Some(self.server.open(Instant::from_millis(self.now_ms)));
                    one.machine.connected(now);
                }
                Action::Disconnect => self.leave(client),
                Action::Send(request) => {
                    let mut bytes = Vec::new();
                    one.wire.send(&request, &mut bytes).expect("a few requests");
                    if let Some(session) = bytes.strip_prefix(b"mo ") {
                        let end = session.iter().position(|byte| *byte == b' ');
                        one.token = session[..end.unwrap_or_default()].to_vec();
                    }
                    one.lock.has_asked |= bytes.starts_with(b"mu ");
                    if !one.is_closed {
                        one.up.append(&mut bytes);
                    }
                }
                Action::Tell((_, news)) => self.tell(client, &news)?,
                Action::Wait { .. } => return Ok(()),
            }
        }
    }

    /// A client gets what the server has sent.
    pub(super) fn hear(&mut self, client: usize) -> Judged {
        let now = self.clock(client);
        let one = &mut self.clients[client];
        let down = mem::take(&mut one.down);
        let mut rest = &*down;
        while let Some(received) = one.wire.receive(rest).expect("a server has said this") {
            one.machine.reply(now, &received.answer);
            rest = &rest[received.consumed..];
        }
        assert!(rest.is_empty(), "replies come whole");
        if one.lock.is_resuming && down.windows(4).any(|end| end == b" R\r\n") {
            one.lock.is_resuming = false;
            self.seen.add(Witness::Resumed);
        }
        let one = &self.clients[client];
        if one.is_closed && !one.is_cut {
            self.leave(client);
        }
        self.poll(client)
    }
}
