//! A server in threads of the same process, which errs on demand: for tests of the load.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::item::{DIGITS, Values};

/// How the scripted server errs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// It does not err.
    None,
    /// A get finds nothing.
    Misses,
    /// A get returns the value of another key.
    AnothersValue,
    /// The answer is sent twice.
    AnswersTwice,
    /// The connection is closed instead of an answer.
    Closes,
}

/// A server in threads of its own, which end with their connections.
#[derive(Clone, Debug)]
pub struct Scripted {
    address: SocketAddr,
    value_bytes: usize,
    /// Answers are sent in pieces of this many bytes.
    piece_bytes: usize,
    flaw: Flaw,
    /// The number of the request that is answered wrongly.
    flaw_at: u64,
    served: Arc<AtomicU64>,
}

impl Scripted {
    /// A server whose values have `value_bytes` bytes and whose answers are sent in pieces of `piece_bytes` bytes. The
    /// request with the number `flaw_at`, from 1 on, is answered with the flaw.
    #[must_use]
    pub fn start(value_bytes: usize, piece_bytes: usize, flaw: Flaw, flaw_at: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = Self {
            address: listener.local_addr().expect("bound"),
            value_bytes,
            piece_bytes,
            flaw,
            flaw_at,
            served: Arc::new(AtomicU64::new(0)),
        };
        let script = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = script.clone();
                // A client that goes away in the middle ends the thread, and that is all.
                std::thread::spawn(move || script.serve(&stream));
            }
        });
        server
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests it has read.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = io::BufReader::new(stream);
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 {
            let number = self.served.fetch_add(1, Ordering::SeqCst) + 1;
            let flaw = if number == self.flaw_at {
                self.flaw
            } else {
                Flaw::None
            };
            if line.starts_with("set ") {
                input.read_exact(&mut vec![0; self.value_bytes + 2])?;
            }
            let times = match flaw {
                Flaw::Closes => return Ok(()),
                Flaw::AnswersTwice => 2,
                Flaw::None | Flaw::Misses | Flaw::AnothersValue => 1,
            };
            for bytes in self
                .answer(&line, flaw)
                .repeat(times)
                .chunks(self.piece_bytes)
            {
                stream.write_all(bytes)?;
            }
            line.clear();
        }
        Ok(())
    }

    fn answer(&self, line: &str, flaw: Flaw) -> Vec<u8> {
        let (verb, rest) = line.split_once(' ').expect("a verb and a key");
        match verb {
            "get" if flaw == Flaw::Misses => b"END\r\n".to_vec(),
            "get" => {
                let key = rest.trim_end();
                let digits = match flaw {
                    Flaw::AnothersValue => "ffffffff",
                    Flaw::None | Flaw::Misses | Flaw::AnswersTwice | Flaw::Closes => {
                        &key[key.len() - DIGITS..]
                    }
                };
                let header = format!("VALUE {key} 0 {}\r\n{digits}", self.value_bytes);
                let mut answer = header.into_bytes();
                answer.extend(Values::new(self.value_bytes).rest());
                answer.extend(b"\r\nEND\r\n");
                answer
            }
            "set" => b"STORED\r\n".to_vec(),
            _ => b"OK\r\n".to_vec(),
        }
    }
}
