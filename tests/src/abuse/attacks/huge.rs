//! Values of several megabytes, each of which moves as much memory as ten thousand small ones, and
//! values that change their size.

use std::io;

use super::super::client::Client;
use super::super::target::Start;
use super::super::{Attack, Outcome, Stage};

/// The length of a huge value.
const HUGE_BYTES: usize = 32_000_000;

/// Flags of a server with room for some of them.
const FLAGS: &[&str] = &["-m", "1024", "-I", "64m", "-t", "2"];

/// One byte makes the server copy a value.
pub(super) const APPENDS: Attack = Attack {
    name: "huge-appends",
    about: "100 times one byte is appended to a value of 32 MB",
    has_peer: true,
    play: |stage| {
        let target = stage.start(&Start::new(FLAGS))?;
        let mut client = Client::connect(target.address)?;
        store(&mut client, "huge", HUGE_BYTES)?;
        let (seen, answers) = stage.watch(target.address, || {
            client.pipeline(100, "STORED", |_, bytes| {
                bytes.extend_from_slice(b"append huge 0 0 1\r\nx\r\n");
            })
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.must(answers == 100, format!("{answers} of 100 are answered"));
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// Values come in one piece each.
pub(super) const SETS: Attack = Attack {
    name: "huge-sets",
    about: "20 values of 32 MB are stored one behind the other",
    has_peer: true,
    play: |stage| {
        let target = stage.start(&Start::new(FLAGS))?;
        let mut client = Client::connect(target.address)?;
        let (seen, ()) = stage.watch(target.address, || {
            (0..20).try_for_each(|number| store(&mut client, &format!("huge{number}"), HUGE_BYTES))
        })?;
        let mut outcome = Outcome::seen(seen);
        stage.note_memory(&target, &mut outcome)?;
        Ok(outcome)
    },
};

/// With `--secure-erase`, a value is erased in one piece.
pub(super) const ERASED: Attack = Attack {
    name: "huge-erased",
    about: "10 values of 32 MB are deleted at once with --secure-erase",
    has_peer: false,
    play: |stage| {
        let target = stage.start(&Start::new(&[FLAGS, &["--secure-erase"]].concat()))?;
        let mut client = Client::connect(target.address)?;
        for number in 0..10 {
            store(&mut client, &format!("huge{number}"), HUGE_BYTES)?;
        }
        let (seen, answers) = stage.watch(target.address, || {
            client.pipeline(10, "DELETED", |number, bytes| {
                bytes.extend_from_slice(format!("delete huge{number}\r\n").as_bytes());
            })
        })?;
        let mut outcome = Outcome::seen(seen);
        outcome.must(answers == 10, format!("{answers} of 10 are deleted"));
        Ok(outcome)
    },
};

/// A value is stored in the buffer that it arrived in.
pub(super) const ONE_COPY: Attack = Attack {
    name: "one-copy",
    about: "one value of 200 MB: how often is it in memory at most?",
    has_peer: true,
    play: |stage| {
        let bytes = 200_000_000;
        let target = stage.start(&Start::new(&["-m", "1000", "-I", "400m", "-t", "1"]))?;
        store(&mut Client::connect(target.address)?, "huge", bytes)?;
        let mut outcome = Outcome::default();
        stage.limit_memory(&target, &mut outcome, (bytes as u64 >> 20) + 16)?;
        Ok(outcome)
    },
};

/// Sizes change, from small values that share segments to large ones with allocations of their own,
/// and back. With the smallest values, the index and the ghosts are largest: they must leave the process, too.
pub(super) const SIZES: Attack = Attack {
    name: "sizes",
    about: "values of 10 B, then of 100 kB, 1 kB, 33 kB, 100 B, 1 MB and 50 kB fill a small server",
    has_peer: true,
    play: sizes,
};

/// The memory limit of the server whose values change their size, in KiB.
const SIZES_KIB: u64 = 64 << 10;

fn sizes(stage: &Stage<'_>) -> io::Result<Outcome> {
    // The smallest values fill the server once; fewer of the others, since each takes as long as a large one.
    const ROUNDS: [(usize, usize); 7] = [
        (10, 1_500_000),
        (100_000, 860),
        (1_000, 86_000),
        (33_000, 2_600),
        (100, 200_000),
        (1_000_000, 86),
        (50_000, 1_720),
    ];

    let target = stage.start(&Start::new(&["-m", "64", "-t", "1"]))?;
    // The server without items.
    let rest_kib = target.resident_kib()?;
    let mut client = Client::connect(target.address)?;
    let mut outcome = Outcome::default();
    let mut most_kib = 0;
    for (value_bytes, items) in ROUNDS {
        let value = "v".repeat(value_bytes);
        let stored = client.pipeline(items, "STORED", |number, bytes| {
            let head = format!("set {value_bytes}-{number} 0 0 {value_bytes}\r\n{value}\r\n");
            bytes.extend_from_slice(head.as_bytes());
        })?;
        if stored < items {
            return Err(io::Error::other(format!(
                "only {stored} of {items} values of {value_bytes} bytes are stored"
            )));
        }
        most_kib = most_kib.max(target.resident_kib()?);
    }
    let of_items_kib = most_kib.saturating_sub(rest_kib);
    outcome.notes.push(format!(
        "{of_items_kib} KiB for the items, of {SIZES_KIB} KiB"
    ));
    outcome.must(
        of_items_kib <= SIZES_KIB + SIZES_KIB / 50,
        "more than 2 % above -m",
    );
    stage.note_memory(&target, &mut outcome)?;
    Ok(outcome)
}

fn store(client: &mut Client, key: &str, bytes: usize) -> io::Result<()> {
    let mut request = format!("set {key} 0 0 {bytes}\r\n").into_bytes();
    request.resize(request.len() + bytes, b'v');
    request.extend_from_slice(b"\r\n");
    client.send(&request)?;
    let answer = client.line()?;
    if answer == "STORED" {
        Ok(())
    } else {
        Err(io::Error::other(answer))
    }
}
