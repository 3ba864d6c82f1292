//! The operator's commands under load, and living holders that are silent: crowds of connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchd_harness::socket::free_port;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::super::client::Client;
use super::super::target::Start;
use super::super::{Attack, Outcome, Stage};

/// Descriptors for the innocent clients, the new ones, and everything else.
const SPARE_DESCRIPTORS: u64 = 200;

/// Thousands acquire a lock each at the same moment, and live on silently.
///
/// A server that lets the kernel alone probe them loses some: over 1,000 probes must fall into one tick of the kernel's
/// timers, 64 ms for a silence of 2 s. The server is stopped while the clients send, so the requests are
/// executed together however slow the clients are.
pub(super) const SILENT: Attack = Attack {
    name: "silent",
    about: "living holders that are silent: none is taken for dead",
    has_peer: false,
    play: silent,
};

fn silent(stage: &Stage<'_>) -> io::Result<Outcome> {
    // In the long run with the default of `--dead-peer`.
    let (count, dead_peer, span_s) = if is_quick(stage) {
        (4_000, "3", 6)
    } else {
        (10_000, "10", 60)
    };
    need_descriptors(count)?;
    let flags = [
        "-t",
        "4",
        "-c",
        "20000",
        "-m",
        "1024",
        "--dead-peer",
        dead_peer,
    ];
    let target = stage.start(&Start::new(&flags))?;
    let mut holders = Client::connect_many(target.address, count)?;
    // The acceptor has given all of them to workers.
    holders
        .last_mut()
        .map_or(Ok(String::new()), |last| last.ask("mn"))?;
    target.signal(Signal::STOP)?;
    let sent = request_locks(&mut holders, 1);
    target.signal(Signal::CONT)?;
    sent?;
    read_grants(&mut holders, 1)?;
    let (seen, lost) = stage.watch(target.address, || {
        thread::sleep(Duration::from_secs(span_s));
        Ok(holders
            .iter_mut()
            .filter_map(|client| client.is_closed().then_some(()))
            .count())
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.must(lost == 0, format!("{lost} of {count} were taken for dead"));
    outcome.notes.push(format!("{count} for {span_s} s"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

/// Whether sizes and spans are small.
fn is_quick(stage: &Stage<'_>) -> bool {
    stage.setting.span < Duration::from_secs(2)
}

/// Raises the descriptor limit of this process, and of the servers that it starts, to `count`.
fn need_descriptors(count: usize) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let needed = count as u64 + SPARE_DESCRIPTORS;
    if maximum.is_some_and(|maximum| maximum < needed) {
        let why = format!("{count} connections take {needed} descriptors: ulimit -n");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let current = Some(needed.max(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

/// Connects `count` clients, each of which holds `locks` locks. All are requested before the first
/// answer is read.
fn holders(address: SocketAddr, count: usize, locks: usize) -> io::Result<Vec<Client>> {
    let mut clients = Client::connect_many(address, count)?;
    request_locks(&mut clients, locks)?;
    read_grants(&mut clients, locks)?;
    Ok(clients)
}

/// Each client requests `locks` locks.
fn request_locks(clients: &mut [Client], locks: usize) -> io::Result<()> {
    let requests = (0..clients.len()).map(|index| {
        let of_one = (0..locks).map(|lock| format!("ml h{index}-{lock}\r\n"));
        of_one.collect::<String>()
    });
    // Prepared first, so that all are sent in the shortest time.
    let requests: Vec<_> = requests.collect();
    for (client, requests) in clients.iter_mut().zip(requests) {
        client.send(requests)?;
    }
    Ok(())
}

/// Reads the replies to [`request_locks`].
fn read_grants(clients: &mut [Client], locks: usize) -> io::Result<()> {
    for client in clients {
        for _ in 0..locks {
            let said = client.line()?;
            if said != "HD" {
                return Err(io::Error::other(format!("ml: {said}")));
            }
        }
    }
    Ok(())
}

/// Silent connections to the status port, which reconnect when they are closed.
pub(super) const STATUS_CROWD: Attack = Attack {
    name: "status-crowd",
    about: "1,000 silent connections to the status port: healthz",
    has_peer: false,
    play: status_crowd,
};

/// How long `healthz` may take beside them: the default timeout of a probe.
const HEALTHZ_MAX: Duration = Duration::from_secs(1);

fn status_crowd(stage: &Stage<'_>) -> io::Result<Outcome> {
    const CROWD: usize = 1_000;
    let status = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let target = stage.start(&Start::new(&["-t", "4", "--status", &status.to_string()]))?;
    let (seen, (asked, answered, worst)) = stage.watch(target.address, || {
        let mut crowd = Client::connect_many(status, CROWD)?;
        let (mut asked, mut answered, mut worst) = (0, 0, Duration::ZERO);
        let begun = Instant::now();
        while begun.elapsed() < 2 * stage.setting.span {
            for silent in &mut crowd {
                if silent.is_closed() {
                    *silent = Client::connect(status)?;
                }
            }
            let from = Instant::now();
            asked += 1;
            answered += usize::from(is_well(status).unwrap_or(false));
            worst = worst.max(from.elapsed());
        }
        Ok((asked, answered, worst))
    })?;
    let mut outcome = Outcome::seen(seen);
    outcome.span("healthz", worst, HEALTHZ_MAX);
    let missed = asked - answered;
    outcome.must(
        missed == 0,
        format!("{missed} of {asked} were not answered"),
    );
    outcome.notes.push(format!("{answered} of {asked}"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

/// Whether the server reports that it is healthy.
fn is_well(status: SocketAddr) -> io::Result<bool> {
    let mut client = Client::connect(status)?;
    client.send("GET /healthz HTTP/1.0\r\n\r\n")?;
    Ok(client.line()? == "HTTP/1.1 200 OK")
}

/// Statistics and lists while thousands hold locks and keys are counted by prefix.
pub(super) const STATS_CROWD: Attack = Attack {
    name: "stats-crowd",
    about: "`stats` and its lists, of thousands of holders and prefixes",
    has_peer: false,
    play: stats_crowd,
};

fn stats_crowd(stage: &Stage<'_>) -> io::Result<Outcome> {
    const LOCKS: usize = 16;
    let count = if is_quick(stage) { 2_000 } else { 8_000 };
    need_descriptors(count)?;
    let flags = ["-t", "4", "-c", "20000", "-m", "1024", "-D", ":"];
    let target = stage.start(&Start::new(&flags))?;
    let prefixes = Client::connect(target.address)?.pipeline(60_000, "EN", |index, bytes| {
        bytes.extend_from_slice(format!("mg prefix{index}:k\r\n").as_bytes());
    })?;
    let holders = holders(target.address, count, LOCKS)?;
    let (seen, asked) = stage.watch(target.address, || {
        let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
        let ask_on = |list: &'static str| {
            let mut client = Client::connect(target.address)?;
            while !is_over.load(Ordering::Relaxed) {
                client.send(format!("{list}\r\n"))?;
                client.read_until("END")?;
                asked.fetch_add(1, Ordering::Relaxed);
            }
            io::Result::Ok(())
        };
        let result = thread::scope(|scope| {
            let lists = ["stats", "stats conns", "stats locks", "stats detail dump"];
            let asking = lists.map(|list| {
                scope.spawn({
                    let ask_on = &ask_on;
                    move || ask_on(list)
                })
            });
            thread::sleep(2 * stage.setting.span);
            is_over.store(true, Ordering::Relaxed);
            let mut asking = asking.into_iter();
            asking.try_for_each(|client| client.join().expect("it does not panic"))
        });
        result.map(|()| asked.into_inner())
    })?;
    drop(holders);
    let mut outcome = Outcome::seen(seen);
    outcome.notes.push(format!("{asked} lists"));
    outcome.must(prefixes == 60_000, format!("{prefixes} misses"));
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}
