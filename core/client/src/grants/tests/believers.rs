//! S4: two clients with locks in a session each, and a real server. The network loses and delays requests and replies,
//! breaks connections on one side or both, and executes late requests. At no moment do two clients believe, each by
//! its own clock; the second one's is 1% slow. A client whose session somebody else has ended is wrong until it is told, and
//! not a moment longer. Mistakes that are planted between client and world are found.

use latchd_core::engine::{Config, Core};
use latchd_core::limits::Limits;
use latchd_core::server::{self, Server};
use latchd_core::store::MapStore;
use latchd_protocol::ConnId;
use latchd_protocol::wire::WireLimits;
use latchd_protocol::wire::meta::session::SessionResponse;

use super::*;

/// The time of a session, in milliseconds.
const TTL_MS: u64 = 1_000;

const STEPS: usize = 600;

/// A planted mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trap {
    None,
    /// The time counts from the reply.
    CountsFromReply,
    /// `NF` is taken for held.
    TakesNotFoundForHeld,
}

/// A client, and the bytes on the way to and from it.
struct Side {
    grants: Grants,
    /// The lock that it wants, holds or releases.
    id: Option<LockId>,
    /// As it was before it sent the request that is under way.
    before: Option<Grants>,
    wire: Session,
    conn: Option<ConnId>,
    up: Vec<u8>,
    down: Vec<u8>,
    /// The owner of its session, for a forged reply.
    owner: u64,
    /// Somebody else has ended its session, and the client was not told.
    is_robbed: bool,
}

/// The cases that were met.
#[derive(Debug, Default)]
struct Met {
    obtained: u32,
    released: u32,
    resumed: u32,
    expired: u32,
    robbed: u32,
    waited: u32,
    capped: u32,
}

struct World {
    server: Server<Core<MapStore>>,
    sides: [Side; 2],
    /// Connections that their clients have left, with the bytes that the server has still to get.
    left: Vec<(ConnId, Vec<u8>)>,
    now_ms: u64,
    chance: fastrand::Rng,
    trap: Trap,
    met: Met,
}

impl World {
    fn new(seed: u64, trap: Trap) -> Self {
        let limits = Limits::new(1 << 20, 1 << 10);
        let mut wire_limits = WireLimits::from(&limits);
        wire_limits.waits = true;
        let core = Core::reference(Config::new(limits, 0));
        let side = |place: u8| Side {
            grants: Grants::new(OwnerTerms {
                session: Some(SessionTerms::new([place; 16], ms(TTL_MS)).unwrap()),
                heartbeat: ms(TTL_MS),
                reply_timeout: ms(TTL_MS),
                seed: place.into(),
            }),
            id: None,
            before: None,
            wire: Session::new(),
            conn: None,
            up: Vec::new(),
            down: Vec::new(),
            owner: 0,
            is_robbed: false,
        };
        Self {
            server: Server::with_machine(core, wire_limits),
            sides: [side(0), side(1)],
            left: Vec::new(),
            now_ms: 1_000,
            chance: fastrand::Rng::with_seed(seed),
            trap,
            met: Met::default(),
        }
    }

    fn clock(&self, place: usize) -> Instant {
        at(if place == 1 {
            self.now_ms * 99 / 100
        } else {
            self.now_ms
        })
    }

    fn believes(&self, place: usize) -> bool {
        let side = &self.sides[place];
        let Some(own) = side.id.and_then(|id| side.grants.belief(id)) else {
            return false;
        };
        let until = earlier(own.until, side.grants.common_deadline());
        until.is_some_and(|until| self.clock(place) < until)
    }

    /// Hands the server's output to the clients.
    fn serve(&mut self) {
        loop {
            match self.server.poll() {
                server::Action::Wait(_) => return,
                // The bytes of a connection that may send again are delivered in any case.
                server::Action::Read(_) => {}
                server::Action::Send(conn, out) => {
                    let bytes: Vec<u8> = out.into();
                    for side in &mut self.sides {
                        if side.conn == Some(conn) {
                            side.down.extend_from_slice(&bytes);
                        }
                    }
                }
                server::Action::Close(conn) => {
                    self.left.retain(|(left, _)| *left != conn);
                    for place in 0..2 {
                        if self.sides[place].conn == Some(conn) {
                            self.leave(place, false);
                        }
                    }
                }
            }
        }
    }

    /// A client's connection is gone, for the client. The server gets what is on the way, if it `may_hear`.
    fn leave(&mut self, place: usize, may_hear: bool) {
        let now = self.clock(place);
        let side = &mut self.sides[place];
        if let Some(conn) = side.conn.take()
            && may_hear
        {
            self.left.push((conn, core::mem::take(&mut side.up)));
        }
        (side.up, side.down, side.before) = (Vec::new(), Vec::new(), None);
        side.grants.disconnected(now);
    }

    fn step(&mut self) {
        let place = self.chance.usize(0..2);
        match self.chance.u8(0..20) {
            0..4 => {
                let span = if self.chance.u8(0..4) == 0 { 3 } else { 20 };
                self.now_ms += self.chance.u64(1..TTL_MS / span);
                self.server
                    .advance(at(self.now_ms), Duration::from_millis(self.now_ms));
            }
            4..8 => while self.act(place) {},
            8..12 => {
                if let Some(conn) = self.sides[place].conn {
                    let up = core::mem::take(&mut self.sides[place].up);
                    self.server.receive(at(self.now_ms), conn, &up);
                }
            }
            12..16 => self.hear(place),
            16 => {
                if self.sides[place].conn.is_some() {
                    self.leave(place, true);
                }
            }
            // What a client has left reaches the server, whole or not, and then its end.
            17..19 => {
                if !self.left.is_empty() {
                    let index = self.chance.usize(0..self.left.len());
                    let (conn, up) = self.left.swap_remove(index);
                    if self.chance.bool() {
                        self.server.receive(at(self.now_ms), conn, &up);
                        self.serve();
                    }
                    self.server.close(at(self.now_ms), conn);
                }
            }
            _ if self.chance.u8(0..4) == 0 => self.rob(place),
            _ => {
                let now = self.clock(place);
                let is_held = self.believes(place);
                let side = &mut self.sides[place];
                let Some(id) = side.id else { return };
                if is_held && self.chance.u8(0..3) > 0 {
                    side.grants.release(now, id);
                } else if self.chance.u8(0..8) == 0 {
                    side.grants.abandon(now, id);
                } else if is_held && self.chance.u8(0..3) == 0 {
                    side.grants.check(now, id);
                }
            }
        }
        self.serve();
    }

    /// Ends the session of a client that believes, over a connection of somebody who knows the token.
    fn rob(&mut self, place: usize) {
        if !self.believes(place) {
            return;
        }
        let side = &mut self.sides[place];
        let session = side.grants.session.as_ref().unwrap();
        let mut end = Vec::new();
        Session::new().send(&session.end(), &mut end).unwrap();
        let now = at(self.now_ms);
        let robber = self.server.open(now);
        self.server.receive(now, robber, &end);
        self.serve();
        self.server.close(now, robber);
        self.sides[place].is_robbed = true;
        self.met.robbed += 1;
    }

    /// Does what the client wants. Returns whether it may want more.
    fn act(&mut self, place: usize) -> bool {
        let now = self.clock(place);
        let side = &mut self.sides[place];
        if side.id.is_none() {
            let mut terms = LockTerms::new();
            if self.chance.bool() {
                let (renews, hold_max) = (self.chance.bool(), self.chance.bool());
                terms = leased(ms(400), renews, hold_max.then_some(ms(500)));
            }
            let wait = self.chance.bool().then_some(ms(3 * TTL_MS));
            side.id = Some(side.grants.acquire(now, key("k"), terms, wait));
        }
        let before = side.grants.clone();
        match side.grants.poll(now) {
            Action::Connect { .. } => {
                if self.chance.u8(0..3) > 0 {
                    side.conn = Some(self.server.open(at(self.now_ms)));
                    side.wire = Session::new();
                    side.grants.connected(now);
                } else {
                    side.grants.disconnected(now);
                }
            }
            Action::Disconnect => self.leave(place, true),
            Action::Send(request) => {
                side.wire.send(&request, &mut side.up).unwrap();
                side.before = Some(before);
            }
            Action::Tell((id, news)) => {
                let met = &mut self.met;
                match news {
                    LockNews::Obtained => met.obtained += 1,
                    LockNews::Released => met.released += 1,
                    LockNews::Lost(Loss::Expired) => met.expired += 1,
                    LockNews::Lost(Loss::HeldTooLong) => met.capped += 1,
                    LockNews::Held(_)
                    | LockNews::Obstructed(_)
                    | LockNews::HasValue
                    | LockNews::Confirmed(_)
                    | LockNews::Undone(_)
                    | LockNews::NotHeld
                    | LockNews::Lost(_)
                    | LockNews::Failed(_) => {}
                }
                // Until then the key is not asked for again.
                let is_over = !side.grants.knows(id);
                if is_over && side.id == Some(id) {
                    side.id = None;
                }
                return !is_over;
            }
            Action::Wait { .. } => {
                self.met.waited += u32::from(side.grants.waits());
                return false;
            }
        }
        true
    }

    /// Hands the next reply to the client.
    fn hear(&mut self, place: usize) {
        let now = self.clock(place);
        let side = &mut self.sides[place];
        let asked = side.grants.in_flight.front().map(|sent| sent.what);
        let is_attach = matches!(asked, Some(Asked::Attach { holds: true }));
        let is_told = side.grants.held > 0 && side.down.starts_with(b"NF\r\n");
        if is_told {
            side.is_robbed = false;
        }
        if is_told && is_attach && self.trap == Trap::TakesNotFoundForHeld {
            let forged = std::format!("HD n{} R\r\n", side.owner);
            side.down.splice(0..4, forged.into_bytes());
        }
        let Some(received) = side.wire.receive(&side.down).unwrap() else {
            return;
        };
        if let AnyResponse::Session(
            SessionResponse::Opened(owner) | SessionResponse::Resumed(owner),
        ) = received.answer
        {
            side.owner = owner.number();
            self.met.resumed += u32::from(side.grants.held > 0);
            if self.trap == Trap::CountsFromReply
                && let Some(mut later) = side.before.take()
            {
                // A client that sends now, and is answered at once.
                if let Action::Send(_) = later.poll(now) {
                    side.grants = later;
                }
            }
        }
        side.grants.reply(now, &received.answer);
        let consumed = received.consumed;
        side.down.drain(..consumed);
        side.before = None;
    }
}

/// Plays one course. Returns the cases that were met, and whether two clients believed at once.
fn course(seed: u64, trap: Trap) -> (Met, bool) {
    let mut world = World::new(seed, trap);
    for _ in 0..STEPS {
        world.step();
        let believe = [0, 1].map(|place| {
            let believes = world.believes(place);
            let side = &mut world.sides[place];
            side.is_robbed &= believes;
            believes && !side.is_robbed
        });
        if believe == [true, true] {
            return (world.met, true);
        }
    }
    (world.met, false)
}

#[test]
fn no_two_clients_believe_at_once() {
    let mut met = Met::default();
    for seed in 0..400 {
        let (course, both) = course(seed, Trap::None);
        assert!(!both, "two believe in the course of seed {seed}");
        met.obtained += course.obtained;
        met.released += course.released;
        met.resumed += course.resumed;
        met.expired += course.expired;
        met.robbed += course.robbed;
        met.waited += course.waited;
        met.capped += course.capped;
    }
    let all = [
        met.obtained,
        met.released,
        met.resumed,
        met.expired,
        met.robbed,
        met.waited,
        met.capped,
    ];
    assert!(all.iter().all(|count| *count >= 5), "{met:?}");
}

#[test]
fn planted_mistakes_are_found() {
    for trap in [Trap::CountsFromReply, Trap::TakesNotFoundForHeld] {
        let found = (0..4_000).find(|seed| course(*seed, trap).1);
        assert!(found.is_some(), "{trap:?} is not found");
    }
}
