//! Random streams of lock commands, over several connections, for yrmcds.
//!
//! A version is used at once after it was shown and never later: yrmcds counts the versions of an
//! object from 1 and starts again with the next object of that key, so an old version may be right
//! by accident. Numbers only grow, since yrmcds does not pad one that gets shorter as memcached and
//! latchd do. No value is empty: yrmcds takes none in binary. `flush_all` is left out, since a held
//! object survives it for good in yrmcds.

use latchd_harness::random::Random;
use latchd_protocol::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_protocol::wire::binary::{Extras, Opcode, RequestPacket};

use super::PairedRequest;
use super::cas::{CasBook, CasPair};

/// The connections that take part.
const CONNECTIONS: [char; 4] = ['A', 'B', 'C', 'D'];

/// Few, so that they collide; one digit, so that each is a prefix of itself alone.
const KEYS: u64 = 5;

/// Keys of numbers.
const NUMBER_KEYS: u64 = 2;

/// All keys of a stream.
pub fn keys() -> impl Iterator<Item = String> {
    let words = (0..KEYS).map(word_key);
    words.chain((0..NUMBER_KEYS).map(number_key))
}

fn word_key(number: u64) -> String {
    format!("k{number}")
}

fn number_key(number: u64) -> String {
    format!("n{number}")
}

/// A source of requests.
#[derive(Debug)]
pub struct LockStream {
    random: Random,
    is_binary: bool,
    /// The key of the last request for a version.
    asked: Option<String>,
}

/// The next step.
#[derive(Debug)]
pub enum Next {
    /// A batch on a connection.
    Batch(char, Vec<PairedRequest>),
    /// A connection closes.
    Close(char),
}

impl LockStream {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64, is_binary: bool) -> Self {
        Self {
            random: Random::new(seed),
            is_binary,
            asked: None,
        }
    }

    /// The next step.
    pub fn next(&mut self, book: &CasBook) -> Next {
        let conn = *self.random.choose(&CONNECTIONS);
        if self.asked.is_none() && self.random.chance(1, 2_000) {
            return Next::Close(conn);
        }
        let mut batch = Vec::new();
        if let Some(key) = self.asked.take()
            && let Some(cas) = book.current(&key)
        {
            let wrong = CasPair {
                theirs: cas.theirs + 1_000,
                ours: cas.ours + 1_000_000,
            };
            let cas = if self.random.chance(1, 3) { wrong } else { cas };
            batch.push(if self.is_binary {
                self.binary_versioned(&key, cas)
            } else {
                self.text_versioned(&key, cas)
            });
        }
        for _ in 0..=self.random.below(10) {
            batch.push(if self.is_binary {
                self.binary()
            } else {
                self.text()
            });
        }
        if self.random.chance(1, 4) {
            let key = self.key();
            batch.push(if self.is_binary {
                PairedRequest::packet(&about(Opcode::Get, &key), None)
            } else {
                PairedRequest::about(&key, format!("gets {key}\r\n"))
            });
            self.asked = Some(key);
        }
        Next::Batch(conn, batch)
    }

    fn key(&mut self) -> String {
        word_key(self.random.below(KEYS))
    }

    fn number_key(&mut self) -> String {
        number_key(self.random.below(NUMBER_KEYS))
    }

    fn value(&mut self, key: &str) -> &'static str {
        if key.starts_with('n') {
            self.random.choose::<&str>(&["1", "9", "100"])
        } else {
            self.random.choose::<&str>(&["v", "hello", "with\r\nlines"])
        }
    }

    fn exptime(&mut self) -> u32 {
        *self.random.choose(&[0, 0, 1_000, 100_000])
    }

    fn text(&mut self) -> PairedRequest {
        let key = if self.random.chance(1, 4) {
            self.number_key()
        } else {
            self.key()
        };
        let noreply = if self.random.chance(1, 10) {
            " noreply"
        } else {
            ""
        };
        let line = match self.random.below(100) {
            0..=24 => format!("lock {key}\r\n"),
            25..=41 => format!("unlock {key}\r\n"),
            42..=44 => "unlock_all\r\n".to_owned(),
            45..=69 => {
                const VERBS: [&str; 6] = ["set", "set", "add", "replace", "append", "prepend"];
                let verb = *self.random.choose(&VERBS);
                let joins = verb == "append" || verb == "prepend";
                // A prefix of a number would make it shorter when it is counted.
                let key = if joins { self.key() } else { key };
                let value = self.value(&key);
                let (flags, exptime) = (self.random.below(3), self.exptime());
                let length = value.len();
                return PairedRequest::about(
                    &key,
                    format!("{verb} {key} {flags} {exptime} {length}{noreply}\r\n{value}\r\n"),
                );
            }
            70..=75 => format!("incr {key} 1{noreply}\r\n"),
            76..=77 => format!("decr {key} 0{noreply}\r\n"),
            78..=82 => format!("delete {key}{noreply}\r\n"),
            83..=85 => format!("touch {key} {}{noreply}\r\n", self.exptime()),
            86..=95 => format!("get {key}\r\n"),
            96..=97 => format!("keys {key}\r\n"),
            _ => {
                const BAD: [&str; 3] = ["lock\r\n", "lock k0 k1\r\n", "lock k0 noreply\r\n"];
                (*self.random.choose(&BAD)).to_owned()
            }
        };
        PairedRequest::about(&key, line)
    }

    fn text_versioned(&mut self, key: &str, cas: CasPair) -> PairedRequest {
        let value = self.value(key);
        let line = format!("cas {key} 7 {} {} ", self.exptime(), value.len());
        let mut request = PairedRequest::about(key, line);
        request.push_cas(cas).push(format!("\r\n{value}\r\n"));
        request
    }

    fn store_packet<'a>(&mut self, opcodes: &[Opcode], key: &'a str) -> RequestPacket<'a> {
        RequestPacket {
            extras: Extras::Store {
                client_flags: u32::try_from(self.random.below(3)).unwrap_or(0),
                exptime: self.exptime(),
            },
            value: self.value(key).as_bytes(),
            ..about(*self.random.choose(opcodes), key)
        }
    }

    fn binary(&mut self) -> PairedRequest {
        use Opcode as O;
        const STORES: [O; 7] = [
            O::Set,
            O::Set,
            O::SetQ,
            O::Add,
            O::AddQ,
            O::Replace,
            O::ReplaceQ,
        ];
        let key = if self.random.chance(1, 4) {
            self.number_key()
        } else {
            self.key()
        };
        // A word, to which something is joined.
        let word = self.key();
        let packet = match self.random.below(100) {
            0..=19 => about(*self.random.choose(&[O::Lock, O::Lock, O::LockQ]), &key),
            20..=31 => {
                let opcodes = [O::LaG, O::LaGQ, O::LaGK, O::LaGKQ];
                let mut packet = about(*self.random.choose(&opcodes), &key);
                if self.random.chance(1, 3) {
                    packet.extras = Extras::Exptime(self.exptime());
                }
                packet
            }
            32..=44 => {
                let opcodes = [O::Unlock, O::Unlock, O::UnlockQ];
                about(*self.random.choose(&opcodes), &key)
            }
            45..=47 => RequestPacket::new(*self.random.choose(&[O::UnlockAll, O::UnlockAllQ])),
            48..=57 => self.store_packet(&[O::RaU, O::RaUQ], &key),
            58..=74 => self.store_packet(&STORES, &key),
            75..=78 => {
                let opcodes = [O::Append, O::AppendQ, O::Prepend, O::PrependQ];
                RequestPacket {
                    value: b"x",
                    ..about(*self.random.choose(&opcodes), &word)
                }
            }
            79..=83 => {
                // A word that is made a number could become one to yrmcds only: `0x`.
                let makes = key.starts_with('n') && self.random.chance(1, 2);
                RequestPacket {
                    extras: Extras::Arithmetic {
                        delta: 1,
                        initial: 0,
                        exptime: if makes { 0 } else { EXPTIME_DO_NOT_CREATE },
                    },
                    ..about(*self.random.choose(&[O::Increment, O::IncrementQ]), &key)
                }
            }
            84..=88 => {
                let opcodes = [O::Delete, O::Delete, O::DeleteQ];
                about(*self.random.choose(&opcodes), &key)
            }
            89..=91 => RequestPacket {
                extras: Extras::Exptime(self.exptime()),
                ..about(*self.random.choose(&[O::Touch, O::Gat]), &key)
            },
            _ => {
                let opcodes = [O::Get, O::GetQ, O::GetK, O::GetKQ];
                about(*self.random.choose(&opcodes), &key)
            }
        };
        PairedRequest::packet(&packet, None)
    }

    fn binary_versioned(&mut self, key: &str, cas: CasPair) -> PairedRequest {
        let opcodes = [Opcode::Set, Opcode::Replace, Opcode::RaU, Opcode::RaU];
        PairedRequest::packet(&self.store_packet(&opcodes, key), Some(cas))
    }
}

/// A packet about a key.
fn about(opcode: Opcode, key: &str) -> RequestPacket<'_> {
    RequestPacket {
        key: key.as_bytes(),
        ..RequestPacket::new(opcode)
    }
}

/// The item of [`expiry_script`] that expires and is not held.
pub const EXPIRING: &str = "e1";

/// The requests of one connection, sent at once.
pub type ScriptBatch = (char, Vec<PairedRequest>);

/// An item that expires while it is held stays until it is unlocked: the requests before the wait
/// and after it, on two connections. Those before it go out at once on each connection, so that no
/// item expires between them.
#[must_use]
pub fn expiry_script() -> [Vec<ScriptBatch>; 2] {
    let before: &[(char, &[&str])] = &[
        (
            'A',
            &[
                "set e0 0 1 1\r\nv\r\n",
                "set e1 0 1 1\r\nv\r\n",
                "lock e0\r\n",
            ],
        ),
        ('B', &["lock e0\r\n"]),
    ];
    let after: &[(char, &[&str])] = &[
        (
            'B',
            &[
                "get e0\r\n",
                "get e1\r\n",
                "lock e1\r\n",
                "lock e0\r\n",
                "set e0 0 0 1\r\nw\r\n",
            ],
        ),
        ('A', &["unlock e0\r\n", "get e0\r\n"]),
        ('B', &["lock e0\r\n"]),
    ];
    [before, after].map(|script| {
        let batches = script.iter().map(|(conn, texts)| {
            let requests = texts.iter().map(|text| PairedRequest::new(*text));
            (*conn, requests.collect())
        });
        batches.collect()
    })
}
