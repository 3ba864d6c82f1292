//! A client that does little, at a steady pace, and remembers how long each answer took.
//!
//! It shares a thread with the load, which serves it between any two steps of its own: the load's
//! delays are some tens of microseconds, longer ones are the server's or the machine's. The phase
//! in which it is alone shows that, and so do the times at which this thread itself stood still.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use latchd_load::latencies::Latencies;
use latchd_load::wire::{Ask, Dialect, Reply, Requests, shown};
use latchd_load::{PATIENCE, Workload, read};

/// How often it asks.
pub(super) const INTERVAL: Duration = Duration::from_micros(100);
/// Its keys begin where no other client's are.
const FIRST_KEY: u32 = 0x7000_0000;
const KEYS: u32 = 100;
pub(crate) const VALUE_BYTES: usize = 100;

/// The client.
#[derive(Debug)]
pub(crate) struct Innocent {
    stream: TcpStream,
    requests: Requests,
    /// How many requests it has sent.
    sent: u32,
    asked: Option<(Ask, Instant)>,
    due: Instant,
    turns: Turns,
    input: Vec<u8>,
    output: Vec<u8>,
    pub(crate) gets: Latencies,
    pub(crate) sets: Latencies,
    /// Gets that found nothing.
    pub(crate) misses: u64,
}

impl Innocent {
    /// Connects, and stores its value.
    pub(crate) fn new(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut innocent = Self {
            stream,
            requests: Requests::new(Dialect::Classic, VALUE_BYTES, 0),
            sent: 0,
            asked: None,
            due: Instant::now(),
            turns: Turns::since(Instant::now()),
            input: Vec::new(),
            output: Vec::new(),
            gets: Latencies::new(),
            sets: Latencies::new(),
            misses: 0,
        };
        while innocent.sent < 2 * KEYS {
            innocent.turn()?;
        }
        innocent.settle()?;
        innocent.forget();
        Ok(innocent)
    }

    /// For how long at most it stood still itself.
    pub(crate) const fn stood(&self) -> Duration {
        self.turns.longest
    }

    /// Takes the answer that is due, if one is: the next step must not be blamed for it.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while self.asked.is_some() {
            self.turn()?;
        }
        Ok(())
    }

    /// Begins to count anew.
    pub(crate) fn forget(&mut self) {
        self.gets = Latencies::new();
        self.sets = Latencies::new();
        self.misses = 0;
        self.due = Instant::now();
        self.turns = Turns::since(self.due);
    }

    /// As [`turn`](Self::turn), but from `end` on it asks no more.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub(crate) fn turn_until(&mut self, end: Instant) -> Result<()> {
        let now = Instant::now();
        if self.asked.is_none() && now >= end {
            self.turns.note(now);
            return Ok(());
        }
        self.turn()
    }

    /// Asks if it is time to, takes the answer if it is there, and never waits.
    ///
    /// # Errors
    /// The answer is wrong, or does not come.
    pub(crate) fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        self.turns.note(now);
        match self.asked {
            Some((ask, sent_at)) => self.hear(ask, sent_at),
            None if now >= self.due => {
                // Its own keys in turn, each set and then read.
                let key = FIRST_KEY + (self.sent / 2) % KEYS;
                let ask = if self.sent.is_multiple_of(2) {
                    Ask::Set(key)
                } else {
                    Ask::Get(key)
                };
                self.sent += 1;
                self.output.clear();
                self.requests.encode(ask, &mut self.output);
                // `record_paced` counts the requests that it could not send meanwhile.
                self.due = now + INTERVAL;
                self.asked = Some((ask, Instant::now()));
                // One small request always fits into an empty buffer.
                self.stream.write_all(&self.output).context("write")
            }
            None => Ok(()),
        }
    }

    fn hear(&mut self, ask: Ask, sent_at: Instant) -> Result<()> {
        let mut chunk = [0; 1024];
        let Some(bytes) = read(&self.stream, &mut chunk)? else {
            let waited = sent_at.elapsed();
            ensure!(waited < PATIENCE, "{ask:?} was not answered for {waited:?}");
            return Ok(());
        };
        let latency = sent_at.elapsed();
        self.input.extend_from_slice(&chunk[..bytes]);
        let Some((reply, length)) = self.requests.decode(&self.input)? else {
            return Ok(());
        };
        let is_miss = reply == Reply::Miss && matches!(ask, Ask::Get(_));
        if length != self.input.len() || !(is_miss || self.requests.is_answered(ask, &reply)) {
            bail!("{ask:?} was answered {}", shown(&self.input));
        }
        self.misses += u64::from(is_miss);
        let latencies = if matches!(ask, Ask::Get(_)) {
            &mut self.gets
        } else {
            &mut self.sets
        };
        latencies.record_paced(latency, INTERVAL);
        self.input.clear();
        self.asked = None;
        Ok(())
    }
}

/// The time between a thread's turns. These follow each other within microseconds, with an answer
/// or without: a longer time means that it had no processor, or that the processor stood still.
#[derive(Debug)]
struct Turns {
    last: Instant,
    longest: Duration,
}

impl Turns {
    const fn since(last: Instant) -> Self {
        Self {
            last,
            longest: Duration::ZERO,
        }
    }

    fn note(&mut self, now: Instant) {
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }
}

/// A workload that serves an innocent client too.
#[derive(Debug)]
pub(crate) struct Beside<'a, W> {
    pub(crate) innocent: &'a mut Innocent,
    pub(crate) load: W,
    /// Until then the innocent client asks: replies to the load come after its own, if not before.
    pub(crate) until: Instant,
}

impl<W: Workload> Workload for Beside<'_, W> {
    const SHARES_THE_THREAD: bool = true;

    fn next(&mut self, connection: usize) -> Option<Ask> {
        self.load.next(connection)
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        self.load.judge(requests, ask, reply)
    }

    fn share(&mut self) -> Result<()> {
        self.innocent.turn_until(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_between_two_turns_is_kept() {
        let began = Instant::now();
        let mut turns = Turns::since(began);
        for us in [20, 30, 7_030, 7_050] {
            turns.note(began + Duration::from_micros(us));
        }
        assert_eq!(turns.longest, Duration::from_millis(7));
    }
}
