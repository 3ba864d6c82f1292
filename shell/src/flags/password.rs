//! The sources of passwords.
//!
//! - A password is read from a file or from the environment, and never from the command line: every user of the
//!   machine can read that.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The names of the flags and the variable of one password.
pub(super) struct PasswordSource {
    /// The flag of its user, for messages.
    pub(super) user_flag: &'static str,
    /// The flag of its file, for messages.
    pub(super) file_flag: &'static str,
    /// The variable with the password, if no file is given.
    pub(super) variable: &'static str,
    /// The longest password, in bytes.
    pub(super) bytes_max: usize,
}

impl PasswordSource {
    /// Reads the password from the file, if one is given, or from the variable.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn read(&self, file: Option<&Path>) -> Result<Vec<u8>, String> {
        if let Some(path) = file {
            return self.first_line(path).map_err(|error| {
                format!(
                    "{}: cannot read {}: {error}",
                    self.file_flag,
                    path.display()
                )
            });
        }
        let password = std::env::var_os(self.variable).map(OsString::into_vec);
        password.ok_or_else(|| {
            format!(
                "{}: no password; add {} or set {}",
                self.user_flag, self.file_flag, self.variable
            )
        })
    }

    /// The first line of a file, without its line end. Reads at most the length of the longest password.
    fn first_line(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let bytes_max = self.bytes_max as u64 + 2;
        File::open(path)?.take(bytes_max).read_to_end(&mut text)?;
        let end = text.iter().position(|byte| *byte == b'\n');
        text.truncate(end.unwrap_or(text.len()));
        if text.ends_with(b"\r") {
            text.pop();
        }
        Ok(text)
    }
}
