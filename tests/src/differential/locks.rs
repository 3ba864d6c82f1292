//! Random streams of lock commands, over several connections, for yrmcds.
//!
//! A version is used at once after it was told and never later: yrmcds counts the versions of an
//! object from 1 and starts again with the next object of that key, so an old version may be right
//! by accident. Numbers only grow, since yrmcds does not pad one that gets shorter as memcached
//! and latchd do. No value is empty: yrmcds takes none in binary. `flush_all` is left out, since yrmcds lets a held object survive it for good, and
//! so is what text clients of memcached have had since.

use super::PairedRequest;
use super::cas::{CasBook, CasPair};
use super::packet::{Packet, opcode as op};
use super::request_builder::RequestBuilder;
use crate::generate::Random;

/// The connections that take part.
const CONNECTIONS: [char; 4] = ['A', 'B', 'C', 'D'];

/// Few, so that they collide; one digit, so that each is a prefix of itself alone.
const KEYS: u64 = 5;

/// A source of requests.
#[derive(Debug)]
pub struct LockStream {
    random: Random,
    is_binary: bool,
    /// The key whose version was asked for last.
    asked: Option<String>,
}

/// What comes next.
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

    /// What comes next.
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
            let mut builder = if self.is_binary {
                Packet {
                    key: key.clone().into_bytes(),
                    ..Packet::new(op::GET)
                }
                .builder(None)
            } else {
                RequestBuilder::new(Some(&key))
            };
            if !self.is_binary {
                builder.push(format!("gets {key}\r\n"));
            }
            batch.push(builder.done());
            self.asked = Some(key);
        }
        Next::Batch(conn, batch)
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.below(KEYS))
    }

    fn number_key(&mut self) -> String {
        format!("n{}", self.random.below(2))
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
        let mut builder = RequestBuilder::new(Some(&key));
        match self.random.below(100) {
            0..=24 => builder.push(format!("lock {key}\r\n")),
            25..=41 => builder.push(format!("unlock {key}\r\n")),
            42..=44 => builder.push("unlock_all\r\n"),
            45..=69 => {
                const VERBS: [&str; 6] = ["set", "set", "add", "replace", "append", "prepend"];
                let verb = *self.random.choose(&VERBS);
                let joins = verb == "append" || verb == "prepend";
                // What is put before a number would make it shorter when it is counted.
                let key = if joins { self.key() } else { key };
                let value = self.value(&key);
                let (flags, exptime) = (self.random.below(3), self.exptime());
                builder = RequestBuilder::new(Some(&key));
                let length = value.len();
                builder.push(format!(
                    "{verb} {key} {flags} {exptime} {length}{noreply}\r\n{value}\r\n"
                ))
            }
            70..=75 => builder.push(format!("incr {key} 1{noreply}\r\n")),
            76..=77 => builder.push(format!("decr {key} 0{noreply}\r\n")),
            78..=82 => builder.push(format!("delete {key}{noreply}\r\n")),
            83..=85 => builder.push(format!("touch {key} {}{noreply}\r\n", self.exptime())),
            86..=95 => builder.push(format!("get {key}\r\n")),
            96..=97 => builder.push(format!("keys {key}\r\n")),
            _ => builder.push(*self.random.choose(&[
                "lock\r\n",
                "lock k0 k1\r\n",
                "lock k0 noreply\r\n",
            ])),
        };
        builder.done()
    }

    fn text_versioned(&mut self, key: &str, cas: CasPair) -> PairedRequest {
        let value = self.value(key);
        let mut builder = RequestBuilder::new(Some(key));
        builder.push(format!("cas {key} 7 {} {} ", self.exptime(), value.len()));
        builder.push_cas(cas, false);
        builder.push(format!("\r\n{value}\r\n"));
        builder.done()
    }

    fn store_packet(&mut self, opcodes: &[u8], key: &str) -> Packet {
        let flags = u32::try_from(self.random.below(3)).unwrap_or(0);
        Packet {
            key: key.as_bytes().to_vec(),
            extras: [flags.to_be_bytes(), self.exptime().to_be_bytes()].concat(),
            value: self.value(key).as_bytes().to_vec(),
            ..Packet::new(*self.random.choose(opcodes))
        }
    }

    fn binary(&mut self) -> PairedRequest {
        const STORES: [u8; 7] = [
            op::SET,
            op::SET,
            op::SETQ,
            op::ADD,
            op::ADDQ,
            op::REPLACE,
            op::REPLACEQ,
        ];
        let key = if self.random.chance(1, 4) {
            self.number_key()
        } else {
            self.key()
        };
        let bare = |opcode: u8, key: &str| Packet {
            key: key.as_bytes().to_vec(),
            ..Packet::new(opcode)
        };
        let packet = match self.random.below(100) {
            0..=19 => bare(*self.random.choose(&[op::LOCK, op::LOCK, op::LOCKQ]), &key),
            20..=31 => {
                let opcodes = [op::LAG, op::LAGQ, op::LAGK, op::LAGKQ];
                let mut packet = bare(*self.random.choose(&opcodes), &key);
                if self.random.chance(1, 3) {
                    packet.extras = self.exptime().to_be_bytes().to_vec();
                }
                packet
            }
            32..=44 => bare(
                *self.random.choose(&[op::UNLOCK, op::UNLOCK, op::UNLOCKQ]),
                &key,
            ),
            45..=47 => Packet::new(*self.random.choose(&[op::UNLOCK_ALL, op::UNLOCK_ALLQ])),
            48..=57 => self.store_packet(&[op::RAU, op::RAUQ], &key),
            58..=74 => self.store_packet(&STORES, &key),
            75..=78 => {
                let key = self.key();
                let opcodes = [op::APPEND, op::APPENDQ, op::PREPEND, op::PREPENDQ];
                Packet {
                    value: b"x".to_vec(),
                    ..bare(*self.random.choose(&opcodes), &key)
                }
            }
            79..=83 => {
                let delta = 1_u64.to_be_bytes();
                // A word that is made a number could become one to yrmcds only: `0x`.
                let makes = key.starts_with('n') && self.random.chance(1, 2);
                let exptime = if makes { 0 } else { u32::MAX };
                Packet {
                    extras: [&delta[..], &[0; 8], &u32::to_be_bytes(exptime)].concat(),
                    ..bare(*self.random.choose(&[op::INCREMENT, op::INCREMENTQ]), &key)
                }
            }
            84..=88 => bare(
                *self.random.choose(&[op::DELETE, op::DELETE, op::DELETEQ]),
                &key,
            ),
            89..=91 => Packet {
                extras: self.exptime().to_be_bytes().to_vec(),
                ..bare(*self.random.choose(&[op::TOUCH, op::GAT]), &key)
            },
            _ => bare(
                *self
                    .random
                    .choose(&[op::GET, op::GETQ, op::GETK, op::GETKQ]),
                &key,
            ),
        };
        packet.builder(None).done()
    }

    fn binary_versioned(&mut self, key: &str, cas: CasPair) -> PairedRequest {
        let opcodes = [op::SET, op::REPLACE, op::RAU, op::RAU];
        self.store_packet(&opcodes, key).builder(Some(cas)).done()
    }
}

/// An item that expires while it is held stays until it is unlocked: what is sent before the wait
/// and after it, on two connections.
#[must_use]
pub fn expiry_script() -> [Vec<(char, PairedRequest)>; 2] {
    let before = vec![
        ('A', "set e0 0 1 1\r\nv\r\n"),
        ('A', "set e1 0 1 1\r\nv\r\n"),
        ('A', "lock e0\r\n"),
        ('B', "lock e0\r\n"),
    ];
    let after = vec![
        ('B', "get e0\r\n"),
        ('B', "get e1\r\n"),
        ('B', "lock e1\r\n"),
        ('B', "lock e0\r\n"),
        ('B', "set e0 0 0 1\r\nw\r\n"),
        ('A', "unlock e0\r\n"),
        ('A', "get e0\r\n"),
        ('B', "lock e0\r\n"),
    ];
    let requests = |script: Vec<(char, &str)>| {
        script
            .into_iter()
            .map(|(conn, text)| (conn, PairedRequest::new(text)))
            .collect()
    };
    [requests(before), requests(after)]
}
