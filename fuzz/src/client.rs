//! The rules of the client, for any answers of a server.
//!
//! The first byte chooses the hearer of the answers: a session that has sent some requests, the
//! decoder of packets, or one of the machines. The second chooses how the bytes are cut. The rest
//! are requests, events and answers: the answers that servers give, and any bytes at all.

use std::fmt::Debug;
use std::time::Duration;

use arbitrary::Unstructured;
use latchd_client_core::{
    Action, AnyRequest, AnyResponse, Grants, LeaseTerms, Leases, LockId, LockItem, LockMachine,
    LockTerms, Losers, Machine, OwnerTerms, Recompute, RecomputeTerms, Retry, Session,
    SessionTerms, Token, TokenValue,
};
use latchd_core::Instant;
use latchd_protocol::command::Mode;
use latchd_protocol::key::Key;
use latchd_protocol::session::{SessionAction, SessionRequest, Token as SessionToken};
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::wire::binary::reply::decode as decode_packet;
use latchd_protocol::wire::meta::{Flag, Verb};

/// More than a machine does in a row without waiting for anything, apart from its events of each
/// call.
const POLLS_MAX: usize = 1_000;

/// How many requests a session has asked at most.
const REQUESTS_MAX: usize = 40;

/// The longest body of a packet.
const BODY_BYTES_MAX: usize = 1_000;

/// The first byte of an answer in binary.
const RESPONSE_MAGIC: u8 = 0x81;

/// A client understands any answers of a server in the same way, however they are cut: no bytes
/// break it, and it keeps only the requested parts of them.
pub fn client(input: &[u8]) {
    let Some((&[who, cuts], rest)) = input.split_first_chunk() else {
        return;
    };
    match who % 6 {
        0 => same(cuts, |cut| listen(rest, cut)),
        1 => {
            // Made to begin as a packet does.
            let packets = [&[RESPONSE_MAGIC], rest].concat();
            same(cuts, |cut| unpack(&packets, cut));
        }
        2 | 3 => same(cuts, |cut| {
            Talk::new(leases(rest), cut).play(rest, call, is_held)
        }),
        4 => same(cuts, |cut| {
            Talk::new(grants(rest), cut).play(rest, call, is_held)
        }),
        _ => same(cuts, |cut| {
            Talk::new(recompute(rest), cut).play(rest, of_recompute, |_, _| false)
        }),
    }
}

/// The client hears the same in one piece and in many.
fn same(cuts: u8, mut hear: impl FnMut(Cut) -> Vec<String>) {
    let whole = hear(Cut::whole());
    let cut = hear(Cut::new(cuts));
    assert_eq!(whole, cut, "the result depends on how the bytes are cut");
}

/// How long the pieces are.
#[derive(Clone, Copy)]
struct Cut {
    state: u32,
    most: Option<u8>,
}

impl Cut {
    const fn whole() -> Self {
        Self {
            state: 0,
            most: None,
        }
    }

    const fn new(cuts: u8) -> Self {
        Self {
            state: cuts as u32,
            most: Some(cuts),
        }
    }

    /// The length of the next piece of so many bytes.
    fn next(&mut self, bytes: usize) -> usize {
        let Some(most) = self.most else {
            return bytes;
        };
        // Any sequence with short and long pieces will do.
        self.state = self
            .state
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        (1 + (self.state >> 24) as usize % (1 + usize::from(most))).min(bytes)
    }

    /// Hands over bytes piece by piece, each behind the bytes that were not taken yet; `take`
    /// returns how many bytes it has taken, or `None` if it wants no more.
    fn deliver(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8]) -> Option<usize>) {
        let (mut done, mut arrived) = (0, 0);
        while arrived < bytes.len() {
            arrived += self.next(bytes.len() - arrived);
            let Some(taken) = take(&bytes[done..arrived]) else {
                return;
            };
            done += taken;
            assert!(done <= arrived, "only arrived bytes are taken");
        }
    }
}

/// Plays the answers to a session that has sent some requests.
fn listen(input: &[u8], mut cut: Cut) -> Vec<String> {
    let mut source = Unstructured::new(input);
    let mut session = Session::new();
    let mut bytes = Vec::new();
    let requests = source.int_in_range(0..=REQUESTS_MAX).unwrap_or_default();
    for _ in 0..requests {
        let kind = source.arbitrary().unwrap_or_default();
        let ticket = session.send(&request(kind), &mut bytes);
        ticket.expect("all of these can be said");
    }
    let mut heard = Vec::new();
    cut.deliver(source.take_rest(), |rest| {
        let mut taken = 0;
        loop {
            let pending = session.pending();
            match session.receive(&rest[taken..]) {
                Ok(None) => return Some(taken),
                Ok(Some(received)) => {
                    // Each answer comes further, by its bytes or by its request.
                    assert!(received.consumed > 0 || session.pending() < pending);
                    assert_eq!(session.pending() + usize::from(received.last), pending);
                    taken += received.consumed;
                    heard.push(format!("{received:?}"));
                }
                Err(error) => {
                    heard.push(format!("{error:?}"));
                    return None;
                }
            }
        }
    });
    heard
}

/// A request of each kind, with its own shape of answer.
fn request(kind: u8) -> AnyRequest<'static> {
    let key = Key::new(b"k").expect("it is short");
    let meta = |verb, flags: &[Flag<'static>]| AnyRequest::meta(verb, key, flags, b"");
    match kind % 10 {
        0 => meta(Verb::Get, &[Flag::Value, Flag::ShowCas, Flag::ShowTtl]),
        1 => meta(Verb::Arithmetic, &[Flag::Value]),
        2 => meta(Verb::Set, &[Flag::ShowCas]),
        3 => meta(Verb::Lock, &[]),
        4 => AnyRequest::Noop,
        5 => AnyRequest::Stats(StatsTopic::General),
        6 => AnyRequest::Session(SessionRequest {
            token: SessionToken::new(b"0123456789abcdef").expect("it is long"),
            action: SessionAction::End,
        }),
        7 => AnyRequest::Hold,
        8 => AnyRequest::Cluster,
        _ => AnyRequest::FlushAll,
    }
}

/// The packets that are read off the front, one after the other.
fn unpack(input: &[u8], mut cut: Cut) -> Vec<String> {
    let mut heard = Vec::new();
    cut.deliver(input, |rest| {
        let mut taken = 0;
        loop {
            match decode_packet(&rest[taken..], BODY_BYTES_MAX) {
                Ok(None) => return Some(taken),
                Ok(Some((packet, bytes))) => {
                    assert!(bytes > 0 && packet.value.len() <= BODY_BYTES_MAX);
                    heard.push(format!("{packet:?} {:?}", packet.number()));
                    taken += bytes;
                }
                Err(error) => {
                    heard.push(format!("{error:?}"));
                    return None;
                }
            }
        }
    });
    heard
}

/// A machine, and a driver that obeys it.
struct Talk<M> {
    machine: M,
    cut: Cut,
    now: Instant,
    /// How often the caller has called: the machine may answer all open calls at once.
    calls: usize,
    /// The connection, if there is one.
    session: Option<Session>,
    /// The request that was sent last.
    sent: Vec<u8>,
    /// The events and answers, in order.
    heard: Vec<String>,
}

impl<M: Machine<News: Debug>> Talk<M> {
    const fn new(machine: M, cut: Cut) -> Self {
        Self {
            machine,
            cut,
            now: Instant::from_millis(0),
            calls: 0,
            session: None,
            sent: Vec::new(),
            heard: Vec::new(),
        }
    }

    /// Plays the input: the caller calls, time passes, the connection comes and breaks, the server
    /// answers. Without a connection that was reported as open, nothing `is_held`.
    fn play(
        mut self,
        input: &[u8],
        call: fn(&mut M, u8, Instant),
        is_held: fn(&M, Instant) -> bool,
    ) -> Vec<String> {
        let mut source = Unstructured::new(input);
        self.connect();
        call(&mut self.machine, 0, self.now);
        self.calls += 1;
        self.settle();
        while !source.is_empty() {
            let what: u8 = source.arbitrary().unwrap_or_default();
            match what % 8 {
                0 => {
                    let ms: u16 = source.arbitrary().unwrap_or_default();
                    self.now = Instant::from_millis(self.now.as_millis() + u64::from(ms));
                }
                1 => self.connect(),
                2 => self.fail("broken"),
                3 | 4 => {
                    call(&mut self.machine, what / 8, self.now);
                    self.calls += 1;
                }
                5 => {
                    let bytes = source.int_in_range(0..=60).unwrap_or_default();
                    let bytes = source.bytes(bytes.min(source.len())).unwrap_or_default();
                    self.answer(bytes);
                }
                _ => {
                    let number: u8 = source.arbitrary().unwrap_or_default();
                    let bytes = likely(what / 8, number, &self.sent);
                    self.answer(&bytes);
                }
            }
            self.settle();
            let believes = is_held(&self.machine, self.now);
            assert!(
                self.session.is_some() || !believes,
                "a belief needs an open connection"
            );
        }
        self.heard
    }

    fn connect(&mut self) {
        if self.session.is_none() {
            self.session = Some(Session::new());
            self.machine.connected(self.now);
        }
    }

    /// Obeys the machine until it waits.
    fn settle(&mut self) {
        let polls_max = POLLS_MAX + self.calls;
        for _ in 0..polls_max {
            match self.machine.poll(self.now) {
                Action::Wait { .. } | Action::Connect { .. } => return,
                Action::Tell(news) => self.heard.push(format!("{news:?}")),
                Action::Disconnect => self.fail("closed"),
                Action::Send(request) => {
                    self.sent.clear();
                    let sent = match &mut self.session {
                        Some(session) => session.send(&request, &mut self.sent).is_ok(),
                        None => false,
                    };
                    self.heard.push(self.sent.escape_ascii().to_string());
                    if !sent {
                        self.fail("not sent");
                    }
                }
            }
        }
        panic!("it does not wait after {polls_max} steps");
    }

    /// The server sends `bytes`: answer by answer, and the machine reacts to each.
    fn answer(&mut self, bytes: &[u8]) {
        let mut cut = self.cut;
        cut.deliver(bytes, |rest| {
            let mut taken = 0;
            loop {
                self.settle();
                match self.session.as_mut()?.receive(&rest[taken..]) {
                    Ok(None) => return Some(taken),
                    Ok(Some(received)) => {
                        taken += received.consumed;
                        self.machine.reply(self.now, &received.answer);
                    }
                    Err(_) => {
                        self.fail("malformed");
                        return None;
                    }
                }
            }
        });
        self.cut = cut;
    }

    fn fail(&mut self, why: &str) {
        if self.session.take().is_some() || why == "not sent" {
            self.heard.push(why.to_owned());
            self.machine.disconnected(self.now);
        }
    }
}

/// A likely answer of a server: one of these lines. `sent` is the last request; its value may come
/// back.
fn likely(which: u8, number: u8, sent: &[u8]) -> Vec<u8> {
    let lines = sent.split(|byte| *byte == b'\n');
    let value = lines.skip(1).find(|line| !line.is_empty());
    let value = value.map_or(&b"other"[..], |line| {
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    let with = |head: String| [head.as_bytes(), b"\r\n", value, b"\r\n"].concat();
    let bytes = value.len();
    if sent.starts_with(b"mo ") && which < 24 {
        // To `mo`, mostly what a server answers.
        return match which % 4 {
            0 => format!("HD n{} N\r\n", number % 2).into_bytes(),
            1 | 2 => format!("HD n{} R\r\n", number % 2).into_bytes(),
            _ => b"NF\r\n".to_vec(),
        };
    }
    match which % 28 {
        0 => format!("HD c{number}\r\n").into_bytes(),
        1 => b"HD\r\n".to_vec(),
        2 => b"NS\r\n".to_vec(),
        3 => b"EX\r\n".to_vec(),
        4 => b"NF\r\n".to_vec(),
        5 => b"EN\r\n".to_vec(),
        6 => with(format!("VA {bytes} c{number} t{number}")),
        7 => with(format!("VA {bytes} c{number} t-1 W")),
        8 => b"VA 0 c7 t9 W\r\n\r\n".to_vec(),
        9 => b"VA 0 c7 t9 Z\r\n\r\n".to_vec(),
        10 => with(format!("VA {bytes} c{number} t5 X Z")),
        11 => format!("HD F{number}\r\n").into_bytes(),
        12 => format!("LK h{number} a1 n0\r\n").into_bytes(),
        13 => b"LK h1 a1 n0 d\r\n".to_vec(),
        14 => b"OK\r\n".to_vec(),
        15 => b"LOCKED\r\n".to_vec(),
        16 => b"NOT_FOUND\r\n".to_vec(),
        17 => b"STORED\r\n".to_vec(),
        18 => b"NOT_STORED\r\n".to_vec(),
        19 => b"DELETED\r\n".to_vec(),
        20 => b"ERROR\r\n".to_vec(),
        21 => b"CLIENT_ERROR object is not locked or not found\r\n".to_vec(),
        22 => b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
        23 => with(format!("VALUE k 0 {bytes} {number}")),
        24 => b"END\r\n".to_vec(),
        25 => format!("STAT uptime {number}\r\nEND\r\n").into_bytes(),
        26 => b"MN\r\n".to_vec(),
        _ => b"TOUCHED\r\n".to_vec(),
    }
}

const fn span(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key() -> Key<'static> {
    Key::new(b"k").expect("it is short")
}

fn value() -> TokenValue {
    let token = Token::from_random([7; 16]);
    TokenValue::new(token, b"note")
}

/// Whether a bit of the first byte is set, which chooses among the terms.
fn chooses(input: &[u8], bit: u8) -> bool {
    input.first().is_some_and(|first| first >> bit & 1 != 0)
}

/// A machine that keeps locks, and those that it was asked for and knows.
struct Keeper<M> {
    machine: M,
    terms: LockTerms,
    /// Whether it can wait in a queue.
    waits: bool,
    /// The lock of each key.
    locks: [Option<LockId>; 3],
}

impl<M: LockMachine> Keeper<M> {
    /// The keys whose locks the machine has forgotten.
    fn free(&mut self) -> Option<usize> {
        let machine = &self.machine;
        for lock in &mut self.locks {
            lock.take_if(|id| !machine.knows(*id));
        }
        self.locks.iter().position(Option::is_none)
    }
}

impl<M: LockMachine> Machine for Keeper<M> {
    type News = M::News;

    fn poll(&mut self, now: Instant) -> Action<'_, M::News> {
        self.machine.poll(now)
    }

    fn connected(&mut self, now: Instant) {
        self.machine.connected(now);
    }

    fn disconnected(&mut self, now: Instant) {
        self.machine.disconnected(now);
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        self.machine.reply(now, answer);
    }
}

fn call<M: LockMachine>(keeper: &mut Keeper<M>, call: u8, now: Instant) {
    let free = keeper.free();
    let is_alone = keeper.locks.iter().all(Option::is_none);
    let id = keeper
        .locks
        .iter()
        .flatten()
        .nth(usize::from(call / 8) % 3)
        .copied();
    match (call % 8, free, id) {
        (0 | 1, Some(place), _) => {
            let name = [&b"k"[..], b"l", b"m"][place];
            let key = Key::new(name).expect("it is short");
            let wait = (keeper.waits && is_alone && call >= 16).then_some(span(60_000));
            let id = keeper.machine.acquire(now, key, keeper.terms.clone(), wait);
            keeper.locks[place] = Some(id);
            if wait.is_some() {
                // Nothing else is asked for beside a wait.
                keeper.locks = [Some(id); 3];
            }
        }
        (2, _, Some(id)) => keeper.machine.check(now, id),
        (3, _, Some(id)) => keeper.machine.refresh(now, id, span(2_000)),
        (4 | 5, _, Some(id)) => keeper.machine.release(now, id),
        (6, _, Some(id)) => keeper.machine.abandon(now, id),
        _ => while keeper.machine.changed().is_some() {},
    }
}

/// Whether a lock is held that needs a connection.
fn is_held<M: LockMachine>(keeper: &Keeper<M>, now: Instant) -> bool {
    let beliefs = keeper
        .locks
        .iter()
        .flatten()
        .filter_map(|id| keeper.machine.belief(*id));
    let common = keeper.machine.common_deadline();
    let mut held = beliefs.filter(|belief| belief.is_certain);
    held.any(|belief| {
        let ends = [belief.until, common].into_iter().flatten().min();
        if let Some(end) = ends {
            assert!(now < end, "a belief ends in time");
        }
        // A session needs no connection, and has an end.
        common.is_none()
    })
}

fn lock_terms(input: &[u8], has_item: bool) -> LockTerms {
    let mut terms = LockTerms::new();
    terms.lease = chooses(input, 0).then_some(LeaseTerms {
        ttl: span(3_000),
        renews: chooses(input, 1),
        hold_max: chooses(input, 2).then_some(span(10_000)),
    });
    terms.item = has_item.then(|| LockItem {
        value: value(),
        ttl: span(3_000),
        own_token: chooses(input, 3),
    });
    terms.is_adopted = chooses(input, 4);
    if chooses(input, 5) && !has_item {
        terms.mode = Mode::Shared { max_sharers: None };
    }
    terms
}

fn leases(input: &[u8]) -> Keeper<Leases> {
    let mut terms = lock_terms(input, true);
    terms.lease.get_or_insert(LeaseTerms {
        ttl: span(3_000),
        renews: true,
        hold_max: None,
    });
    Keeper {
        machine: Leases::new(span(5_000)),
        terms,
        waits: false,
        locks: [None; 3],
    }
}

fn session() -> SessionTerms {
    SessionTerms::new([7; 16], span(3_000)).expect("a server can measure it")
}

fn grants(input: &[u8]) -> Keeper<Grants> {
    Keeper {
        machine: Grants::new(OwnerTerms {
            session: chooses(input, 6).then(session),
            heartbeat: span(1_000),
            reply_timeout: span(5_000),
            seed: 0,
        }),
        terms: lock_terms(input, chooses(input, 7)),
        waits: true,
        locks: [None; 3],
    }
}

fn recompute(input: &[u8]) -> Recompute {
    let mut terms = RecomputeTerms::new(span(60_000), span(5_000));
    if chooses(input, 0) {
        terms.losers = Losers::TakeStale;
    }
    terms.retry = Retry::linear(span(50)).limited(3);
    terms.session = chooses(input, 1).then(session);
    Recompute::new(key(), terms)
}

fn of_recompute(recompute: &mut Recompute, call: u8, now: Instant) {
    match call % 4 {
        0 => recompute.read(now),
        1 => recompute.computed(now, b"value"),
        2 => recompute.give_back(now),
        _ => recompute.abandon(now),
    }
}
