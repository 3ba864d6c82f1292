//! A process with clients as its threads. Another process sends it orders, and reads the recorded
//! answers.
//!
//! It is the program again (`--record ADDRESS`). Its standard input is lines: the first one is a
//! [`Post`], each other one an [`Order`], and it ends with them. It prints frames: a kind, a
//! length, the bytes.
//!
//! Moments are by the clock that all processes of a machine have in common, from the moment that the post names; so are the
//! numbers of clients, of which each process has some of its own.

use std::fmt;
use std::io::{self, BufRead as _, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::client::World;
use super::history::Record;
use super::one_step::Look;
use super::packed::{self, Nonsense};
use super::play::OPERATIONS_A_ROUND;
use super::worker::{Board, Worker};

/// The most bytes of a frame: some three million looks, which is a hundred times as many as a step
/// takes.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// The first number of each process's clients is a multiple of this.
const CLIENTS_A_PROCESS: u64 = 1 << 32;

/// The settings of a recording process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) seed: u64,
    /// How many clients it has.
    pub(super) clients: u64,
    /// The number of the first of them, among all clients.
    pub(super) first: u64,
    pub(super) process: u64,
    pub(super) processes: u64,
    /// The moment that all others are counted from.
    pub(super) began: u64,
}

impl fmt::Display for Post {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            clients,
            first,
            process,
            processes,
            began,
        } = self;
        write!(
            formatter,
            "{seed} {clients} {first} {process} {processes} {began}"
        )
    }
}

impl Post {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            seed: number()?,
            clients: number()?,
            first: number()?,
            process: number()?,
            processes: number()?,
            began: number()?,
        })
    }
}

/// The next job of all clients of a process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Order {
    Mix {
        name: String,
        keys: usize,
    },
    Watch {
        name: String,
        keys: usize,
        holder: Option<u64>,
    },
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mix { name, keys } => write!(formatter, "mix {name} {keys}"),
            Self::Watch { name, keys, holder } => {
                write!(formatter, "watch {name} {keys}")?;
                holder.map_or(Ok(()), |holder| write!(formatter, " {holder}"))
            }
        }
    }
}

impl Order {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["mix", name, keys] => Self::Mix {
                name: name.to_owned(),
                keys: keys.parse().ok()?,
            },
            ["watch", name, keys, ref holder @ ..] => Self::Watch {
                name: name.to_owned(),
                keys: keys.parse().ok()?,
                holder: match holder {
                    [] => None,
                    [holder] => Some(holder.parse().ok()?),
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

/// The kind of a frame.
const WATCHING: u8 = b'W';
const MIXED: u8 = b'M';
const LOOKS: u8 = b'L';
const FAILED: u8 = b'E';

fn write_frame(out: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok();
    let length = length.filter(|length| *length <= FRAME_BYTES_MAX);
    let length =
        length.ok_or_else(|| io::Error::other("more was seen than there is room to tell"))?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)?;
    out.flush()
}

fn read_frame(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame that is too long"));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    from.read_exact(&mut bytes)?;
    Ok((kind, bytes))
}

/// Follows orders until the standard input ends.
///
/// # Errors
/// The address is invalid, an order is nonsense, the server closes or sends an invalid answer, or
/// the output is closed. All but the last of them are printed as well.
pub fn record(address: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let recorded = obey(address, &mut out);
    if let Err(error) = &recorded {
        write_frame(&mut out, FAILED, error.to_string().as_bytes())?;
    }
    recorded
}

fn obey(address: &str, out: &mut impl Write) -> io::Result<()> {
    let nonsense = |line: &str| io::Error::other(format!("no order: {line}"));
    let address = address.parse().map_err(io::Error::other)?;
    let mut lines = io::stdin().lock().lines();
    let Some(line) = lines.next().transpose()? else {
        return Ok(());
    };
    let post = Post::parse(&line).ok_or_else(|| nonsense(&line))?;
    let first = (post.process + 1) * CLIENTS_A_PROCESS;
    let world = Arc::new(World::joined(address, post.began, first));
    let workers = (0..post.clients)
        .map(|number| Worker::new(Arc::clone(&world), post.first + number, post.seed));
    let mut workers = workers.collect::<io::Result<Vec<_>>>()?;
    // The ordering process waits for this, so that no client is missing when connections are
    // counted.
    write_frame(out, WATCHING, &[])?;
    for line in lines {
        let line = line?;
        let board = |name: &str, keys| Board::shared(name, keys, post.process, post.processes);
        match Order::parse(&line).ok_or_else(|| nonsense(&line))? {
            Order::Mix { name, keys } => {
                let bytes = mix(&mut workers, &board(&name, keys))?;
                write_frame(out, MIXED, &bytes)?;
            }
            Order::Watch { name, keys, holder } => {
                let bytes = watch(&mut workers, &board(&name, keys), holder, out)?;
                write_frame(out, LOOKS, &bytes)?;
            }
        }
    }
    Ok(())
}

fn mix(workers: &mut [Worker], board: &Board) -> io::Result<Vec<u8>> {
    thread::scope(|scope| {
        let clients: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    let mut records = Vec::new();
                    let mixed = worker.mix(board, OPERATIONS_A_ROUND, &mut records);
                    mixed.map(|()| records)
                })
            })
            .collect();
        let mut bytes = Vec::new();
        for client in clients {
            for record in client.join().expect("no client panics")? {
                packed::encode(&record, &mut bytes);
            }
        }
        Ok(bytes)
    })
}

fn watch(
    workers: &mut [Worker],
    board: &Board,
    holder: Option<u64>,
    out: &mut impl Write,
) -> io::Result<Vec<u8>> {
    let (begun, clients) = (AtomicU64::new(0), workers.len() as u64);
    thread::scope(|scope| {
        let begun = &begun;
        let clients_at_it: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || worker.watch(board, holder, begun)))
            .collect();
        while begun.load(Ordering::SeqCst) < clients {
            thread::yield_now();
        }
        write_frame(out, WATCHING, &[])?;
        let mut bytes = Vec::new();
        for client in clients_at_it {
            for look in client.join().expect("no client panics")? {
                packed::encode_look(&look, &mut bytes);
            }
        }
        Ok(bytes)
    })
}

/// Such a process, seen from the ordering one.
#[derive(Debug)]
pub(super) struct Recorder {
    child: Child,
    orders: ChildStdin,
    frames: ChildStdout,
}

impl Recorder {
    /// Starts one. Returns when all its clients are connected.
    pub(super) fn start(world: &World, post: &Post) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--record", &world.address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (orders, frames) = (child.stdin.take(), child.stdout.take());
        let mut recorder = Self {
            child,
            orders: orders.expect("it is piped"),
            frames: frames.expect("it is piped"),
        };
        writeln!(recorder.orders, "{post}")?;
        recorder.expect(WATCHING)?;
        Ok(recorder)
    }

    fn expect(&mut self, expected: u8) -> io::Result<Vec<u8>> {
        let (kind, bytes) = read_frame(&mut self.frames)?;
        match kind {
            kind if kind == expected => Ok(bytes),
            FAILED => Err(io::Error::other(
                String::from_utf8_lossy(&bytes).into_owned(),
            )),
            kind => Err(io::Error::other(format!("a frame {kind} for {expected}"))),
        }
    }

    /// Has its clients send random requests about the keys of a round.
    pub(super) fn mix(&mut self, name: &str, keys: usize) -> io::Result<Vec<Record>> {
        let name = name.to_owned();
        writeln!(self.orders, "{}", Order::Mix { name, keys })?;
        all(&self.expect(MIXED)?, packed::decode)
    }

    /// Has its clients look at keys until a step is done. Calls `begun` when all of them have
    /// begun.
    pub(super) fn watch(
        &mut self,
        name: &str,
        keys: usize,
        holder: Option<u64>,
        begun: impl FnOnce(),
    ) -> io::Result<Vec<Look>> {
        let name = name.to_owned();
        writeln!(self.orders, "{}", Order::Watch { name, keys, holder })?;
        let watching = self.expect(WATCHING);
        // Also if they do not: no thread must wait for them.
        begun();
        watching?;
        all(&self.expect(LOOKS)?, packed::decode_look)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn all<T>(
    mut bytes: &[u8],
    decode: impl Fn(&mut &[u8]) -> Result<T, Nonsense>,
) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(
            decode(&mut bytes).map_err(|_: Nonsense| io::Error::other("bytes that say nothing"))?,
        );
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let name = || "step-7".to_owned();
        let orders = [
            Order::Mix {
                name: name(),
                keys: 6,
            },
            Order::Watch {
                name: name(),
                keys: 16,
                holder: None,
            },
            Order::Watch {
                name: name(),
                keys: 16,
                holder: Some(99),
            },
        ];
        for order in orders {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        assert_eq!(Order::parse("watch step-7 16 99 1"), None);
    }

    #[test]
    fn overlong_frames_are_neither_written_nor_read() {
        let long = vec![0; 1 + usize::try_from(FRAME_BYTES_MAX).unwrap()];
        let mut out = Vec::new();
        assert!(write_frame(&mut out, MIXED, &long).is_err());
        assert_eq!(out, b"");
        let head = [&[MIXED][..], &(FRAME_BYTES_MAX + 1).to_le_bytes()].concat();
        let error = read_frame(&mut [&head[..], &long].concat().as_slice()).unwrap_err();
        assert_eq!(error.to_string(), "a frame that is too long");
    }
}
