//! Every transcript against every server that it is for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use latchd_harness::memory::{Arrival, MemoryPeer};
use latchd_harness::peer::Peer;
use latchd_harness::socket::{ServerProcess, SocketPeer, memcached_dialect, on_path};
use latchd_harness::transcript::run::play;
use latchd_harness::transcript::{Dialect, Transcript, parse::parse};

/// Set if the other servers are required, as in CI.
const REQUIRE_PEERS: &str = "TEST_REQUIRE_PEERS";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

pub(super) fn all() -> Vec<Transcript> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the transcripts are part of the package")
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are no transcripts");
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).expect("a transcript that can be read");
        let shown = file
            .strip_prefix(env!("CARGO_MANIFEST_DIR"))
            .unwrap_or(file);
        parse(&format!("tests/{}", shown.display()), &text)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    files.iter().map(read).collect()
}

/// Plays all transcripts, and fails with all differences.
fn play_all<P: Peer>(
    server: &str,
    dialect: Dialect,
    empty_server: impl Fn() -> io::Result<P> + Sync,
) {
    play_each(server, dialect, 1, |_| empty_server());
}

/// Plays all transcripts, many scenarios at a time since those that wait would hold up the others.
/// A scenario fails if it does in each of `tries`; the server gets the number of the try, from 1
/// on.
fn play_each<P: Peer>(
    server: &str,
    dialect: Dialect,
    tries: u32,
    empty_server: impl Fn(u32) -> io::Result<P> + Sync,
) {
    const PLAYERS: usize = 16;

    let transcripts = all();
    let scenarios: Vec<_> = transcripts
        .iter()
        .flat_map(|transcript| {
            transcript
                .scenarios
                .iter()
                .map(move |scenario| (transcript, scenario))
        })
        .collect();
    let (played, skipped): (Vec<_>, Vec<_>) = scenarios
        .into_iter()
        .partition(|(_, scenario)| scenario.admits(dialect));
    let left = Mutex::new(played.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no player panics").next();
                    let Some((transcript, scenario)) = next else {
                        break;
                    };
                    for number in 1..=tries {
                        let mut peer = empty_server(number)
                            .unwrap_or_else(|error| panic!("{server}: {error}"));
                        match play(&transcript.file, scenario, dialect, &mut peer) {
                            Ok(()) => break,
                            Err(_) if number < tries => {}
                            Err(failure) => {
                                failures.lock().expect("no player panics").push(failure);
                            }
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no player panics");
    failures.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    println!(
        "transcripts against {server}: {} passed, {} failed, {} for other servers",
        played.len() - failures.len(),
        failures.len(),
        skipped.len()
    );
    let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(!played.is_empty(), "no transcript is for {server}");
}

/// Another server: the variable that names its program, and the program's name on PATH.
type PeerName = (&'static str, &'static str);

const MEMCACHED: PeerName = ("TEST_MEMCACHED", "memcached");
const YRMCDS: PeerName = ("TEST_YRMCDSD", "yrmcdsd");

/// Its program, if installed.
fn peer_program((variable, name): PeerName) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| on_path(name))
}

/// Missing peers are reported once, in the last program that `cargo test` runs, where its output is
/// not captured.
#[test]
fn peers_that_are_missing_are_said() {
    let missing: Vec<_> = [MEMCACHED, YRMCDS]
        .into_iter()
        .filter(|peer| peer_program(*peer).is_none())
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        return;
    }
    let missing = missing.join(", ");
    assert!(
        std::env::var_os(REQUIRE_PEERS).is_none(),
        "{REQUIRE_PEERS} is set and there is no {missing}"
    );
    let said = format!(
        "\nnot on PATH, so nothing was compared with it: {missing} (Debian: memcached, yrmcds)\n"
    );
    // The test runner shows the output of `eprintln` only for failing tests.
    io::stderr()
        .write_all(said.as_bytes())
        .expect("standard error takes a line");
}

#[test]
fn the_core_answers_as_the_transcripts_say() {
    let arrival = Arrival::Whole;
    play_all("the core", Dialect::Latchd, || Ok(MemoryPeer::new(arrival)));
}

#[test]
fn the_cutting_of_bytes_changes_no_reply() {
    for bytes in [1, 7] {
        let arrival = Arrival::Cut { bytes };
        play_all("the core, bytes cut", Dialect::Latchd, || {
            Ok(MemoryPeer::new(arrival))
        });
    }
}

/// A latchd server in this process; ends with the value.
pub(super) struct Latchd(Option<latchd_server::Server>);

impl Latchd {
    pub(super) fn start() -> io::Result<SocketPeer<Self>> {
        let mut config = latchd_server::Config::default();
        config.listen = vec![latchd_server::ListenAddress::loopback(0)];
        let server = latchd_server::Server::start(config)?;
        let address = server
            .addresses()
            .iter()
            .find_map(|address| match address {
                latchd_server::Address::Tcp(address) => Some(*address),
                latchd_server::Address::Unix(_) => None,
            })
            .expect("it was told to listen on TCP");
        Ok(SocketPeer::new(address, Self(Some(server))))
    }
}

impl Drop for Latchd {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            server.shutdown();
        }
    }
}

#[test]
fn latchd_answers_as_the_transcripts_say() {
    play_all("latchd", Dialect::Latchd, Latchd::start);
}

#[test]
fn memcached_answers_as_the_transcripts_say() {
    let Some(program) = peer_program(MEMCACHED) else {
        return;
    };
    let dialect = memcached_dialect(&program).expect("a memcached that says its version");
    play_all("memcached", dialect, || {
        ServerProcess::memcached(&program).map(ServerProcess::into_peer)
    });
}

#[test]
fn yrmcds_answers_as_the_transcripts_say() {
    let Some(program) = peer_program(YRMCDS) else {
        return;
    };
    play_each("yrmcds", Dialect::Yrmcds, 3, |number| {
        let peer = ServerProcess::yrmcds(&program)?.into_peer();
        // The time at which it releases a dead client's locks depends on how busy the machine is.
        Ok(match number {
            1 => peer,
            _ => peer.with_notice(Duration::from_secs(5)),
        })
    });
}
