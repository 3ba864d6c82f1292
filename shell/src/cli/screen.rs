//! Shows replies: as text to a person, as unchanged bytes to a program.

use std::io::{self, StdoutLock, Write};

use super::connection::{Broken, Connection};
use super::readable::{shown, whole_characters, without_end};

/// The longest value that is shown in full, in bytes. A longer one would scroll its request off the terminal.
const VALUE_BYTES_SHOWN: u64 = 2048;

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
    pub(super) fn refusal(&mut self, line: &[u8]) -> Result<(), Broken> {
        if self.hides_refusals {
            return Ok(());
        }
        self.line(line)
    }

    /// Shows a line of a reply, which includes its line end.
    ///
    /// # Errors
    /// [`Broken::Unwritten`], as in all these functions.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), Broken> {
        if self.is_readable {
            self.tell(&shown(without_end(line)))?;
            self.tell("\n")
        } else {
            self.out.write_all(line).map_err(Broken::Unwritten)
        }
    }

    /// Shows a value and its line end, together `bytes` long.
    ///
    /// # Errors
    /// Also those of the connection.
    pub(super) fn value(&mut self, bytes: u64, connection: &mut Connection) -> Result<(), Broken> {
        if !self.is_readable {
            return connection.value(bytes, &mut self.out);
        }
        let value_bytes = bytes.saturating_sub(2);
        let shown_bytes = value_bytes.min(VALUE_BYTES_SHOWN);
        let mut front = Vec::new();
        connection.value(shown_bytes, &mut front)?;
        connection.value(bytes - shown_bytes, &mut io::sink())?;
        if shown_bytes < value_bytes {
            front.truncate(whole_characters(&front));
        }
        self.tell(&shown(&front))?;
        let missing = value_bytes - front.len() as u64;
        if missing > 0 {
            self.tell(&format!("… {missing} of {value_bytes} bytes not shown"))?;
        }
        self.tell("\n")
    }

    /// Shows a text of this program.
    pub(super) fn tell(&mut self, text: &str) -> Result<(), Broken> {
        self.out
            .write_all(text.as_bytes())
            .map_err(Broken::Unwritten)
    }

    /// Flushes the output.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        self.out.flush().map_err(Broken::Unwritten)
    }
}
