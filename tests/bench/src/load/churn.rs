//! Connections that come and go: connect, one get, close; some at a time, on one thread.
//!
//! The side that closes first keeps the pair of addresses for a minute, so the clients come from many
//! addresses of the loopback network: one has too few ports.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use latchd_load::wire::{Ask, Requests, shown};
use latchd_load::{Budget, Meter, PATIENCE, Stop, Workload, read, wait};

/// How many client addresses are used in turn, 127.0.0.2 and up.
const ADDRESSES: u8 = 250;
/// Far more than one reply.
const CHUNK_BYTES: usize = 64 << 10;

/// A client that is connected and has asked.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    ask: Ask,
    started: Instant,
    input: Vec<u8>,
}

/// Keeps `at_once` connections under way until `stop`. An operation is one connection, its latency
/// from before it is opened to its answer.
///
/// # Errors
/// An answer is wrong or missing.
pub(crate) fn run<W: Workload>(
    address: SocketAddr,
    at_once: usize,
    requests: &Requests,
    workload: &mut W,
    stop: Stop,
    meter: &mut Meter,
) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?;
    let mut events = Vec::with_capacity(at_once);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut budget = Budget::new(stop);
    let mut clients: Vec<Option<Client>> = Vec::with_capacity(at_once);
    let mut open = 0_usize;
    let mut opened = 0_u64;
    let mut start = |slot: usize, clients: &mut Vec<Option<Client>>, workload: &mut W| {
        budget.look(Instant::now());
        let next = budget.allows().then(|| workload.next(slot));
        let Some(ask) = next.flatten() else {
            return Ok(false);
        };
        budget.spend();
        opened += 1;
        let client = Client::start(address, opened, requests, ask)?;
        let mark = epoll::EventData::new_u64(u64::try_from(slot)?);
        epoll::add(&epoll, &client.stream, mark, epoll::EventFlags::IN)?;
        clients[slot] = Some(client);
        anyhow::Ok(true)
    };
    for slot in 0..at_once {
        clients.push(None);
        open += usize::from(start(slot, &mut clients, workload)?);
    }
    while open > 0 {
        wait(&epoll, &mut events, false)?;
        ensure!(!events.is_empty(), "no answer for {PATIENCE:?}");
        for event in events.drain(..) {
            let slot = usize::try_from(event.data.u64())?;
            let Some(client) = &mut clients[slot] else {
                bail!("an event of a connection that is closed");
            };
            let Some(bytes) = read(&client.stream, &mut chunk)? else {
                continue;
            };
            let answered_at = Instant::now();
            client.input.extend_from_slice(&chunk[..bytes]);
            let Some((reply, length)) = requests.decode(&client.input)? else {
                continue;
            };
            let (ask, all) = (client.ask, client.input.len());
            if length != all || !workload.judge(requests, ask, &reply) {
                bail!("{ask:?} was answered {}", shown(&client.input));
            }
            meter.operations += 1;
            meter.latencies.record(answered_at - client.started, 1);
            // Closing takes it out of the epoll set.
            clients[slot] = None;
            if !start(slot, &mut clients, workload)? {
                open -= 1;
            }
        }
    }
    Ok(())
}

impl Client {
    /// Connects from the next address in turn, and sends the request.
    fn start(to: SocketAddr, number: u64, requests: &Requests, ask: Ask) -> Result<Self> {
        let started = Instant::now();
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        let host = 2 + u8::try_from(number % u64::from(ADDRESSES))?;
        bind(
            &socket,
            &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), 0),
        )
        .context("bind")?;
        connect(&socket, &to).context("connect")?;
        ioctl_fionbio(&socket, true)?;
        let mut stream = TcpStream::from(socket);
        let mut output = Vec::new();
        requests.encode(ask, &mut output);
        // One small request always fits into an empty buffer.
        stream.write_all(&output).context("write")?;
        Ok(Self {
            stream,
            ask,
            started,
            input: Vec::new(),
        })
    }
}
