//! Leases: two clients that ship, a server that ships, and a network and clocks that do their worst.
//!
//! Both clients are the real [`Lease`], the server is the real core behind the real [`Connection`],
//! and what travels are bytes. The world between them loses requests and answers with their
//! connection, executes a request long after its client has given it up, stops a client for a while,
//! and lets the second client's clock run one percent slow. The server counts time as a memcached
//! does: in whole seconds that begin when it likes, so that an item is gone half a second early
//! here.
//!
//! - N1: at most one client believes at a time, each by its own clock.
//! - N2: who believes, to them the item belongs on the server.
//! - N3: a later grant has a higher number. So a resource that refuses a lower number than it has
//!   seen refuses a holder who comes late.
//!
//! Time ends after [`Bounds::steps`] steps, so the search does.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant as StdInstant};

use latchd_core::client::{
    Answer, Flags, Lease, LeaseNews, Machine, OnDisconnect, Request, Session, Step, Terms, Token,
    TokenValue,
};
use latchd_core::command::{Command, Get};
use latchd_core::engine::Config;
use latchd_core::reply::Reply;
use latchd_core::wire::WireLimits;
use latchd_core::wire::meta::Verb;
use latchd_core::{ConnId, Connection, Core, Event, Instant, Key, Limits};
use stateright::{Checker, Model, Property};

/// Milliseconds in a step of time.
const STEP_MS: u64 = 1000;

/// When the server's seconds begin, after a client's.
const PHASE_MS: u64 = 500;

/// The ttl that is asked for.
const TTL: Duration = Duration::from_secs(1);

/// The tokens. One begins as the other, which a comparison must not overlook.
const TOKENS: [&[u8]; 2] = [b"a", b"ab"];

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

const WITH_BREAKS: &[Witness] = &[Witness::HandedOver, Witness::Resolved, Witness::LateInVain];

/// What is checked.
pub const ALL: &[Bounds] = &[
    Bounds {
        name: "lease-lost",
        steps: 4,
        stops: 0,
        breaks: 1,
        obtains: 1,
        on_disconnect: OnDisconnect::Lost,
        renews: true,
        witnesses: WITH_BREAKS,
        pinned: 982_965,
    },
    Bounds {
        name: "lease-ask",
        steps: 4,
        stops: 0,
        breaks: 1,
        obtains: 1,
        on_disconnect: OnDisconnect::Ask,
        renews: true,
        witnesses: WITH_BREAKS,
        pinned: 1_148_643,
    },
    Bounds {
        name: "lease-stopped",
        steps: 4,
        stops: 1,
        breaks: 0,
        obtains: 1,
        on_disconnect: OnDisconnect::Lost,
        renews: true,
        witnesses: &[Witness::HandedOver, Witness::LateHolder],
        pinned: 76_347,
    },
];

/// What the recipes get wrong, planted between the client and the world.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// The ttl counts from the answer, as in redislock.
    CountsFromAnswer,
    /// Whoever has obtained believes until it releases, as redis-lock's `IsLocked`.
    BelievesForEver,
    /// The server is asked for the ttl and nothing more.
    NoMargin,
    /// A release deletes whatever is there, as redis-lock's `Unlock`.
    ReleasesBlindly,
    /// A renewal stores over whatever is there, as redis-lock's refresh extends it.
    RenewsBlindly,
    /// An obtain stores over whatever is there.
    ObtainsBlindly,
    /// A token is compared with the beginning of the value, as in redislock.
    ComparesPrefix,
    /// A lost answer to an add is taken for a good one.
    GuessesDone,
}

/// Every trap, and how many steps it takes to fall into it.
pub const TRAPS: &[(Trap, usize)] = &[
    (Trap::CountsFromAnswer, 6),
    (Trap::BelievesForEver, 7),
    (Trap::NoMargin, 4),
    (Trap::ReleasesBlindly, 11),
    (Trap::RenewsBlindly, 10),
    (Trap::ObtainsBlindly, 5),
    (Trap::ComparesPrefix, 8),
    (Trap::GuessesDone, 2),
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
}

/// A client, and what is under way to and from it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Client {
    lease: Lease,
    request: Option<Vec<u8>>,
    answer: Option<Vec<u8>>,
    late: Option<Vec<u8>>,
    is_stopped: bool,
    obtains_left: u8,
    /// It was told that it has obtained, and not yet that it has not.
    told: bool,
    /// Its state before it sent, for a trap.
    before_sending: Option<Box<Lease>>,
    number: u64,
}

/// What the server has.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Stored {
    value: Option<Vec<u8>>,
    cas: u64,
    ttl_s: Option<u32>,
}

/// All of a state but the core, of which this shows what can matter.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct View {
    clients: [Client; 2],
    stored: Stored,
    now_ms: u64,
    breaks_left: u8,
    stops_left: u8,
    /// The highest number that was granted.
    granted: u64,
    fault: Option<&'static str>,
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
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    core: Core,
    view: View,
    /// What the last step has shown.
    seen: u8,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.view.hash(hasher);
    }
}

/// Two clients and a server, within bounds.
#[derive(Clone, Debug)]
pub struct Leases {
    bounds: Bounds,
    trap: Option<Trap>,
    /// What any step has shown, also one to a state that was known already.
    seen: Arc<AtomicU8>,
}

const fn conn(client: usize) -> ConnId {
    ConnId::from_number(client as u64 + 1)
}

fn key() -> Key<'static> {
    Key::new(b"k").expect("it has one byte")
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let mut core = Core::new(Config::new(Limits::new(1 << 20, 1 << 10), 0));
        for client in 0..2 {
            core.handle(Instant::from_millis(0), Event::Opened(conn(client)));
        }
        let client = |token: &[u8]| {
            let mut terms = Terms::new(TTL).expect("it can be measured");
            terms.deadline = Some(Duration::from_secs(60));
            terms.on_disconnect = bounds.on_disconnect;
            if !bounds.renews {
                terms.watchdog = None;
            }
            let token = Token::new(token).expect("it is a letter or two");
            let value = TokenValue::new(token, b"").expect("there is no metadata");
            Client {
                lease: Lease::new(key(), value, terms).expect("it can be measured"),
                request: None,
                answer: None,
                late: None,
                is_stopped: false,
                obtains_left: bounds.obtains,
                told: false,
                before_sending: None,
                number: 0,
            }
        };
        Self {
            core,
            view: View {
                clients: TOKENS.map(client),
                stored: Stored::default(),
                now_ms: 0,
                breaks_left: bounds.breaks,
                stops_left: bounds.stops,
                granted: 0,
                fault: None,
            },
            seen: 0,
        }
    }

    /// What the clock of a client shows. The second one's is slow.
    const fn clock(&self, client: usize) -> Instant {
        let now_ms = self.view.now_ms;
        Instant::from_millis(if client == 1 {
            now_ms * 99 / 100
        } else {
            now_ms
        })
    }

    /// What the server takes for the time.
    const fn server_clock(&self) -> Instant {
        Instant::from_millis((self.view.now_ms + PHASE_MS) / 1000 * 1000)
    }

    fn believes(&self, client: usize, trap: Option<Trap>) -> bool {
        let Client { lease, told, .. } = &self.view.clients[client];
        match trap {
            Some(Trap::BelievesForEver) => *told,
            Some(_) | None => lease.is_held(self.clock(client)),
        }
    }

    /// Executes a request, and returns the answer.
    fn serve(&mut self, client: usize, request: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut connection = Connection::new(WireLimits::default());
        let now = self.server_clock();
        let mut core = self.core.at(now, conn(client));
        connection.drive(request, &mut core, &mut answer, usize::MAX);
        answer
    }

    /// Looks at what the server has.
    fn look(&mut self) {
        let now = self.server_clock();
        let get = Command::Get(Get {
            bump: false,
            ..Get::new(key())
        });
        self.view.stored = match self.core.handle(now, Event::Received(conn(0), get)) {
            Some(Reply::Hit(hit)) => Stored {
                value: Some(hit.value.to_vec()),
                cas: hit.cas.number(),
                ttl_s: hit.ttl.after(0),
            },
            _ => Stored {
                // The next number that would be given, or rather the last that was.
                cas: self.view.stored.cas,
                ..Stored::default()
            },
        };
    }

    /// Lets a client do what is to be done at once.
    fn poll(&mut self, client: usize, trap: Option<Trap>) {
        let now = self.clock(client);
        loop {
            let one = &mut self.view.clients[client];
            let before = one.lease.clone();
            match one.lease.poll(now) {
                Step::Connect => one.lease.connected(now),
                Step::Disconnect => return self.disconnect(client, trap),
                Step::Send(request) => {
                    let mut bytes = Vec::new();
                    Session::new()
                        .send(&request, &mut bytes)
                        .expect("one request fits");
                    one.request = Some(trapped(trap, bytes));
                    if trap == Some(Trap::CountsFromAnswer) {
                        one.before_sending = Some(Box::new(before));
                    }
                    return;
                }
                Step::Tell(news) => self.tell(client, &news),
                Step::Wait { .. } => return,
            }
        }
    }

    fn tell(&mut self, client: usize, news: &LeaseNews) {
        let one = &mut self.view.clients[client];
        match news {
            LeaseNews::Obtained => {
                one.told = true;
                one.number = one.lease.number().map_or(0, |cas| cas.number());
                if one.number <= self.view.granted {
                    self.view.fault = Some("N3: a later grant has no higher number");
                }
                if self.view.granted > 0 {
                    self.seen |= Witness::HandedOver as u8;
                }
                self.view.granted = self.view.granted.max(one.number);
            }
            LeaseNews::NotObtained(_)
            | LeaseNews::Released
            | LeaseNews::NotHeld
            | LeaseNews::Lost(_)
            | LeaseNews::Failed(_) => one.told = false,
            LeaseNews::Refreshed | LeaseNews::Undone(_) | LeaseNews::Lasts(_) => {}
        }
    }

    /// A connection is gone. What was sent on it may still arrive.
    fn disconnect(&mut self, client: usize, trap: Option<Trap>) {
        let now = self.clock(client);
        let one = &mut self.view.clients[client];
        let is_add = one
            .request
            .as_ref()
            .is_some_and(|bytes| bytes.windows(4).any(|word| word == b" ME "));
        one.answer = None;
        one.late = one.request.take();
        if trap == Some(Trap::GuessesDone) && is_add {
            return self.hear(client, b"HD c999\r\n", trap);
        }
        one.lease.disconnected(now);
    }

    /// A client gets an answer.
    fn hear(&mut self, client: usize, bytes: &[u8], trap: Option<Trap>) {
        let now = self.clock(client);
        let one = &mut self.view.clients[client];
        let mut session = Session::new();
        let any = Request::Meta {
            verb: Verb::Get,
            key: key(),
            flags: Flags::new(&[]).expect("none is not too many"),
            value: &[],
        };
        session
            .send(&any, &mut Vec::new())
            .expect("one request fits");
        let bytes = heard(trap, TOKENS[client], bytes);
        let received = session
            .receive(&bytes)
            .expect("a server has said this")
            .expect("it is there in full");
        if let Some(before) = one.before_sending.take() {
            // As if it had been sent only now.
            one.lease = *before;
            let _ = one.lease.poll(now);
        }
        one.lease.reply(now, &received.answer);
        if matches!(received.answer, Answer::Meta(response) if response.value == TOKENS[client]) {
            self.seen |= Witness::Resolved as u8;
        }
    }

    /// Applies what must always hold.
    fn judge(&mut self, trap: Option<Trap>) {
        let believers = (0..2).filter(|client| self.believes(*client, trap));
        let believers: Vec<usize> = believers.collect();
        if believers.len() > 1 {
            self.view.fault = Some("N1: two clients believe");
        }
        // A resource that has seen the successor's number refuses what a client writes who was told of
        // its own and of nothing since.
        for one in &self.view.clients {
            if one.told && one.number < self.view.granted {
                self.seen |= Witness::LateHolder as u8;
            }
        }
        for client in believers {
            let owns = |value: &Vec<u8>| value.as_slice() == TOKENS[client];
            if !self.view.stored.value.as_ref().is_some_and(owns) {
                self.view.fault = Some("N2: a client believes, and the item is not its own");
            }
        }
    }

    fn happen(&mut self, happening: Happening, trap: Option<Trap>) {
        self.seen = 0;
        match happening {
            Happening::Time => {
                self.view.now_ms += STEP_MS;
                for client in 0..2 {
                    if !self.view.clients[client].is_stopped {
                        self.poll(client, trap);
                    }
                }
            }
            Happening::Stop(client) => {
                self.view.stops_left -= 1;
                self.view.clients[client].is_stopped = true;
            }
            Happening::Continue(client) => {
                self.view.clients[client].is_stopped = false;
                self.poll(client, trap);
            }
            Happening::Obtain(client) => {
                let now = self.clock(client);
                let one = &mut self.view.clients[client];
                one.obtains_left -= 1;
                one.lease.obtain(now);
                self.poll(client, trap);
            }
            Happening::Release(client) => {
                let now = self.clock(client);
                let one = &mut self.view.clients[client];
                one.told = false;
                one.lease.release(now);
                self.poll(client, trap);
            }
            Happening::Serve(client) => {
                if let Some(request) = self.view.clients[client].request.take() {
                    let answer = self.serve(client, &request);
                    self.view.clients[client].answer = Some(answer);
                }
            }
            Happening::Hear(client) => {
                if let Some(answer) = self.view.clients[client].answer.take() {
                    self.hear(client, &answer, trap);
                    self.poll(client, trap);
                }
            }
            Happening::Break(client) => {
                self.view.breaks_left -= 1;
                self.disconnect(client, trap);
                self.poll(client, trap);
            }
            Happening::ServeLate(client) => {
                if let Some(request) = self.view.clients[client].late.take() {
                    let answer = self.serve(client, &request);
                    if answer.starts_with(b"EX") {
                        self.seen |= Witness::LateInVain as u8;
                    }
                }
            }
        }
        self.look();
        self.judge(trap);
    }
}

/// A request as a client with a trap in it sends it.
fn trapped(trap: Option<Trap>, bytes: Vec<u8>) -> Vec<u8> {
    let line_end = bytes.iter().position(|byte| *byte == b'\r');
    let (line, rest) = bytes.split_at(line_end.unwrap_or(bytes.len()));
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let verb = words[0];
    let words = words.iter().filter_map(|word| match (trap, word.first()) {
        (Some(Trap::ReleasesBlindly), Some(b'C')) if verb == b"md" => None,
        (Some(Trap::RenewsBlindly), Some(b'C')) if verb == b"ms" => None,
        (Some(Trap::ObtainsBlindly), Some(b'M')) if verb == b"ms" => None,
        (Some(Trap::NoMargin), Some(b'T')) => Some(&b"T1"[..]),
        _ => Some(*word),
    });
    let mut line = words.collect::<Vec<_>>().join(&b' ');
    line.extend_from_slice(rest);
    line
}

/// An answer as a client with a trap in it reads it.
fn heard(trap: Option<Trap>, token: &[u8], bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match text.split_once("\r\n") {
        Some((line, value))
            if trap == Some(Trap::ComparesPrefix)
                && line.starts_with("VA")
                && value.as_bytes().starts_with(token) =>
        {
            let flags = line.splitn(3, ' ').nth(2).unwrap_or_default();
            let token = String::from_utf8_lossy(token);
            format!("VA {} {flags}\r\n{token}\r\n", token.len()).into_bytes()
        }
        Some(_) | None => bytes.to_vec(),
    }
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
        for (client, one) in world.view.clients.iter().enumerate() {
            if one.is_stopped {
                actions.push(Happening::Continue(client));
            } else {
                if one.obtains_left > 0 && !one.told && one.request.is_none() {
                    actions.push(Happening::Obtain(client));
                }
                if one.told {
                    actions.push(Happening::Release(client));
                    if world.view.stops_left > 0 {
                        actions.push(Happening::Stop(client));
                    }
                }
                if one.answer.is_some() {
                    actions.push(Happening::Hear(client));
                }
                let is_out = one.request.is_some() || one.answer.is_some();
                if world.view.breaks_left > 0 && (is_out || one.told) {
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

/// What a check has come to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// States that differ.
    pub states: usize,
    /// Steps taken.
    pub transitions: usize,
    /// The longest way that had to be gone.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// What does not hold, and what was never seen; empty if all is well.
    pub complaints: String,
}

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
    let mut known = HashSet::new();
    let mut layer: Vec<(World, Vec<Happening>)> = model
        .init_states()
        .into_iter()
        .map(|world| (world, Vec::new()))
        .collect();
    let mut happenings = Vec::new();
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for (world, way) in layer {
            if let Some(fault) = world.view.fault {
                return Some((way, fault));
            }
            model.actions(&world, &mut happenings);
            for happening in happenings.drain(..) {
                let Some(next) = model.next_state(&world, happening) else {
                    continue;
                };
                if known.insert(fingerprint(&next)) {
                    let mut way = way.clone();
                    way.push(happening);
                    next_layer.push((next, way));
                }
            }
        }
        layer = next_layer;
    }
    None
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
