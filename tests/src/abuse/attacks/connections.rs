//! Connections: too many, too slow, too short-lived, too strange.

use std::io;
use std::iter;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::super::client::Client;
use super::super::target::{Log, Start};
use super::super::{Attack, Outcome, Stage};
use super::turns::small;

/// More connections than the limit.
pub(super) const FLOOD: Attack = Attack {
    name: "flood",
    about: "connections as fast as they go, far past -c 64",
    has_peer: true,
    play: |stage| {
        let target = small(stage, &["-t", "4", "-c", "64"])?;
        let is_over = AtomicBool::new(false);
        let (seen, tried) = stage.watch(target.address, || {
            thread::scope(|scope| {
                let floods: Vec<_> = (0..2)
                    .map(|_| scope.spawn(|| flood(target.address, &is_over)))
                    .collect();
                thread::sleep(stage.setting.span);
                is_over.store(true, Ordering::Relaxed);
                Ok(floods
                    .into_iter()
                    .map(|flood| flood.join().expect("it does not panic"))
                    .sum::<usize>())
            })
        })?;
        let mut outcome = Outcome::default();
        outcome.notes.push(format!("{tried} tried"));
        outcome.seen = Some(seen);
        // If connections come faster than a core can accept them, the kernel drops some, and their
        // peers retry after a second.
        outcome.fresh_max = Some(Duration::from_millis(1_100));
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Connects in a loop, and holds the last few hundred connections.
fn flood(address: std::net::SocketAddr, is_over: &AtomicBool) -> usize {
    let mut held = std::collections::VecDeque::new();
    let mut tried = 0;
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(socket) = TcpStream::connect(address) {
            held.push_back(socket);
        }
        tried += 1;
        if held.len() > 300
            && let Some(oldest) = held.pop_front()
        {
            // Closed by a reset: the kernel limits the number of sockets in TIME_WAIT.
            let _ = socket2::SockRef::from(&oldest).set_linger(Some(Duration::ZERO));
        }
    }
    tried
}

/// A byte now and then keeps a connection from being idle.
pub(super) const DRIP: Attack = Attack {
    name: "drip",
    about: "half a request, a byte at a time, under idle_timeout=2",
    has_peer: true,
    play: |stage| {
        let target = small(stage, &["-t", "4", "-o", "idle_timeout=2"])?;
        let mut dripping = Client::connect(target.address)?;
        dripping.ask("mn")?;
        let begun = Instant::now();
        let mut outcome = Outcome::default();
        let patience = Duration::from_secs(8);
        while begun.elapsed() < patience && !dripping.is_closed() {
            // The look at it shows whether it was closed meanwhile.
            let _ = dripping.send("x");
            thread::sleep(Duration::from_millis(100));
        }
        outcome.span("closed", begun.elapsed(), Duration::from_secs(5));
        Ok(outcome)
    },
};

/// Connections that are reset at once.
pub(super) const RESET_STORM: Attack = Attack {
    name: "reset-storm",
    about: "connect, half a request, reset, as fast as it goes",
    has_peer: true,
    play: |stage| {
        let target = small(stage, &["-t", "4"])?;
        let begun = Instant::now();
        let (seen, rounds) = stage.watch(target.address, || {
            let mut rounds = 0;
            while begun.elapsed() < stage.setting.span {
                let mut client = Client::connect(target.address)?;
                client.send("get innocent\r\nset x 0 0 5\r\nab")?;
                client.reset()?;
                rounds += 1;
            }
            Ok(rounds)
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.notes.push(format!("{rounds} rounds"));
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Large answers, read slowly.
pub(super) const TRICKLE: Attack = Attack {
    name: "trickle",
    about: "100 clients read values of 1 MB a few bytes at a time",
    has_peer: true,
    play: |stage| {
        let target = small(stage, &["-m", "256", "-t", "4"])?;
        let mut writer = Client::connect(target.address)?;
        let value = "v".repeat(1_000_000);
        writer.send(format!("set big 0 0 1000000\r\n{value}\r\n"))?;
        writer.line()?;
        let begun = Instant::now();
        let (seen, ()) = stage.watch(target.address, || {
            let mut clients = Client::connect_many(target.address, 100)?;
            for client in &mut clients {
                client.receive_little()?;
                client.send("get big\r\n")?;
            }
            while begun.elapsed() < stage.setting.span {
                for client in &mut clients {
                    client.read_some(512)?;
                }
            }
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Random bytes.
pub(super) const GARBAGE: Attack = Attack {
    name: "garbage",
    about: "random bytes on one connection after the other",
    has_peer: true,
    play: |stage| {
        let mut target = small(stage, &["-t", "4"])?;
        let begun = Instant::now();
        let mut random = Rng::with_seed(1);
        let (seen, ()) = stage.watch(target.address, || {
            while begun.elapsed() < stage.setting.span {
                let mut client = Client::connect(target.address)?;
                let first: &[u8] = if random.bool() { b"\x80" } else { b"" };
                let mut bytes = first.to_vec();
                bytes.extend(iter::repeat_with(|| random.u8(..)).take(2_000));
                // Closing in the middle is a valid answer.
                let _ = client.send(&bytes);
            }
            Ok(())
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.must(target.ended()?.is_none(), "it has ended");
        Ok(outcome)
    },
};

/// Flags and limit of a server with few descriptors: enough for some twenty connections.
const FEW: Start<'static> = Start {
    ulimit: Some("-n 48"),
    ..Start::new(&["-t", "2"])
};

/// No descriptors are left, and the log cannot be written either.
pub(super) const DESCRIPTORS: Attack = Attack {
    name: "descriptors",
    about: "no descriptors left, again and again; the log pipe closed",
    has_peer: false,
    play: descriptors,
};

fn descriptors(stage: &Stage<'_>) -> io::Result<Outcome> {
    let mut target = stage.start(&Start {
        log: Log::Piped,
        ..FEW
    })?;
    let mut holder = Client::connect(target.address)?;
    holder.send("set k 0 0 1\r\nx\r\n")?;
    holder.line()?;
    let held = holder.ask("lock k")?;
    drop(target.take_log());
    let mut outcome = Outcome::default();
    for _ in 0..3 {
        let mut clients = Vec::new();
        for _ in 0..80 {
            clients.push(TcpStream::connect(target.address)?);
        }
        thread::sleep(Duration::from_millis(300));
    }
    if let Some(status) = target.ended()? {
        outcome.wrongs.push(format!("it has ended: {status}"));
        return Ok(outcome);
    }
    let still = holder.ask("lock k")?;
    outcome.must(
        held == "OK" && still == "LOCKED",
        format!("the holder is told {held}, {still}"),
    );
    let asked = Instant::now();
    Client::connect(target.address)?.ask("mn")?;
    outcome.span("fresh after", asked.elapsed(), Duration::from_millis(500));
    match target.terminate(Duration::from_secs(5))? {
        Some((status, _)) => outcome.must(status.code() == Some(0), format!("SIGTERM: {status}")),
        None => outcome.wrongs.push("SIGTERM is not heard".into()),
    }
    Ok(outcome)
}

/// Accepting is of no use for a while: the server logs that at most once a second.
pub(super) const PAUSE: Attack = Attack {
    name: "pause",
    about: "accepting paused over and over: warnings a second",
    has_peer: false,
    play: pause,
};

fn pause(stage: &Stage<'_>) -> io::Result<Outcome> {
    let mut target = stage.start(&Start {
        log: Log::Piped,
        ..FEW
    })?;
    let log = target.take_log();
    let lines = thread::spawn(move || {
        let Some(log) = log else { return 0 };
        io::BufRead::lines(io::BufReader::new(log))
            .map_while(Result::ok)
            .filter(|line| line.contains("accept"))
            .count()
    });
    let begun = Instant::now();
    while begun.elapsed() < stage.setting.span {
        // At the limit one connection goes and one comes: accepting resumes and pauses each time.
        let mut clients = Vec::new();
        for _ in 0..70 {
            clients.push(TcpStream::connect(target.address)?);
        }
        for _ in 0..40 {
            clients.remove(0);
            thread::sleep(Duration::from_millis(2));
            clients.push(TcpStream::connect(target.address)?);
        }
    }
    let span = begun.elapsed();
    drop(target);
    let lines = lines.join().expect("it does not panic");
    let mut outcome = Outcome::default();
    outcome
        .notes
        .push(format!("{lines} warnings in {} s", span.as_secs()));
    let most = usize::try_from(span.as_secs()).unwrap_or(usize::MAX) + 2;
    outcome.must(lines <= most, format!("{lines} warnings > {most}"));
    Ok(outcome)
}
