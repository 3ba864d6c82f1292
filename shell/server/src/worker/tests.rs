//! Workers of one server with several shards, on one thread: their epolls, sockets, shards, budgets and mailboxes
//! are the server's own, and the test chooses the next round and the time. So orders of events can be drawn, and
//! nothing happens in a quiet phase that could hide a lost wake-up.
//!
//! After each round of a worker [`Worker::check`] holds; when all clients are closed, nothing is left
//! ([`Shared::check_empty`]).

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use latchd_core::ConnId;
use latchd_protocol::key::Key;
use latchd_protocol::stats::StatsTopic;

use super::*;
use crate::clients::mailbox::Arrival;
use crate::cluster::Member;
use crate::config::Config;
use crate::net::listen::Address;
use crate::net::transport::Security;

mod peers;
#[cfg(feature = "cluster")]
mod primary;
mod rounds;

/// More rounds than it takes to answer everything.
const ROUNDS_MAX: usize = 100_000;

impl Worker {
    /// What holds between two rounds.
    fn check(&self) {
        assert!(self.input.is_empty() && self.output.is_empty());
        let mailbox = self.shared.mailbox(self.index);
        let queued = || self.waiting.iter().chain(&self.handshaking);
        let registered = self.shared.waiters.registered();
        for (slot, client) in &self.clients {
            let name = Token::client(slot, client.number());
            let holder = self.holder(name);
            let is_doomed = mailbox
                .has(|message| matches!(message, Message::Close(of, _) if *of == holder.name));
            client.check(
                holder,
                &self.shared.unfinished,
                &self.shared.unsent,
                is_doomed,
            );
            let places = queued().filter(|other| **other == name).count();
            assert_eq!(places, usize::from(client.is_in_turn()), "V4: {client:?}");
            let places = self.collecting.iter().filter(|other| **other == name);
            assert_eq!(places.count(), usize::from(client.is_in_queue()), "V8");
            let is_notified = mailbox
                .has(|message| matches!(message, Message::WaitEnded(of, _) if *of == holder.name))
                || self.ended_waits.iter().any(|(of, _)| *of == name);
            let waits = registered.iter().any(|(_, of)| *of == holder);
            assert!(!(waits && is_notified), "G1: it is notified once");
            assert_eq!(client.waits(), waits || is_notified, "G1: {client:?}");
        }
        for (owner, holder) in registered
            .into_iter()
            .filter(|(_, holder)| holder.worker == self.index)
        {
            let name = Token::decode(EventData::new_u64(holder.name));
            let is_there = matches!(name, Token::Client { slot, .. } if self.is_there(slot, name));
            assert!(is_there, "G1: {owner:?} is closed");
        }
    }

    fn holder(&self, name: Token) -> Holder {
        Holder {
            worker: self.index,
            name: name.encode().u64(),
        }
    }

    fn client(&self, number: u64) -> Option<&ClientConn> {
        let mut all = self.clients.iter().map(|(_, client)| client);
        all.find(|client| client.number() == number)
    }
}

/// A server, and its workers.
struct Bench {
    shared: Arc<ServerState>,
    workers: Vec<Worker>,
    opened: u64,
    now: Instant,
}

impl Bench {
    fn new(threads: usize, change: impl FnOnce(&mut Config)) -> Self {
        Self::of(threads, None, change)
    }

    fn of(threads: usize, member: Option<Arc<Member>>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            threads: NonZeroUsize::new(threads).unwrap(),
            ..Config::default()
        };
        change(&mut config);
        let addresses = [Address::Unix("/tmp/nowhere".into())];
        let (shared, _) = ServerState::new(config, &addresses, None, None, member, None).unwrap();
        let shared = Arc::new(shared);
        let worker = |index| Worker::new(index, Arc::clone(&shared)).unwrap();
        Self {
            workers: (0..threads).map(worker).collect(),
            opened: shared.connection_table.last_listener(),
            shared,
            now: Instant::from_millis(1),
        }
    }

    /// A new client.
    fn connect(&mut self, worker: usize) -> Peer {
        let (stream, socket) = UnixStream::pair().unwrap();
        self.adopt(worker, stream, socket)
    }

    /// The client at the other end of this socket, as the acceptor gives it to a worker.
    fn adopt(&mut self, worker: usize, stream: UnixStream, socket: UnixStream) -> Peer {
        for end in [&stream, &socket] {
            end.set_nonblocking(true).unwrap();
        }
        self.opened += 1;
        self.shared.connection_stats.count_open();
        self.shared
            .mailbox(worker)
            .clients()
            .fetch_add(1, Ordering::Relaxed);
        let arrival = Arrival {
            socket: socket.into(),
            security: Security::Plain,
            conn: ConnId::from_number(self.opened),
            entry: self
                .shared
                .connection_table
                .add(self.opened, 0, None, self.now),
        };
        self.shared.mailbox(worker).post(Message::Adopt(arrival));
        Peer {
            number: self.opened,
            worker,
            stream,
            unsent: Vec::new(),
            read: Vec::new(),
        }
    }

    /// Stores a value under this key.
    fn store(&mut self, client: &mut Peer, key: &str, bytes: usize) {
        let value = "v".repeat(bytes);
        client.say(format!("set {key} 0 0 {bytes} noreply\r\n{value}\r\n"));
        while !client.unsent.is_empty() {
            self.quiet();
            client.send(usize::MAX);
        }
        self.quiet();
    }

    /// The events of a worker's epoll.
    fn events(&self, index: usize) -> Vec<Event> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        let epoll = &self.workers[index].epoll;
        epoll::wait(epoll, spare_capacity(&mut events), Some(&NO_PATIENCE)).unwrap();
        events
    }

    /// One round of a worker. Returns whether there was anything to do.
    fn round(&mut self, index: usize) -> bool {
        let events = self.events(index);
        let worker = &mut self.workers[index];
        let is_idle = worker.is_idle();
        worker.now = self.now;
        worker.round(&events);
        worker.check();
        for budget in [&self.shared.unfinished, &self.shared.unsent] {
            budget.check();
        }
        !events.is_empty() || !is_idle
    }

    /// Rounds of all workers until no worker has anything to do.
    fn quiet(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let busy = (0..self.workers.len())
                .filter(|index| self.round(*index))
                .count();
            if busy == 0 {
                return;
            }
        }
        panic!("the workers do not come to rest");
    }

    /// Lets time pass, as the clock thread does.
    fn pass(&mut self, ms: u64) {
        self.now = Instant::from_millis(self.now.as_millis() + ms);
        self.shared.shards.pass(self.now);
    }

    /// All clients are closed: nothing is left of them.
    fn end(mut self) {
        self.quiet();
        // The sockets of clients that were sent an error are kept for a while.
        self.pass(60_000);
        for worker in 0..self.workers.len() {
            self.shared.mailbox(worker).post(Message::Sweep);
        }
        self.quiet();
        for worker in &self.workers {
            assert!(worker.clients.is_empty() && worker.ended_waits.is_empty());
        }
        self.shared.check_empty(self.now);
    }

    fn stat(&self, name: &str) -> u64 {
        let lines = self.shared.stats_lines(StatsTopic::General);
        let line = lines.iter().find(|line| line.name == name).unwrap();
        line.value.parse().unwrap()
    }
}

/// The other end of a client's socket.
struct Peer {
    number: u64,
    worker: usize,
    stream: UnixStream,
    /// Bytes that the socket has not taken.
    unsent: Vec<u8>,
    /// Bytes that were read and not looked at.
    read: Vec<u8>,
}

impl Peer {
    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.unsent.extend_from_slice(bytes.as_ref());
        self.send(usize::MAX);
    }

    /// Sends up to this many of its bytes; those that the socket does not take stay.
    fn send(&mut self, bytes: usize) {
        let bytes = bytes.min(self.unsent.len());
        match self.stream.write(&self.unsent[..bytes]) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The server has closed the connection, which a read shows.
            Err(_) => self.unsent.clear(),
        }
    }

    /// Reads what has arrived. Returns whether the connection is open.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// All that has arrived since the last call.
    fn heard(&mut self) -> String {
        self.hear();
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }
}

/// Which of the two events comes first, of which neither was reported before.
fn end_frees_lock(ends: fn(&UnixStream), holder_first: bool) {
    let mut bench = Bench::new(1, |_| ());
    let (mut holder, mut other) = if holder_first {
        let holder = bench.connect(0);
        (holder, bench.connect(0))
    } else {
        let other = bench.connect(0);
        (bench.connect(0), other)
    };
    holder.say("ml k\r\n");
    bench.quiet();
    assert_eq!(holder.heard(), "HD\r\n");
    // Both are reported in one batch, in either order.
    if holder_first {
        ends(&holder.stream);
        other.say("ml k\r\n");
    } else {
        other.say("ml k\r\n");
        ends(&holder.stream);
    }
    bench.round(0);
    assert_eq!(other.heard(), "HD\r\n", "V2");
    let lingering = bench.shared.lingering.load(Ordering::Relaxed);
    assert_eq!(lingering, 0, "it was sent no error");
    drop((holder, other));
    bench.end();
}

#[test]
fn ends_come_before_requests() {
    use std::net::Shutdown;
    for holder_first in [true, false] {
        end_frees_lock(
            |stream| stream.shutdown(Shutdown::Both).unwrap(),
            holder_first,
        );
        end_frees_lock(
            |stream| stream.shutdown(Shutdown::Write).unwrap(),
            holder_first,
        );
    }
}

/// Three clients have more work than fits into a turn. A client with a new request comes before them, and they have
/// their turns in order.
#[test]
fn turns_are_in_order() {
    let mut bench = Bench::new(1, |_| ());
    let mut clients = [(); 4].map(|()| bench.connect(0));
    bench.store(&mut clients[3], "large", 1_000_000);
    clients[3].say("set n 0 0 1 noreply\r\n0\r\n");
    bench.quiet();
    // An append moves the large value, which ends the turn (T3).
    for client in &mut clients[..3] {
        client.say("append large 0 0 1 noreply\r\nv\r\nincr n 1\r\n");
    }
    bench.round(0);
    clients[3].say("incr n 1\r\n");
    bench.round(0);
    bench.round(0);
    let heard = clients.each_mut().map(Peer::heard);
    assert_eq!(heard, ["1\r\n", "3\r\n", "4\r\n", "2\r\n"], "V4");
    drop(clients);
    bench.end();
}

#[test]
fn a_watcher_reads_of_every_client() {
    let mut bench = Bench::new(2, |_| ());
    let mut watcher = bench.connect(0);
    watcher.say("watch connevents\r\n");
    bench.quiet();
    assert_eq!(watcher.heard(), "OK\r\n");
    for worker in [0, 1] {
        drop(bench.connect(worker));
        bench.quiet();
        let lines = watcher.heard();
        let topics: Vec<_> = lines
            .lines()
            .filter_map(|line| line.split(' ').nth(2))
            .collect();
        assert_eq!(topics, ["type=conn_new", "type=conn_close"], "{lines}");
    }
    drop(watcher);
    bench.end();
}

/// A client of a drawn run: each of its requests has a number, and its reply the same one.
struct Drawn {
    peer: Peer,
    asked: VecDeque<u64>,
    next: u64,
    is_stalled: bool,
    has_quit: bool,
}

const KEYS: usize = 4;

impl Drawn {
    fn ask(&mut self, draw: &mut Rng) {
        self.next += 1;
        let (number, key) = (self.next, draw.usize(..KEYS));
        let request = match draw.usize(..20) {
            0..3 => format!("ml l{key} O{number}\r\n"),
            3..8 => format!(
                "ml l{key} w{} O{number}\r\n",
                [20, 500, 60_000][draw.usize(..3)]
            ),
            8..11 => format!("mu l{key} O{number}\r\n"),
            11 => format!("ml l{key} T0.3 w60000 O{number}\r\n"),
            12..15 => {
                let bytes = [1, 300, 9_000, 200_000][draw.usize(..4)];
                let value = char::from(b'a' + u8::try_from(key).unwrap())
                    .to_string()
                    .repeat(bytes);
                format!("ms v{key} {bytes} O{number}\r\n{value}\r\n")
            }
            15..19 => format!("mg v{key} v O{number}\r\n"),
            _ => format!(
                "mg w{key} v N30 w{} B O{number}\r\n",
                [20, 60_000][draw.usize(..2)]
            ),
        };
        self.asked.push_back(number);
        self.peer.unsent.extend_from_slice(request.as_bytes());
    }

    /// Reads; each reply must be that of the oldest request. Returns whether the connection is open.
    fn hear(&mut self) -> bool {
        let is_open = self.peer.hear();
        let mut used = 0;
        while let Some(end) = self.peer.read[used..]
            .windows(2)
            .position(|pair| pair == b"\r\n")
        {
            let line = std::str::from_utf8(&self.peer.read[used..used + end]).unwrap();
            let mut words = line.split(' ');
            let mut whole = end + 2;
            if words.next() == Some("VA") {
                let bytes: usize = words.next().unwrap().parse().unwrap();
                let Some(value) = self.peer.read[used..].get(whole..whole + bytes + 2) else {
                    break;
                };
                let value = &value[..bytes];
                assert!(value.windows(2).all(|pair| pair[0] == pair[1]), "{line}");
                whole += bytes + 2;
            }
            // Errors have no number.
            if line.starts_with("SERVER_ERROR out of memory") {
                return false;
            }
            let number = self
                .asked
                .pop_front()
                .unwrap_or_else(|| panic!("nobody has asked: {line}"));
            let is_its = line.split(' ').any(|word| word == format!("O{number}"));
            assert!(
                is_its || line == "SERVER_ERROR too many locks",
                "{number}: {line}"
            );
            used += whole;
        }
        self.peer.read.drain(..used);
        is_open
    }
}

/// In a quiet phase, a request without a reply waits: its client is registered, and the lock is another's.
fn check_waits(bench: &Bench, clients: &[Drawn]) {
    let registered = bench.shared.waiters.registered();
    let registered: BTreeSet<_> = registered
        .into_iter()
        .map(|(owner, _)| owner.number())
        .collect();
    for Drawn { peer, asked, .. } in clients {
        if asked.is_empty() || !peer.unsent.is_empty() {
            continue;
        }
        let client = bench.workers[peer.worker]
            .client(peer.number)
            .expect("it is open");
        assert!(client.waits(), "{client:?} has no reply to {asked:?}");
        assert!(registered.contains(&peer.number));
    }
    for key in 0..KEYS {
        let key = format!("l{key}");
        bench
            .shared
            .shards
            .check_waiters(Key::new(key.as_bytes()).unwrap());
    }
}

fn play(seed: u64) -> [u64; 3] {
    let mut draw = Rng::with_seed(seed);
    let mut bench = Bench::new(2, |config| {
        config.locks_per_connection_max = 2;
        config.value_bytes_max = 300_000;
        config.unfinished_bytes_max = Some(300_000);
        config.unsent_bytes_max = Some(500_000);
    });
    let mut clients: Vec<Drawn> = Vec::new();
    let (mut waits, mut lost) = (0, 0);
    for _ in 0..400 {
        if clients.len() < 2 || clients.len() < 8 && draw.usize(..12) == 0 {
            let peer = bench.connect(draw.usize(..2));
            clients.push(Drawn {
                peer,
                asked: VecDeque::new(),
                next: 0,
                is_stalled: false,
                has_quit: false,
            });
        }
        let chosen = draw.usize(..clients.len());
        let client = &mut clients[chosen];
        match draw.usize(..32) {
            0..12 if !client.has_quit && client.asked.len() < 20 => client.ask(&mut draw),
            12..17 => client.peer.send(usize::MAX),
            17 => client.peer.send(1 + draw.usize(..5_000)),
            18..21 => client.is_stalled = !client.is_stalled,
            21 if !client.has_quit => {
                client.has_quit = true;
                client.peer.unsent.extend_from_slice(b"quit\r\n");
            }
            22 => drop(clients.swap_remove(chosen)),
            23 => bench.pass([1, 30, 700][draw.usize(..3)]),
            24 => {
                for client in &mut clients {
                    client.is_stalled = false;
                }
                for _ in 0..200 {
                    for client in &mut clients {
                        client.peer.send(usize::MAX);
                    }
                    bench.quiet();
                    lost += hear_all(&mut clients);
                }
                check_waits(&bench, &clients);
                waits += u64::from(!bench.shared.waiters.registered().is_empty());
            }
            _ => drop(bench.round(draw.usize(..2))),
        }
        lost += hear_all(&mut clients);
    }
    let refused = bench.stat("read_buf_oom") + bench.stat("response_obj_oom");
    assert!(
        lost <= refused,
        "{lost} were closed for nothing, {refused} for lack of memory"
    );
    drop(clients);
    bench.end();
    [waits, lost, 1]
}

/// All clients that read do so. Returns how many were closed without having asked for it.
fn hear_all(clients: &mut Vec<Drawn>) -> u64 {
    let mut lost = 0;
    clients.retain_mut(|client| {
        if client.is_stalled || client.hear() {
            return true;
        }
        lost += u64::from(!client.has_quit);
        assert!(!client.has_quit || client.asked.is_empty() || !client.peer.read.is_empty());
        false
    });
    lost
}

#[test]
fn drawn_orders_lose_nothing() {
    let mut seen = [0; 3];
    for seed in 1..=40 {
        for (sum, count) in seen.iter_mut().zip(play(seed)) {
            *sum += count;
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_name_is_read_as_it_is_written() {
    assert_ne!(Token::client(5, 1), Token::client(5, 2));
    for name in [
        Token::Mailbox,
        Token::client(0, 0),
        Token::client(70_000, 1),
        Token::client(5, u64::MAX),
        Token::Lingering { place: 3 },
    ] {
        assert_eq!(Token::decode(name.encode()), name);
    }
}

#[test]
fn first_turns_share_the_time_of_a_round() {
    assert_eq!([0, 1, 10].map(first_turn), [FIRST_TURN; 3]);
    assert_eq!(first_turn(100), FIRST_TURNS_SPAN / 100);
}
