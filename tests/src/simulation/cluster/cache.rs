//! Clients that write and read items. Each writes rising numbers to a key of its own, and reads the keys of the others.

use std::collections::BTreeSet;

use latchd_cluster::election::Id;

use super::network::{Down, Up};
use super::world::{Breach, Client, Judged, Kind, World};
use super::{CLIENTS, MS, S};

/// The longest time for an answer, in microseconds.
const PATIENCE: u64 = S;

/// A client of items.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// The last number that it has written, or tried to write.
    number: u64,
    /// The CAS of its item.
    cas: Option<u64>,
    asked: Option<Asked>,
    input: Vec<u8>,
    next_at: u64,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: u64,
    request: Request,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Write,
    /// A read of the key of a client, which must not show less than this number.
    Read {
        of: usize,
        known: u64,
    },
}

/// The numbers of a key that a process has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    newest: u64,
    /// Those that were sent without an answer, and may be stored late.
    unknown: BTreeSet<u64>,
}

impl Client {
    fn cache(&mut self) -> Option<&mut Cache> {
        match &mut self.kind {
            Kind::Cache(cache) => Some(cache),
            Kind::Locker(_) => None,
        }
    }
}

impl World {
    /// A client of items hears something, and goes on.
    pub(super) fn tell_cache(&mut self, client: usize, down: Down) -> Judged {
        let pause = 20 * MS + self.random.below(60 * MS);
        let next_at = self.now + pause;
        match down {
            Down::Opened(_) => {}
            Down::Refused | Down::Closed => self.forget(client, next_at),
            Down::Bytes(bytes) => {
                let Some(cache) = self.clients[client].cache() else {
                    return Ok(());
                };
                cache.input.extend_from_slice(&bytes);
                if let Some(reply) = whole(&cache.input) {
                    cache.input.clear();
                    self.read_reply(client, &reply)?;
                    if let Some(cache) = self.clients[client].cache() {
                        cache.next_at = next_at;
                    }
                }
            }
        }
        self.drive_cache(client);
        Ok(())
    }

    /// Connects, asks, or gives up.
    pub(super) fn drive_cache(&mut self, client: usize) {
        let now = self.now;
        let is_open = self.clients[client]
            .link
            .as_ref()
            .map(|link| link.process.is_some());
        let Some(cache) = self.clients[client].cache() else {
            return;
        };
        if let Some(asked) = cache.asked {
            let ends = asked.at + PATIENCE;
            if now < ends {
                self.wake(client, ends);
                return;
            }
            self.give_up(client);
        } else if now < cache.next_at {
            let at = cache.next_at;
            self.wake(client, at);
        } else if is_open == Some(true) {
            self.ask(client);
        } else if is_open.is_none() {
            cache.next_at = now + PATIENCE;
            self.connect(client);
            self.wake(client, now + PATIENCE);
        } else {
            // The connection was not accepted in time.
            self.give_up(client);
        }
    }

    fn give_up(&mut self, client: usize) {
        let at = self.now + 20 * MS;
        self.hang_up(client);
        self.clients[client].next_node += 1;
        self.forget(client, at);
        self.wake(client, at);
    }

    /// The connection has ended. A write without an answer may be stored at any time while its process lives.
    fn forget(&mut self, client: usize, next_at: u64) {
        if let Some(cache) = self.clients[client].cache() {
            (cache.asked, cache.cas) = (None, None);
            cache.input.clear();
            cache.next_at = next_at;
        }
    }

    fn ask(&mut self, client: usize) {
        let process = self.process_of(client);
        let partition = self.clients[client].partition;
        let of_partition = |one: &usize| self.clients[*one].partition == partition;
        let others: Vec<usize> = (0..CLIENTS).filter(of_partition).collect();
        let of = *self.random.choose(&others);
        let writes = self.random.chance(2, 5);
        let guards = self.random.chance(1, 2);
        let known = self.items.get(&(process, of)).map_or(0, |one| one.newest);
        let at = self.now;
        let Some(cache) = self.clients[client].cache() else {
            return;
        };
        let (request, text) = if writes {
            cache.number += 1;
            let (number, value) = (cache.number, format!("{}.{}", process.0, cache.number));
            let guard = cache.cas.filter(|_| guards);
            let guard = guard.map_or(String::new(), |cas| format!(" C{cas}"));
            let length = value.len();
            let numbers = self.items.entry((process, client)).or_default();
            numbers.unknown.insert(number);
            let text = format!("ms item{client} {length} c{guard}\r\n{value}\r\n");
            (Request::Write, text)
        } else {
            (Request::Read { of, known }, format!("mg item{of} v c\r\n"))
        };
        if let Some(cache) = self.clients[client].cache() {
            cache.asked = Some(Asked { at, request });
        }
        self.send_up(client, Up::Bytes(text.into_bytes()));
        self.wake(client, at + PATIENCE);
    }

    fn process_of(&self, client: usize) -> Id {
        let link = self.clients[client].link.as_ref();
        let process = link.and_then(|link| link.process);
        process.expect("the connection is open")
    }

    /// Judges the reply to a request (X3, X4).
    fn read_reply(&mut self, client: usize, reply: &str) -> Judged {
        let process = self.process_of(client);
        let Some(cache) = self.clients[client].cache() else {
            return Ok(());
        };
        let Some(asked) = cache.asked.take() else {
            let what = format!("client {client} got \"{reply}\" to no request");
            return Err(Breach::new("N1", what));
        };
        if reply.starts_with("SERVER_ERROR not primary") {
            self.tally.refused += 1;
            self.give_up(client);
            return Ok(());
        }
        let mut words = reply.split_ascii_whitespace();
        match (asked.request, words.next()) {
            (Request::Write, Some("HD")) => {
                let (number, cas) = (cache.number, number(words.next(), 'c'));
                cache.cas = Some(cas);
                self.tally.writes += 1;
                let numbers = self.items.entry((process, client)).or_default();
                numbers.unknown.remove(&number);
                numbers.newest = numbers.newest.max(number);
                let last = std::mem::replace(&mut self.cas[client], cas);
                Breach::unless(cas > last, "X3", || {
                    format!("the CAS of item{client} falls from {last} to {cas}")
                })
            }
            (Request::Write, Some("EX" | "NF")) => {
                let number = cache.number;
                cache.cas = None;
                let numbers = self.items.entry((process, client)).or_default();
                numbers.unknown.remove(&number);
                Ok(())
            }
            (Request::Read { of, known }, Some("EN")) => Breach::unless(known == 0, "X4", || {
                format!("process {} has lost item{of}, number {known}", process.0)
            }),
            (Request::Read { of, known }, Some("VA")) => {
                self.tally.reads += 1;
                self.judge_item(process, of, known, reply)
            }
            (_, _) => Err(Breach::new(
                "N1",
                format!("client {client} got \"{reply}\" to {asked:?}"),
            )),
        }
    }

    fn judge_item(&mut self, process: Id, of: usize, known: u64, reply: &str) -> Judged {
        let value = reply.split("\r\n").nth(1).unwrap_or_default();
        let (writer, shown) = value.split_once('.').unwrap_or_default();
        Breach::unless(writer == process.0.to_string(), "X4", || {
            format!("process {} returns {value} as item{of}", process.0)
        })?;
        let shown = number(Some(shown), '0');
        let numbers = self.items.entry((process, of)).or_default();
        numbers.newest = numbers.newest.max(shown);
        let is_late = numbers.unknown.contains(&shown);
        Breach::unless(shown >= known || is_late, "X4", || {
            format!(
                "process {} returns item{of}, number {shown} after {known}",
                process.0
            )
        })
    }
}

/// The number behind a letter; 0 if there is none.
fn number(word: Option<&str>, letter: char) -> u64 {
    let word = word.map(|word| word.trim_start_matches(letter));
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A whole reply; `None` if more is to come.
fn whole(input: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(input).ok()?;
    let lines = if text.starts_with("VA ") { 2 } else { 1 };
    (text.matches("\r\n").count() == lines).then(|| text.to_owned())
}
