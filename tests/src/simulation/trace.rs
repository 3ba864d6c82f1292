//! What happened, event by event: the last of it for a run that fails, all of it for who asks. A
//! run of which nobody knows yet that it fails keeps nothing; it is played a second time then.

use std::collections::VecDeque;
use std::fmt;

use super::ask::Ask;
use super::observed::{Counted, Hit, Observed};

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
    /// It is so late now, in milliseconds; a time that went back as well.
    Time(u64),
    /// The wall clock is so many seconds ahead.
    WallClock(u8),
    /// The core is told that time has passed.
    Tick,
    /// An item that nobody asks for is stored.
    Pressure(u8),
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
    pub(super) fn of(answer: &Observed<'_>) -> Self {
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
            Observed::Hit(Hit {
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
            Observed::Missing => plain("missing"),
            Observed::Stored(cas) => with("stored", cas),
            Observed::NotStored => plain("not stored"),
            Observed::Exists => plain("exists"),
            Observed::Deleted => plain("deleted"),
            Observed::Touched => plain("touched"),
            Observed::Counted(Counted { number, .. }) => with("counted", number),
            Observed::Ok => plain("ok"),
            Observed::Locked => plain("locked"),
            Observed::NotLocked => plain("not locked"),
            Observed::TooManyLocks => plain("too many locks"),
            Observed::OutOfMemory => plain("out of memory"),
            Observed::TooLarge => plain("too large"),
            Observed::NonNumeric => plain("not a number"),
            Observed::Key(_) => plain("key"),
            Observed::Stat => plain("stat"),
            Observed::End => plain("end"),
            Observed::Debug { lock, .. } => with("debug, held by", lock),
            Observed::Greeting => plain("greeting"),
            Observed::Malformed => plain("malformed"),
            Observed::Unanswered => plain("(unanswered)"),
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
            self.number, self.protocol, self.what
        )?;
        for key in &self.keys[..usize::from(self.key_count)] {
            write!(formatter, " key{key}")?;
        }
        if self.stores() {
            write!(formatter, " {} bytes", self.text.bytes())?;
        }
        if let Some(request) = &self.request {
            write!(formatter, " {request:?}")?;
        }
        let numbers = [
            ("C", self.known_cas()),
            ("E", self.new_cas()),
            ("t after", self.style.ttl_after.map(u64::from)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write!(formatter, " {name} {number}")?;
            }
        }
        if self.is_guarded() {
            write!(formatter, " {:?}", self.guard())?;
        }
        if self.style.quiet {
            formatter.write_str(" quiet")?;
        }
        Ok(())
    }
}

/// One line of the trace.
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
        match note {
            Note::Time(now_ms) => return write!(formatter, "it is {now_ms} ms"),
            Note::WallClock(ahead_s) => {
                return write!(formatter, "the wall clock is {ahead_s} s ahead");
            }
            Note::Tick => return write!(formatter, "tick"),
            Note::Pressure(key) => return write!(formatter, "nobody stores item {key}"),
            _ => {}
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
            Note::Time(_) | Note::WallClock(_) | Note::Tick | Note::Pressure(_) => Ok(()),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(super) struct Trace {
    keeps: Keeps,
    last: VecDeque<Entry>,
}

/// What a trace is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keeps {
    /// Nothing, which is fastest: what fails can be played again.
    Nothing,
    /// The last events.
    Last,
    /// The last events, and all are printed.
    LastAloud,
}

impl Trace {
    pub(super) const fn new(keeps: Keeps) -> Self {
        Self {
            keeps,
            last: VecDeque::new(),
        }
    }

    pub(super) fn note(
        &mut self,
        event: u64,
        client: usize,
        conn: u64,
        note: impl FnOnce() -> Note,
    ) {
        if self.keeps == Keeps::Nothing {
            return;
        }
        let entry = Entry {
            event,
            client,
            conn,
            note: note(),
        };
        if self.keeps == Keeps::LastAloud {
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
