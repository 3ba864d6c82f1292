//! Authentication: the names and passwords of a file.
//!
//! Each line is a name, a colon and a password in clear text, as in memcached's `-Y`. Only the server's user
//! should be able to read the file. The server can reload it while it runs; if the file is unreadable or has
//! a mistake, the old names and passwords stay.
//!
//! - The time of a comparison depends on the length of the sent password and on the number of names. It does
//!   not depend on how much of the password was right.
//!
//! Source: memcached 1.6.45 `authfile.c`.

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// The names and passwords of the file.
#[derive(Debug)]
pub(crate) struct Passwords {
    path: PathBuf,
    entries: RwLock<Vec<Entry>>,
}

struct Entry {
    name: Box<[u8]>,
    password: Box<[u8]>,
}

/// Passwords are in no log.
impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.name.escape_ascii())
    }
}

impl Passwords {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a malformed line; the error names the line.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            entries: RwLock::new(read(path)?),
        })
    }

    /// Reloads the file.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing has changed then.
    pub(crate) fn reload(&self) -> io::Result<()> {
        let entries = read(&self.path)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    /// Whether the file has this name with this password.
    pub(crate) fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        // All entries are compared, so the time does not tell which one matched.
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
        let what = format!("-Y {}: {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let text = std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("-Y {}: {error}", path.display())))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(password)) = (halves.next(), halves.next()) else {
            return Err(wrong(format!("line {number}: expected `name:password`")));
        };
        entries.push(Entry {
            name: name.into(),
            password: password.into(),
        });
    }
    if entries.is_empty() {
        return Err(wrong(
            "the file has no users; add lines `name:password`".into(),
        ));
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
    fn listed_client_authenticates() {
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
        for (text, reason) in [("fred\n", "line 1"), ("", "no users")] {
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
