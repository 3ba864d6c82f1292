//! One state: two clients, the bytes on the way, the server, and three clocks.

use std::time::Duration;

use latchd_client_core::{
    Action, AnyRequest, AnyResponse, LeaseTerms, Leases, LockId, LockItem, LockMachine, LockNews,
    LockTerms, Machine, Session, Token, TokenValue,
};
use latchd_core::engine::{Config, Core};
use latchd_core::store::MapStore;
use latchd_core::{ConnId, Instant, Limits, Server};
use latchd_protocol::command::{Command, Get};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::wire::WireLimits;
use latchd_protocol::wire::meta::Verb;

use super::trap::{Trap, forged, heard, trapped, version_in};
use super::{Bounds, Happening, Witness};
use crate::frame::{Judged, Shown};

/// Milliseconds in a step of time.
pub(super) const STEP_MS: u64 = 1000;

/// When the server's seconds begin, after a client's.
const PHASE_MS: u64 = 500;

/// The connection for looking at the server's items: it is none of the clients'.
const NOBODY: ConnId = ConnId::from_number(0);

/// The ttl that is asked for.
const TTL: Duration = Duration::from_secs(1);

/// The tokens. One is a prefix of the other, which a comparison must not overlook.
const TOKENS: [&[u8]; 2] = [b"a", b"ab"];

/// A client, and the bytes on the way to and from it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct LeaseClient {
    pub(super) machine: Leases,
    /// Its lock, from the request until the machine has forgotten it.
    pub(super) id: Option<LockId>,
    pub(super) request: Option<Vec<u8>>,
    pub(super) answer: Option<Vec<u8>>,
    pub(super) late: Option<Vec<u8>>,
    pub(super) is_stopped: bool,
    pub(super) obtains_left: u8,
    /// Its last report was that it has obtained.
    pub(super) told: bool,
    /// It has obtained, and has not released or lost it.
    pub(super) owes_release: bool,
    /// The run of the server that granted it.
    pub(super) run: u8,
    /// The last version that it has received, for a trap.
    pub(super) heard_cas: Option<u64>,
    /// Its state before it sent, for a trap.
    pub(super) before_sending: Option<Box<Leases>>,
}

/// The server's item.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Stored {
    value: Option<Vec<u8>>,
    cas: u64,
    ttl_s: Option<u32>,
}

/// All of a state except the server, and a view of the relevant parts of that.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct View {
    pub(super) clients: [LeaseClient; 2],
    pub(super) stored: Stored,
    pub(super) now_ms: u64,
    pub(super) breaks_left: u8,
    pub(super) stops_left: u8,
    pub(super) restarts_left: u8,
    /// How often the server has restarted.
    pub(super) run: u8,
    /// Whether the lock was granted in this run.
    pub(super) granted: bool,
    /// Whether the watchdog renews.
    pub(super) renews: bool,
    pub(super) fault: Option<&'static str>,
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    server: Server<Core<MapStore>>,
    pub(super) view: View,
    /// The witnesses of the last step.
    pub(super) seen: Shown,
}

const fn conn(client: usize) -> ConnId {
    ConnId::from_number(client as u64 + 1)
}

fn key() -> Key<'static> {
    Key::new(b"k").expect("it has one byte")
}

/// The terms of a client's lock.
fn terms(client: usize, renews: bool) -> LockTerms {
    let token = Token::new(TOKENS[client]).expect("it is a letter or two");
    let mut terms = LockTerms::new();
    terms.lease = Some(LeaseTerms {
        ttl: TTL,
        renews,
        hold_max: None,
    });
    terms.item = Some(LockItem {
        value: TokenValue::new(token, b""),
        ttl: TTL,
        own_token: false,
    });
    terms
}

/// A server that has just started, and knows both connections.
fn started(now: Instant) -> Server<Core<MapStore>> {
    let limits = Limits::new(1 << 20, 1 << 10);
    let core = Core::reference(Config::new(limits, 0));
    let mut server = Server::with_machine(core, WireLimits::from(&limits));
    for client in 0..2 {
        assert_eq!(server.open(now), conn(client), "they connect in order");
    }
    server
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let client = |_| LeaseClient {
            machine: Leases::new(Duration::from_secs(5)),
            id: None,
            request: None,
            answer: None,
            late: None,
            is_stopped: false,
            obtains_left: bounds.obtains,
            told: false,
            owes_release: false,
            run: 0,
            heard_cas: None,
            before_sending: None,
        };
        Self {
            server: started(Instant::from_millis(0)),
            view: View {
                clients: TOKENS.map(client),
                stored: Stored::default(),
                now_ms: 0,
                breaks_left: bounds.breaks,
                stops_left: bounds.stops,
                restarts_left: bounds.restarts,
                run: 0,
                granted: false,
                renews: bounds.renews,
                fault: None,
            },
            seen: Shown::default(),
        }
    }

    /// The time on a client's clock. The second one's is slow.
    pub(super) const fn clock(&self, client: usize) -> Instant {
        let now_ms = self.view.now_ms;
        Instant::from_millis(if client == 1 {
            now_ms * 99 / 100
        } else {
            now_ms
        })
    }

    /// The server's idea of the time.
    const fn server_clock(&self) -> Instant {
        Instant::from_millis((self.view.now_ms + PHASE_MS) / 1000 * 1000)
    }

    /// Whether a client believes in its lease.
    fn believes(&self, client: usize, trap: Option<Trap>) -> bool {
        let LeaseClient {
            machine, id, told, ..
        } = &self.view.clients[client];
        if trap == Some(Trap::BelievesForEver) {
            return *told;
        }
        let belief = id.and_then(|id| machine.belief(id));
        belief.is_some_and(|belief| {
            let has_time = belief.until.is_none_or(|until| self.clock(client) < until);
            belief.is_certain && has_time
        })
    }

    /// Executes a request, and returns the answer.
    fn serve(&mut self, client: usize, request: &[u8]) -> Vec<u8> {
        let now = self.server_clock();
        self.server.receive(now, conn(client), request);
        let mut answer = Vec::new();
        loop {
            match self.server.poll() {
                latchd_core::Action::Send(_, out) => answer.append(&mut out.into()),
                latchd_core::Action::Read(_) | latchd_core::Action::Close(_) => {}
                latchd_core::Action::Wait(_) => return answer,
            }
        }
    }

    /// Looks at the server's item.
    fn look(&mut self) {
        let now = self.server_clock();
        let get = Command::from(Get {
            bump: false,
            ..Get::new(key())
        });
        let reply = self.server.machine_mut().execute(now, NOBODY.into(), &get);
        self.view.stored = if let Reply::Hit(hit) = reply {
            Stored {
                value: Some(hit.value.to_vec()),
                cas: hit.cas.number(),
                ttl_s: hit.ttl.after(0),
            }
        } else {
            Stored {
                // The number of the next grant, or rather of the last one.
                cas: self.view.stored.cas,
                ..Stored::default()
            }
        };
    }

    /// Lets a client do its due work.
    fn poll(&mut self, client: usize, trap: Option<Trap>) {
        let now = self.clock(client);
        loop {
            let one = &mut self.view.clients[client];
            // The driver has shown what the holder may believe.
            while one.machine.changed().is_some() {}
            let before = one.machine.clone();
            match one.machine.poll(now) {
                Action::Connect { .. } => one.machine.connected(now),
                Action::Disconnect => return self.disconnect(client, trap),
                Action::Send(request) => {
                    let mut bytes = Vec::new();
                    Session::new()
                        .send(&request, &mut bytes)
                        .expect("one request fits");
                    if let Some(answer) = forged(trap, one, TOKENS[client], &bytes) {
                        self.hear(client, &answer, trap);
                        continue;
                    }
                    one.request = Some(trapped(trap, &bytes));
                    if trap == Some(Trap::CountsFromAnswer) {
                        one.before_sending = Some(Box::new(before));
                    }
                    return;
                }
                Action::Tell((_, news)) => self.tell(client, &news),
                Action::Wait { .. } => return,
            }
        }
    }

    fn tell(&mut self, client: usize, news: &LockNews) {
        let one = &mut self.view.clients[client];
        match news {
            LockNews::Obtained => {
                (one.told, one.owes_release) = (true, true);
                one.run = self.view.run;
                if std::mem::replace(&mut self.view.granted, true) {
                    self.seen.add(Witness::HandedOver);
                }
            }
            LockNews::NotHeld if one.run != self.view.run => {
                one.told = false;
                self.seen.add(Witness::LateAfterRestart);
            }
            LockNews::Lost(_) => {
                (one.told, one.owes_release) = (false, false);
                self.seen.add(Witness::Lost);
            }
            LockNews::Held(_)
            | LockNews::Obstructed(_)
            | LockNews::HasValue
            | LockNews::Released
            | LockNews::NotHeld
            | LockNews::Failed(_) => (one.told, one.owes_release) = (false, false),
            LockNews::Confirmed(_) | LockNews::Undone(_) => {}
        }
        one.id = one.id.filter(|id| one.machine.knows(*id));
    }

    /// A connection is gone. Bytes that were sent on it may still arrive.
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
        one.machine.disconnected(now);
    }

    /// A client gets an answer.
    fn hear(&mut self, client: usize, bytes: &[u8], trap: Option<Trap>) {
        let now = self.clock(client);
        let one = &mut self.view.clients[client];
        let mut session = Session::new();
        let any = AnyRequest::meta(Verb::Get, key(), [], &[]);
        session
            .send(&any, &mut Vec::new())
            .expect("one request fits");
        let bytes = heard(trap, TOKENS[client], bytes);
        if trap == Some(Trap::TrustsOldVersion) {
            one.heard_cas = version_in(&bytes).or(one.heard_cas);
        }
        let received = session
            .receive(&bytes)
            .expect("a server has said this")
            .expect("it is there in full");
        if let Some(before) = one.before_sending.take() {
            // As if it had been sent only now.
            one.machine = *before;
            let _ = one.machine.poll(now);
        }
        one.machine.reply(now, &received.answer);
        if matches!(received.answer, AnyResponse::Meta(response) if response.value == TOKENS[client])
        {
            self.seen.add(Witness::Resolved);
        }
    }

    /// Applies the invariants.
    fn judge(&mut self, trap: Option<Trap>) {
        let believers = (0..2).filter(|client| self.believes(*client, trap));
        let believers: Vec<usize> = believers.collect();
        if believers.len() > 1 {
            self.view.fault = Some("N1: two clients believe");
        }
        for client in believers {
            let owns = |value: &Vec<u8>| value.as_slice() == TOKENS[client];
            if !self.view.stored.value.as_ref().is_some_and(owns) {
                self.view.fault = Some("N2: a client believes, and the item is not its own");
            }
        }
    }

    pub(super) fn happen(&mut self, happening: Happening, trap: Option<Trap>) -> Judged {
        self.seen = Shown::default();
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
                let (now, renews) = (self.clock(client), self.view.renews);
                let one = &mut self.view.clients[client];
                one.obtains_left -= 1;
                let key = key();
                let terms = terms(client, renews);
                one.id = Some(one.machine.acquire(now, key, terms, None));
                self.poll(client, trap);
            }
            Happening::Release(client) => {
                let now = self.clock(client);
                let one = &mut self.view.clients[client];
                one.told = false;
                one.owes_release = false;
                if let Some(id) = one.id {
                    one.machine.release(now, id);
                }
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
            Happening::Restart => {
                self.view.restarts_left -= 1;
                self.view.run += 1;
                self.view.granted = false;
                self.view.stored = Stored::default();
                self.server = started(self.server_clock());
                for client in 0..2 {
                    self.disconnect(client, trap);
                    // A request that was not executed until now never will be.
                    self.view.clients[client].late = None;
                    self.poll(client, trap);
                }
            }
            Happening::ServeLate(client) => {
                if let Some(request) = self.view.clients[client].late.take() {
                    let answer = self.serve(client, &request);
                    if answer.starts_with(b"EX") {
                        self.seen.add(Witness::LateInVain);
                    }
                }
            }
        }
        self.look();
        self.judge(trap);
        self.view
            .fault
            .map_or(Ok(()), |fault| Err(fault.to_owned()))
    }
}
