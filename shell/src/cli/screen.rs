//! What is shown of an answer: to a person as text, to a program as the bytes that came.

use std::io::{self, StdoutLock, Write};

use super::connection::Broken;
use super::readable::{shown, whole_characters};

/// How much of a value a person is shown, in bytes. More of it would push away what was asked.
const VALUE_BYTES_SHOWN: usize = 2048;

/// Where answers are shown.
pub(super) struct Screen {
    out: io::BufWriter<StdoutLock<'static>>,
    is_readable: bool,
}

impl Screen {
    pub(super) fn new(is_readable: bool) -> Self {
        Self {
            out: io::BufWriter::new(io::stdout().lock()),
            is_readable,
        }
    }

    /// Shows a line of an answer, which has its end.
    ///
    /// # Errors
    /// Standard output's; as in all of these.
    pub(super) fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_readable {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            writeln!(self.out, "{}", shown(line))
        } else {
            self.out.write_all(line)
        }
    }

    /// Shows a value and the line end behind it, `bytes` together, which `take` hands over in pieces.
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
                write!(self.out, "… {missing} of {value_bytes} bytes are not shown")?;
            }
            writeln!(self.out)?;
        }
        Ok(taken)
    }

    /// Shows a text of ours.
    pub(super) fn tell(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Lets what is shown be seen.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
