//! What an operator looks at, and living holders that are silent: crowds of connections.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::client::Client;
use super::super::target::Start;
use super::super::watch::watch;
use super::super::{Attack, Outcome, Stage};

/// Descriptors that are left for the innocent, the new, and everything else.
const SPARE_DESCRIPTORS: u64 = 200;

/// Thousands take a lock each at the same moment, and live on without a word.
pub(super) const SILENT: Attack = Attack {
    name: "silent",
    about: "living holders that are silent: none is taken for dead",
    has_peer: false,
    play: silent,
};

fn silent(stage: &Stage<'_>) -> io::Result<Outcome> {
    // In the long run with the time that a peer has by default.
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
    let (seen, lost) = watch(target.address, || {
        let mut holders = holders(&target.address, count, 1)?;
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

/// Lets this process, and the servers that it starts, have so many connections.
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

/// So many clients, each of which holds as many locks, which all are asked for before the first answer is read.
fn holders(address: &std::net::SocketAddr, count: usize, locks: usize) -> io::Result<Vec<Client>> {
    let mut clients = Client::connect_many(*address, count)?;
    for (index, client) in clients.iter_mut().enumerate() {
        let requests: Vec<_> = (0..locks)
            .map(|lock| format!("ml h{index}-{lock}\r\n"))
            .collect();
        client.send(requests.concat())?;
    }
    for client in &mut clients {
        for _ in 0..locks {
            let said = client.line()?;
            if said != "HD" {
                return Err(io::Error::other(format!("ml: {said}")));
            }
        }
    }
    Ok(clients)
}
