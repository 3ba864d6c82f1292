//! Who may enter: the names and passwords of a file.
//!
//! Each line is a name, a colon and a password, in the clear, as in memcached's `-Y`: the file is to be
//! readable for the server and for nobody else. It can be read anew while the server runs; if it cannot,
//! or has a mistake, everything stays as it was.
//!
//! - How long a comparison takes depends on what was sent and on how many names there are, and not on how
//!   much of it was right.
//!
//! Source: memcached 1.6.45 `authfile.c`.

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Those who may enter.
#[derive(Debug)]
pub(crate) struct Passwords {
    path: PathBuf,
    entries: RwLock<Vec<Entry>>,
}

struct Entry {
    name: Box<[u8]>,
    password: Box<[u8]>,
}

/// A password is in no log.
impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.name.escape_ascii())
    }
}

impl Passwords {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line of it; it says which.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            entries: RwLock::new(read(path)?),
        })
    }

    /// Reads the file anew.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing has changed then.
    pub(crate) fn reload(&self) -> io::Result<()> {
        let entries = read(&self.path)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    /// Whether this is one of those who may enter.
    pub(crate) fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        // All of them are looked at: which one it was is nobody's business either.
        entries.iter().fold(false, |is_known, entry| {
            is_known | (is_same(name, &entry.name) & is_same(password, &entry.password))
        })
    }
}

/// Compares in a time that depends on the length of `sent` alone.
fn is_same(sent: &[u8], right: &[u8]) -> bool {
    let mut difference = u8::from(sent.len() != right.len());
    for (index, byte) in sent.iter().enumerate() {
        let other = right
            .get(index % right.len().max(1))
            .copied()
            .unwrap_or_default();
        difference |= black_box(byte ^ other);
    }
    difference == 0
}

fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let wrong = |what: String| {
        let what = format!("{}: {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let text = std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(password)) = (halves.next(), halves.next()) else {
            return Err(wrong(format!("line {number} is not `name:password`")));
        };
        entries.push(Entry {
            name: name.into(),
            password: password.into(),
        });
    }
    if entries.is_empty() {
        return Err(wrong("there is nobody in it".into()));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("latchd-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn who_is_in_the_file_may_enter() {
        let path = file("passwords", "fred:pass\nann:a:b c\r\n");
        let passwords = Passwords::load(&path).unwrap();
        assert!(passwords.admits(b"fred", b"pass"));
        assert!(passwords.admits(b"ann", b"a:b c"));
        for (name, password) in [
            (&b"fred"[..], &b"pas"[..]),
            (b"fred", b"passpass"),
            (b"fred", b""),
            (b"", b""),
            (b"ann", b"pass"),
            (b"fre", b"pass"),
        ] {
            assert!(!passwords.admits(name, password));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_with_a_mistake_changes_nothing() {
        let path = file("reloaded", "fred:pass");
        let passwords = Passwords::load(&path).unwrap();
        for (text, reason) in [("fred\n", "line 1"), ("", "nobody")] {
            std::fs::write(&path, text).unwrap();
            let error = passwords.reload().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(passwords.admits(b"fred", b"pass"));
        }
        std::fs::write(&path, "ann:new\n").unwrap();
        passwords.reload().unwrap();
        assert!(!passwords.admits(b"fred", b"pass") && passwords.admits(b"ann", b"new"));
        std::fs::remove_file(&path).unwrap();
        assert!(passwords.reload().is_err());
        assert!(passwords.admits(b"ann", b"new"));
    }
}
