//! Memory that the server keeps for a client: unread replies and unfinished requests.
//!
//! The limits of memory are those of docs/OPERATIONS.md: `-m`; half of it for pending output, at
//! least 64 MiB; a quarter for unfinished requests, at least 128 MiB; and the memory of the program
//! and its connections.

use std::io;
use std::thread;
use std::time::Duration;

use super::super::client::Client;
use super::super::target::Start;
use super::super::{Attack, Kind, Outcome, Stage, fill};
use super::turns::small;

/// The memory limit of a server with `-m 64`, in MiB: 64 + 64 + 128, and 32 for itself.
const PEAK_MIB_MAX: u64 = 288;

/// Flags of a server that a crowd attacks.
const FLAGS: &[&str] = &["-m", "64", "-t", "4", "-c", "2048"];

/// The clients do not read their replies. The value is larger than the socket buffers of the
/// kernel, which hold up to 4 MiB on the loopback interface.
pub(super) const NON_READERS: Attack = Attack {
    name: "non-readers",
    about: "100 clients ask for a value of 8 MB and do not read it",
    has_peer: true,
    play: |stage| {
        let target = small(stage, &["-m", "64", "-I", "8m", "-t", "4", "-c", "2048"])?;
        let mut writer = Client::connect(target.address)?;
        let value = "v".repeat(8_000_000);
        writer.send(format!("set big 0 0 8000000\r\n{value}\r\n"))?;
        let stored = writer.line()?;
        if stored != "STORED" {
            return Err(io::Error::other(stored));
        }
        crowd(stage, &target, 100, |client| {
            client.receive_little()?;
            client.send_what_fits("get big\r\n".repeat(10).as_bytes())
        })
    },
};

/// Sets without an end.
pub(super) const UNFINISHED_SETS: Attack = Attack {
    name: "unfinished-sets",
    about: "500 sets of 1 MB of which the last byte is missing",
    has_peer: true,
    play: |stage| {
        let target = small(stage, FLAGS)?;
        let mut request = b"set x 0 0 1000000\r\n".to_vec();
        request.resize(request.len() + 999_999, b'v');
        crowd(stage, &target, 500, |client| {
            client.send(&request).map(|()| request.len())
        })
    },
};

/// Lines without an end.
pub(super) const UNFINISHED_LINES: Attack = Attack {
    name: "unfinished-lines",
    about: "250 get lines of 4 MiB without an end",
    has_peer: true,
    play: |stage| {
        let target = small(stage, FLAGS)?;
        let line = format!("get{}", " aaaaaaa".repeat((4 << 20) / 8 - 1));
        crowd(stage, &target, 250, |client| {
            client.send(&line).map(|()| line.len())
        })
    },
};

/// Very many connections, each with a little of a request.
pub(super) const HALF_REQUESTS: Attack = Attack {
    name: "half-requests",
    about: "2,000 clients send half a request and stay",
    has_peer: true,
    play: |stage| {
        let target = small(stage, FLAGS)?;
        crowd(stage, &target, 2_000, |client| {
            client.send_what_fits(b"set half 0 0 100\r\nhalf")
        })
    },
};

/// The memory of the system is exhausted.
pub(super) const ADDRESS_SPACE: Attack = Attack {
    name: "address-space",
    about: "no more memory from the system (RLIMIT_AS): sets without end",
    has_peer: false,
    play: address_space,
};

fn address_space(stage: &Stage<'_>) -> io::Result<Outcome> {
    // Few threads: each reserves addresses for its stack and its heap. 400 MB in total.
    let mut target = stage.start(&Start {
        ulimit: Some("-v 400000"),
        ..Start::new(&[
            "-m",
            "64",
            "-I",
            "30m",
            "-t",
            "2",
            "-o",
            "read_buf_mem_limit=0",
        ])
    })?;
    fill(&target, 10)?;
    let mut holder = Client::connect(target.address)?;
    let held = holder.ask("lock k0")?;
    let mut request = b"set x 0 0 30000000\r\n".to_vec();
    request.resize(request.len() + 29_999_000, b'v');
    let mut clients = Vec::new();
    for _ in 0..40 {
        // Refusing or closing the connection is the expected answer.
        if let Ok(mut client) = Client::connect(target.address) {
            let _ = client.send(&request);
            clients.push(client);
        }
    }
    let mut outcome = Outcome::default();
    outcome.must(held == "OK", format!("lock: {held}"));
    if let Some(status) = target.ended()? {
        outcome.wrongs.push(format!("it has ended: {status}"));
        return Ok(outcome);
    }
    let closed = clients
        .iter_mut()
        .filter_map(|client| client.is_closed().then_some(()))
        .count();
    outcome.notes.push(format!("{closed} of 40 closed"));
    drop(clients);
    thread::sleep(Duration::from_millis(200));
    let still = holder.ask("lock k0");
    outcome.must(
        still.as_deref().is_ok_and(|answer| answer == "LOCKED"),
        format!("the holder is told {still:?}"),
    );
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

/// Many clients send `bytes` and stay; the innocent clients work on.
fn crowd(
    stage: &Stage<'_>,
    target: &super::super::target::Target,
    count: usize,
    send: impl Fn(&mut Client) -> io::Result<usize>,
) -> io::Result<Outcome> {
    let (seen, ()) = stage.watch(target.address, || {
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = Client::connect(target.address)?;
            // Being closed while sending is one expected end.
            if send(&mut client).is_ok() {
                clients.push(client);
            }
        }
        thread::sleep(stage.setting.span / 2);
        Ok(())
    })?;
    let mut outcome = Outcome::seen(seen);
    let mut client = Client::connect(target.address)?;
    for name in ["read_buf_oom", "response_obj_oom"] {
        let closed = client.stat(name)?.unwrap_or(0);
        if closed > 0 {
            outcome.notes.push(format!("{name} {closed} of {count}"));
        }
    }
    match stage.kind {
        Kind::Latchd => stage.limit_memory(target, &mut outcome, PEAK_MIB_MAX)?,
        Kind::Memcached => stage.note_memory(target, &mut outcome)?,
    }
    Ok(outcome)
}
