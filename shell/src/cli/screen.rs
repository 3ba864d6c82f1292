//! Shows replies: as text to a person, as unchanged bytes to a program.

use std::io::{self, StdoutLock, Write};

use super::connection::Broken;
use super::readable::{shown, whole_characters};

/// The longest value that is shown in full, in bytes. A longer one would scroll its request off the terminal.
const VALUE_BYTES_SHOWN: usize = 2048;

/// The output of replies.
pub(super) struct Screen {
    out: io::BufWriter<StdoutLock<'static>>,
    is_readable: bool,
    /// Whether lines of refusals are reported elsewhere.
    hides_refusals: bool,
}

impl Screen {
    pub(super) fn new(is_readable: bool) -> Self {
        Self {
            out: io::BufWriter::new(io::stdout().lock()),
            is_readable,
            hides_refusals: false,
        }
    }

    /// From now on, lines of refusals are not shown.
    pub(super) const fn hide_refusals(&mut self) {
        self.hides_refusals = true;
    }

    /// Shows a line of a refusal.
    pub(super) fn refusal(&mut self, line: &[u8]) -> io::Result<()> {
        if self.hides_refusals {
            return Ok(());
        }
        self.line(line)
    }

    /// Shows a line of a reply, which includes its line end.
    ///
    /// # Errors
    /// Those of standard output, as in all these functions.
    pub(super) fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_readable {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            writeln!(self.out, "{}", shown(line))
        } else {
            self.out.write_all(line)
        }
    }

    /// Shows a value and its line end, together `bytes` long. `take` delivers them in pieces.
    pub(super) fn value(
        &mut self,
        bytes: u64,
        take: impl FnOnce(u64, &mut dyn FnMut(&[u8])) -> Result<(), Broken>,
    ) -> io::Result<Result<(), Broken>> {
        if !self.is_readable {
            let mut written = Ok(());
            let taken = take(bytes, &mut |piece| {
                if written.is_ok() {
                    written = self.out.write_all(piece);
                }
            });
            return written.map(|()| taken);
        }
        let value_bytes = usize::try_from(bytes.saturating_sub(2)).unwrap_or(usize::MAX);
        let mut front = Vec::new();
        let taken = take(bytes, &mut |piece| {
            let left = VALUE_BYTES_SHOWN.min(value_bytes) - front.len();
            front.extend(piece.iter().take(left));
        });
        if taken.is_ok() {
            if front.len() < value_bytes {
                front.truncate(whole_characters(&front));
            }
            let missing = value_bytes - front.len();
            write!(self.out, "{}", shown(&front))?;
            if missing > 0 {
                write!(self.out, "… {missing} of {value_bytes} bytes not shown")?;
            }
            writeln!(self.out)?;
        }
        Ok(taken)
    }

    /// Shows a text of this program.
    pub(super) fn tell(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
