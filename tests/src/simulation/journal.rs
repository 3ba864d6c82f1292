//! What happened, event by event: the last of it is kept for a failing run, all of it is printed for
//! who asks.

use std::collections::VecDeque;
use std::fmt;

use super::answer::{Answer, Hit};
use super::ask::Ask;

/// How many events a failing run shows.
const KEPT: usize = 30;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Connected,
    /// The client wrote a request; it is on its way.
    Wrote(Ask),
    /// Bytes came to the server.
    Arrived(usize),
    /// The server answered.
    Answered(Ask, Brief),
    /// The client read bytes.
    Read(usize),
    /// The client does not read any more, or does again.
    Stalled(bool),
    /// The client means to send nothing more.
    HalfClosed,
    /// The server has seen the end of the client's bytes.
    SawEnd,
    Reset,
    /// The server has closed.
    Closed,
    /// Time is now as said; the core is told the second number.
    Time(u64, u64),
}

/// An answer without what it borrows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brief {
    word: &'static str,
    bytes: Option<usize>,
    number: Option<u64>,
    marks: [bool; 3],
}

impl Brief {
    pub(super) fn of(answer: &Answer<'_>) -> Self {
        let plain = |word| Self {
            word,
            bytes: None,
            number: None,
            marks: [false; 3],
        };
        let with = |word, number| Self {
            number,
            ..plain(word)
        };
        match *answer {
            Answer::Hit(Hit {
                value, cas, marks, ..
            }) => {
                let marks = marks.unwrap_or_default();
                Self {
                    word: "hit",
                    bytes: value.map(<[u8]>::len),
                    number: cas,
                    marks: [marks.stale, marks.won, marks.sent],
                }
            }
            Answer::Missing => plain("missing"),
            Answer::Stored(cas) => with("stored", cas),
            Answer::NotStored => plain("not stored"),
            Answer::Exists => plain("exists"),
            Answer::Deleted => plain("deleted"),
            Answer::Touched => plain("touched"),
            Answer::Counted { number, .. } => with("counted", number),
            Answer::Ok => plain("ok"),
            Answer::Locked => plain("locked"),
            Answer::NotLocked => plain("not locked"),
            Answer::TooManyLocks => plain("too many locks"),
            Answer::OutOfMemory => plain("out of memory"),
            Answer::TooLarge => plain("too large"),
            Answer::NonNumeric => plain("not a number"),
            Answer::Key(_) => plain("key"),
            Answer::Stat => plain("stat"),
            Answer::End => plain("end"),
            Answer::Debug { lock, .. } => with("debug, held by", lock),
            Answer::Greeting => plain("greeting"),
            Answer::Malformed => plain("malformed"),
            Answer::Unanswered => plain("(unanswered)"),
        }
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word)?;
        if let Some(bytes) = self.bytes {
            write!(formatter, " {bytes} bytes")?;
        }
        if let Some(number) = self.number {
            write!(formatter, " {number}")?;
        }
        for (mark, letter) in self.marks.iter().zip(["X", "W", "Z"]) {
            if *mark {
                write!(formatter, " {letter}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "#{} {:?} {:?}",
            self.number, self.wire, self.what
        )?;
        for key in &self.keys[..usize::from(self.key_count)] {
            write!(formatter, " key{key}")?;
        }
        if self.stores() {
            write!(formatter, " {} bytes", self.text.bytes())?;
        }
        for (name, number) in [
            ("exptime", self.exptime.map(i64::from)),
            ("N", self.vivify.map(i64::from)),
            ("R", self.recache.map(i64::from)),
            (
                "cas",
                i64::try_from(self.guard).ok().filter(|cas| *cas != 0),
            ),
        ] {
            if let Some(number) = number {
                write!(formatter, " {name} {number}")?;
            }
        }
        for (name, given) in [
            ("else stale", self.else_stale),
            ("quiet", self.quiet),
            ("base64", self.in_base64),
        ] {
            if given {
                write!(formatter, " {name}")?;
            }
        }
        Ok(())
    }
}

/// One line of the journal.
#[derive(Clone, Copy, Debug)]
struct Entry {
    event: u64,
    client: usize,
    conn: u64,
    note: Note,
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            event,
            client,
            conn,
            note,
        } = self;
        write!(formatter, "{event:>9}  ")?;
        if let Note::Time(now_ms, told_ms) = note {
            return write!(
                formatter,
                "time is {now_ms} ms, the core is told {told_ms} ms; tick"
            );
        }
        write!(formatter, "client {client:>2} (connection {conn}) ")?;
        match note {
            Note::Connected => write!(formatter, "connects"),
            Note::Wrote(ask) => write!(formatter, "writes {ask}"),
            Note::Arrived(bytes) => write!(formatter, "{bytes} bytes arrive"),
            Note::Answered(ask, brief) => write!(formatter, "is answered {ask}: {brief}"),
            Note::Read(bytes) => write!(formatter, "reads {bytes} bytes"),
            Note::Stalled(true) => write!(formatter, "stops reading"),
            Note::Stalled(false) => write!(formatter, "reads again"),
            Note::HalfClosed => write!(formatter, "closes its side"),
            Note::SawEnd => write!(formatter, "is seen to have closed its side"),
            Note::Reset => write!(formatter, "is reset"),
            Note::Closed => write!(formatter, "is closed by the server"),
            Note::Time(..) => Ok(()),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(super) struct Journal {
    aloud: bool,
    last: VecDeque<Entry>,
}

impl Journal {
    pub(super) fn new(aloud: bool) -> Self {
        Self {
            aloud,
            last: VecDeque::with_capacity(KEPT),
        }
    }

    pub(super) fn note(&mut self, event: u64, client: usize, conn: u64, note: Note) {
        let entry = Entry {
            event,
            client,
            conn,
            note,
        };
        if self.aloud {
            println!("{entry}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    /// The last events, a line each.
    pub(super) fn last(&self) -> Vec<String> {
        self.last.iter().map(Entry::to_string).collect()
    }
}
