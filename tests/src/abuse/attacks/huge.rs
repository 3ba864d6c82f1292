//! Values of several megabytes, each of which moves as much memory as ten thousand small ones, and
//! values that change their size.

use std::io;

use super::super::client::Client;
use super::super::target::Start;
use super::super::watch::watch;
use super::super::{Attack, Outcome};

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
        let (seen, answers) = watch(target.address, || {
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
        let (seen, ()) = watch(target.address, || {
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
        let (seen, answers) = watch(target.address, || {
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

/// Sizes change, from large values with allocations of their own to small ones that share segments,
/// and back.
pub(super) const SIZES: Attack = Attack {
    name: "sizes",
    about: "values of 100 kB, then of 1 kB, 33 kB, 100 B, 1 MB, 50 kB and 10 B fill a small server",
    has_peer: true,
    play: |stage| {
        let target = stage.start(&Start::new(&["-m", "64", "-t", "1"]))?;
        let mut client = Client::connect(target.address)?;
        for (round, value_bytes) in [100_000, 1_000, 33_000, 100, 1_000_000, 50_000, 10]
            .into_iter()
            .enumerate()
        {
            // A third more than fits; fewer of the smallest, since each takes as long as a large
            // one.
            let items = (86_000_000 / value_bytes).min(200_000);
            let value = "v".repeat(value_bytes);
            let stored = client.pipeline(items, "STORED", |number, bytes| {
                let head = format!("set {round}-{number} 0 0 {value_bytes}\r\n{value}\r\n");
                bytes.extend_from_slice(head.as_bytes());
            })?;
            if stored < items {
                return Err(io::Error::other(format!(
                    "only {stored} of {items} values of {value_bytes} bytes are stored"
                )));
            }
        }
        let mut outcome = Outcome::default();
        // Within 2 % of `-m`, plus 16 MiB for the server itself.
        stage.limit_memory(&target, &mut outcome, 64 + 2 + 16)?;
        Ok(outcome)
    },
};

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
