//! A connection to the server, and the times of all its requests.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use latchd_harness::wording::Protocol;
use socket2::SockRef;

use super::believer::monotonic;
use super::history::{ANONYMOUS, Answer, NEVER, Operation, Record, SESSIONS, is_session, shown};
use super::wire::{Ask, decode, encode};

/// How long an answer may take.
const DUE: Duration = Duration::from_secs(10);

/// The state that all clients share: the server, one clock, and how many there have been.
#[derive(Debug)]
pub(super) struct World {
    pub(super) address: SocketAddr,
    /// The moment that all others are counted from, by the clock that processes have in common.
    pub(super) began: u64,
    clients: AtomicU64,
}

impl World {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self::joined(address, monotonic(), 0)
    }

    /// The same world from another process, which numbers its clients from `first` on.
    pub(super) const fn joined(address: SocketAddr, began: u64, first: u64) -> Self {
        Self {
            address,
            began,
            clients: AtomicU64::new(first),
        }
    }

    /// Nanoseconds since the beginning, by the one monotonic clock of the machine.
    pub(super) fn now(&self) -> u64 {
        monotonic().saturating_sub(self.began)
    }
}

/// A planned request.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// Which key of those at hand; `None` is all of them.
    pub(super) key: Option<usize>,
    pub(super) protocol: Protocol,
    pub(super) operation: Operation,
    /// Whether the answer shows the version.
    pub(super) with_cas: bool,
}

impl Planned {
    pub(super) const fn new(key: Option<usize>, protocol: Protocol, operation: Operation) -> Self {
        Self {
            key,
            protocol,
            operation,
            with_cas: true,
        }
    }
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kill {
    /// Everything that was sent arrives, and the end behind it; answers are not read.
    Close,
    /// The request may be lost.
    Reset,
}

/// A connection, or a session with its present one.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    pub(super) conn: u64,
    /// Of its session, or for one.
    token: String,
    place: u64,
    /// The number of its present connection, and of the last one.
    lane: u64,
    last_lane: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// A connection that acts in the session without being attached (`j`).
    beside: Option<Beside>,
}

/// Another connection of a session.
#[derive(Debug)]
struct Beside {
    stream: TcpStream,
    lane: u64,
    input: Vec<u8>,
}

impl Client {
    /// Connects. A client that speaks text asks for its own number, or opens a session: every second does.
    pub(super) fn connect(world: &World, is_binary: bool) -> io::Result<Self> {
        let stream = open(world)?;
        let number = world.clients.fetch_add(1, Ordering::Relaxed);
        let mut client = Self {
            stream,
            conn: ANONYMOUS + number,
            token: format!("{:020}-{number}", world.began),
            place: 0,
            lane: 0,
            last_lane: 0,
            input: Vec::new(),
            output: Vec::new(),
            beside: None,
        };
        if !is_binary && number % 2 == 1 {
            client.conn = SESSIONS + attach(&mut client.stream, &client.token, " N")?;
        } else if !is_binary {
            client.conn = client.ask_number(world, number)?;
        }
        Ok(client)
    }

    /// Whether it has a session.
    pub(super) const fn is_session(&self) -> bool {
        is_session(self.conn)
    }

    /// Goes on with another connection. With `kill` the old one ends first; without, it is taken over. Returns the moment
    /// at which the session had the other one: no request on the old one is executed after that.
    pub(super) fn resume(&mut self, world: &World, kill: Option<Kill>) -> io::Result<u64> {
        let mut stream = open(world)?;
        if let Some(kill) = kill {
            end(&self.stream, kill)?;
        }
        let owner = attach(&mut stream, &self.token, " R")?;
        let before = shown(self.conn);
        if owner != before {
            return Err(io::Error::other(format!("session {before} is {owner} now")));
        }
        let taken_over = world.now();
        self.stream = stream;
        self.input.clear();
        self.last_lane += 1;
        self.lane = self.last_lane;
        Ok(taken_over)
    }

    pub(super) const fn is_binary(&self) -> bool {
        self.conn >= ANONYMOUS
    }

    /// A second request for a lock shows its holder.
    fn ask_number(&mut self, world: &World, number: u64) -> io::Result<u64> {
        let key = format!("of-client-{number}").into_bytes();
        let release = Operation::Release { fence: None };
        let plan = [Operation::Acquire, Operation::Acquire, release]
            .map(|operation| Planned::new(Some(0), Protocol::Meta, operation));
        let records = self.exchange(world, &[key], plan.into())?;
        match records[1].answer {
            Some(Answer::Held { by }) => Ok(by),
            _ => Err(io::Error::other(format!(
                "a client that holds a lock is told: {}",
                records[1]
            ))),
        }
    }

    /// Sends all requests in one go, and reads every answer.
    pub(super) fn exchange(
        &mut self,
        world: &World,
        keys: &[Vec<u8>],
        plan: Vec<Planned>,
    ) -> io::Result<Vec<Record>> {
        let (mut records, sent) = self.send(world, keys, plan);
        sent?;
        self.receive(world, keys, &mut records, usize::MAX)?;
        Ok(records)
    }

    /// Sends all requests. If that fails, some of them may have arrived.
    pub(super) fn send(
        &mut self,
        world: &World,
        keys: &[Vec<u8>],
        plan: Vec<Planned>,
    ) -> (Vec<Record>, io::Result<()>) {
        let mut records = self.write(keys, plan, None);
        note_sent(world, &mut records);
        let sent = self.stream.write_all(&self.output);
        (records, sent)
    }

    /// Sends all requests on a connection that is not attached, in the session (`j`).
    pub(super) fn send_beside(
        &mut self,
        world: &World,
        keys: &[Vec<u8>],
        plan: Vec<Planned>,
    ) -> (Vec<Record>, io::Result<()>) {
        if self.beside.is_none() {
            let stream = match open(world) {
                Ok(stream) => stream,
                Err(error) => return (Vec::new(), Err(error)),
            };
            self.last_lane += 1;
            self.beside = Some(Beside {
                stream,
                lane: self.last_lane,
                input: Vec::new(),
            });
        }
        let lane = self.beside.as_ref().map(|beside| beside.lane);
        let mut records = self.write(keys, plan, lane);
        note_sent(world, &mut records);
        let beside = self.beside.as_mut().expect("it is open");
        let sent = beside.stream.write_all(&self.output);
        (records, sent)
    }

    /// Reads all answers of that connection.
    pub(super) fn receive_beside(
        &mut self,
        world: &World,
        keys: &[Vec<u8>],
        records: &mut [Record],
    ) -> io::Result<()> {
        let Some(beside) = &mut self.beside else {
            return Ok(());
        };
        let (stream, input) = (&mut beside.stream, &mut beside.input);
        read(stream, input, world, keys, records)
    }

    /// Closes that connection.
    pub(super) fn close_beside(&mut self) {
        self.beside = None;
    }

    /// Writes the requests into the output. With `beside` they name the session and go to that connection.
    fn write(&mut self, keys: &[Vec<u8>], plan: Vec<Planned>, beside: Option<u64>) -> Vec<Record> {
        self.output.clear();
        let mut records = Vec::with_capacity(plan.len());
        for planned in plan {
            let record = Record {
                conn: self.conn,
                lane: beside.unwrap_or(self.lane),
                place: self.place,
                key: planned.key,
                protocol: planned.protocol,
                operation: planned.operation,
                invoked: 0,
                answered: NEVER,
                answer: None,
            };
            self.place += 1;
            let begin = self.output.len();
            encode(&ask(&record, keys), planned.with_cas, &mut self.output);
            if beside.is_some() {
                let mut lines = self.output[begin..].windows(2);
                let end = lines.position(|pair| pair == b"\r\n").expect("it is text");
                let flag = format!(" j{}", self.token).into_bytes();
                self.output.splice(begin + end..begin + end, flag);
            }
            records.push(record);
        }
        records
    }

    /// Reads the answers to the first `answers_max` of the last requests.
    pub(super) fn receive(
        &mut self,
        world: &World,
        keys: &[Vec<u8>],
        records: &mut [Record],
        answers_max: usize,
    ) -> io::Result<()> {
        let answered = records.len().min(answers_max);
        let (stream, input) = (&mut self.stream, &mut self.input);
        read(stream, input, world, keys, &mut records[..answered])
    }
}

impl Client {
    /// Ends the connection, and its session by another one. Returns that as a record, without the time on the server's side.
    pub(super) fn kill(self, world: &World, kill: Kill) -> io::Result<Record> {
        let invoked = world.now();
        end(&self.stream, kill)?;
        if self.is_session() {
            say(&mut open(world)?, &format!("mo {} T0", self.token))?;
        }
        Ok(Record {
            conn: self.conn,
            lane: self.lane,
            place: self.place,
            key: None,
            protocol: if self.is_binary() {
                Protocol::Binary
            } else {
                Protocol::Classic
            },
            operation: Operation::Death,
            invoked,
            answered: NEVER,
            answer: None,
        })
    }
}

/// Notes that requests are sent now.
fn note_sent(world: &World, records: &mut [Record]) {
    let invoked = world.now();
    for record in records {
        record.invoked = invoked;
    }
}

/// Reads the answers to these requests; `input` has the bytes that came before.
fn read(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    world: &World,
    keys: &[Vec<u8>],
    records: &mut [Record],
) -> io::Result<()> {
    let mut chunk = [0; 16 << 10];
    let mut taken = 0;
    let mut arrived = world.now();
    for record in records {
        loop {
            let decoded = decode(&ask(record, keys), &input[taken..]);
            let decoded = decoded.map_err(|unfit| {
                let bytes = input[taken..].escape_ascii();
                io::Error::other(format!("{unfit}: {bytes} to {record}"))
            })?;
            if let Some((answer, bytes)) = decoded {
                taken += bytes;
                record.answer = Some(answer);
                record.answered = arrived;
                break;
            }
            let bytes = stream.read(&mut chunk)?;
            arrived = world.now();
            if bytes == 0 {
                return Err(io::Error::other(format!("the server closes: {record}")));
            }
            input.extend_from_slice(&chunk[..bytes]);
        }
    }
    input.drain(..taken);
    Ok(())
}

fn ask<'a>(record: &'a Record, keys: &'a [Vec<u8>]) -> Ask<'a> {
    Ask {
        operation: &record.operation,
        protocol: record.protocol,
        key: record.key.map_or(&[], |key| &keys[key]),
        opaque: u32::try_from(record.place).expect("a connection has fewer requests"),
    }
}

fn open(world: &World) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(world.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DUE))?;
    stream.set_write_timeout(Some(DUE))?;
    Ok(stream)
}

fn end(stream: &TcpStream, kill: Kill) -> io::Result<()> {
    match kill {
        // Unread answers would make it a reset.
        Kill::Close => stream.shutdown(Shutdown::Write),
        Kill::Reset => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
    }
}

/// Attaches a connection to the session of this token, which must be new (` N`) or not (` R`). Returns its number.
fn attach(stream: &mut TcpStream, token: &str, is_new: &str) -> io::Result<u64> {
    let said = say(stream, &format!("mo {token} T3600"))?;
    let owner = said
        .strip_prefix("HD n")
        .and_then(|rest| rest.strip_suffix(is_new));
    let owner = owner.and_then(|owner| owner.parse().ok());
    owner.ok_or_else(|| {
        io::Error::other(format!("a session is answered: {said}, and{is_new} is due"))
    })
}

/// The line that answers a line.
fn say(stream: &mut TcpStream, request: &str) -> io::Result<String> {
    stream.write_all(format!("{request}\r\n").as_bytes())?;
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        said.extend(byte);
    }
    Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
}
