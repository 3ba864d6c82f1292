//! The events of a run: the last of it for a run that fails, all of it with `-v`. A run that is not
//! known to fail keeps nothing; it is played a second time then.

use std::collections::VecDeque;
use std::fmt;

use super::ask::Ask;

/// How many events a failing run shows.
const KEPT: usize = 30;

impl fmt::Display for Ask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            protocol,
            request,
            number,
            text,
            style,
            ..
        } = self;
        write!(formatter, "#{number} {protocol:?} {what:?}")?;
        write!(formatter, " key{}", self.first)?;
        if self.key_count > 1 {
            write!(formatter, " and {} more", self.key_count - 1)?;
        }
        if let Some(request) = request {
            write!(formatter, " {request:?}")?;
        }
        write!(formatter, ", {} bytes", text.bytes())?;
        if let Some(after) = style.ttl_after {
            write!(formatter, ", t after {after}")?;
        }
        if style.quiet {
            formatter.write_str(", quiet")?;
        }
        Ok(())
    }
}

/// The recorded events.
#[derive(Debug)]
pub(super) struct Trace {
    keeps: Keeps,
    last: VecDeque<String>,
}

/// The extent of a trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keeps {
    /// Nothing, which is fastest: a failing run can be played again.
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

    /// Notes a line of the trace, if it keeps any.
    pub(super) fn note(&mut self, event: u64, line: impl FnOnce() -> String) {
        if self.keeps == Keeps::Nothing {
            return;
        }
        let line = format!("{event:>9}  {}", line());
        if self.keeps == Keeps::LastAloud {
            println!("{line}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// The last events, a line each.
    pub(super) fn last(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}
