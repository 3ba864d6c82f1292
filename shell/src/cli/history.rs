//! The history of the prompt, kept across runs.
//!
//! - H1: The file has mode 0600, also if another program created it. No other user can read it.
//! - H2: The file has a bounded size. Concurrent runs append to the same file.
//! - H3: If the file cannot be written, the prompt works without a history.
//!
//! Source: XDG Base Directory Specification 0.8, `XDG_STATE_HOME`.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The number of lines kept. A file with twice as many is cut.
pub(super) const LINES_MAX: usize = 1000;

/// The longest line kept, in bytes. A longer one is pasted data.
const LINE_BYTES_MAX: usize = 4096;

/// The open history file.
pub(super) struct History(File);

impl History {
    /// Opens the file. Returns it with its lines, oldest first; `None` if it cannot be written.
    pub(super) fn open() -> Option<(Self, Vec<String>)> {
        let variable = |name| std::env::var_os(name);
        let path = path(variable("XDG_STATE_HOME"), variable("HOME"))?;
        Self::open_at(&path).ok()
    }

    fn open_at(path: &Path) -> io::Result<(Self, Vec<String>)> {
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let open = || {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            io::Result::Ok(file)
        };
        let mut file = open()?;
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        let lines: Vec<_> = text.lines().collect();
        let kept = lines
            .get(lines.len().saturating_sub(LINES_MAX)..)
            .unwrap_or_default();
        if lines.len() > 2 * LINES_MAX {
            let new = path.with_extension(std::process::id().to_string());
            let mut shorter = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            shorter.write_all(format!("{}\n", kept.join("\n")).as_bytes())?;
            fs::rename(new, path)?;
            file = open()?;
        }
        Ok((
            Self(file),
            kept.iter().map(|line| (*line).to_owned()).collect(),
        ))
    }

    /// Appends a line. A line that cannot be written is lost.
    pub(super) fn add(&mut self, line: &str) {
        if line.len() <= LINE_BYTES_MAX && !line.contains('\n') {
            // One write per line, so lines of concurrent runs do not mix.
            let _ = self.0.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The path of the file. A relative path in the variable is invalid and ignored.
fn path(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute);
    let state = state.or_else(|| {
        home.and_then(absolute)
            .map(|home| home.join(".local/state"))
    })?;
    Some(state.join("latchd/cli_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_where_state_stands() {
        let at = |state: &str, home: &str| path(Some(state.into()), Some(home.into()));
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at("/s", "/h"), expected("/s/latchd/cli_history"));
        assert_eq!(
            at("s", "/h"),
            expected("/h/.local/state/latchd/cli_history")
        );
        assert_eq!(at("", ""), None);
        assert_eq!(path(None, None), None);
    }

    #[test]
    fn it_is_cut_and_stays_private() {
        let folder = std::env::temp_dir().join(format!("latchd-history-{}", std::process::id()));
        let path = folder.join("deep/cli_history");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (mut history, lines) = History::open_at(&path).unwrap();
        assert!(lines.is_empty());
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for number in 0..=2 * LINES_MAX {
            history.add(&format!("get {number}"));
        }
        history.add(&"x".repeat(LINE_BYTES_MAX + 1));
        for _ in 0..2 {
            let (mut history, lines) = History::open_at(&path).unwrap();
            assert_eq!(lines.len(), LINES_MAX);
            assert!(lines.last().unwrap().starts_with("get 200"));
            assert_eq!(mode(&path), 0o600);
            history.add("get 2001");
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap().lines().count(),
            LINES_MAX + 2
        );
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        fs::remove_dir_all(folder).unwrap();
    }
}
