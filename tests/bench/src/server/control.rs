//! A connection for an operator's commands in classic text: it sends a command, and looks for the
//! answer now and then, so that the other user of its thread is not delayed.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use latchd_load::{PATIENCE, read};

/// The commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Question {
    Stats,
    FlushAll,
}

/// Asks one thing at a time.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    asked: Option<(Question, Instant)>,
    input: Vec<u8>,
}

/// An answer, and how long it took.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) took: Duration,
}

impl Question {
    fn words(self) -> &'static [u8] {
        match self {
            Self::Stats => b"stats\r\n",
            Self::FlushAll => b"flush_all\r\n",
        }
    }

    /// The end of its answer.
    fn end(self) -> &'static [u8] {
        match self {
            Self::Stats => b"END\r\n",
            Self::FlushAll => b"OK\r\n",
        }
    }
}

impl Control {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            asked: None,
            input: Vec::new(),
        })
    }

    /// Asks, when the last answer is there.
    pub(crate) fn ask(&mut self, question: Question) -> Result<()> {
        assert!(self.asked.is_none(), "the last one is answered");
        self.asked = Some((question, Instant::now()));
        self.input.clear();
        // A few bytes always fit into an empty buffer.
        self.stream.write_all(question.words()).context("write")
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    /// The answer has not come within [`PATIENCE`].
    pub(crate) fn turn(&mut self) -> Result<Option<Answer>> {
        let Some((question, asked_at)) = self.asked else {
            return Ok(None);
        };
        let mut chunk = [0; 16 << 10];
        let Some(bytes) = read(&self.stream, &mut chunk)? else {
            ensure!(
                asked_at.elapsed() < PATIENCE,
                "{question:?} was not answered for {PATIENCE:?}"
            );
            return Ok(None);
        };
        self.input.extend_from_slice(&chunk[..bytes]);
        if !self.input.ends_with(question.end()) {
            return Ok(None);
        }
        self.asked = None;
        Ok(Some(Answer {
            text: String::from_utf8_lossy(&self.input).into_owned(),
            took: asked_at.elapsed(),
        }))
    }
}

/// The number behind `STAT <name>` of an answer.
pub(crate) fn stat(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix("STAT ")?.strip_prefix(name)?;
        rest.strip_prefix(' ')?.trim_end().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_has_a_name_and_a_number() {
        let text = "STAT pid 7\r\nSTAT curr_items_hot 12\r\nSTAT curr_items 34\r\nEND\r\n";
        assert_eq!(stat(text, "curr_items"), Some(34));
        assert_eq!(stat(text, "pid"), Some(7));
        assert_eq!(stat(text, "items"), None);
    }

    #[test]
    fn an_answer_in_pieces_is_assembled() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut control = Control::open(address).expect("connects");
        let (mut server, _) = listener.accept().expect("a client");
        control.ask(Question::Stats).expect("sent");
        server.write_all(b"STAT curr_items 1\r\nEN").expect("sent");
        while control.input.is_empty() {
            assert!(control.turn().expect("no error").is_none());
        }
        server.write_all(b"D\r\n").expect("sent");
        let answer = loop {
            if let Some(answer) = control.turn().expect("no error") {
                break answer;
            }
        };
        assert_eq!(stat(&answer.text, "curr_items"), Some(1));
        assert!(control.turn().expect("no error").is_none(), "only once");
    }
}
