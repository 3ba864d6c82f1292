//! How `latchd lock` and `latchd cli` speak to a server: under TLS or not, and as whom.
//!
//! - A password is never on the command line, where every user of the machine can read it: it is in a file, or
//!   in the environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use latchd_client::{CREDENTIALS_BYTES_MAX, ClientOptions, Credentials, TlsOptions};

/// Where the password is, if in no file.
const PASSWORD: &str = "LATCHD_PASSWORD";

/// How a server is spoken to.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// Speak TLS, with a server whose certificate an authority of the system, or of --tls-ca, has signed
    #[arg(long)]
    tls: bool,
    /// Believe the authorities in this file (PEM) alone
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Show the server this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert (PEM), if it is not in the same file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host of its address
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,
    /// Say who we are, if the server asks; the password is in --password-file or in `LATCHD_PASSWORD`
    #[arg(long, value_name = "NAME")]
    user: Option<OsString>,
    /// The first line of this file is the password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Send the password to another machine without TLS too, where everybody on the way can read it
    #[arg(long, requires = "user", conflicts_with = "tls")]
    plain_password: bool,
}

impl AccessArgs {
    /// The options of a client, and what these flags ask for beside them.
    ///
    /// # Errors
    /// There is no password, or it is none; a sentence for a person.
    pub(crate) fn options(&self, mut options: ClientOptions) -> Result<ClientOptions, String> {
        if self.tls {
            options = options.tls(self.tls_options());
        }
        if let Some(name) = &self.user {
            let password = self.password()?;
            let credentials = Credentials::new(name.as_bytes(), password)
                .map_err(|error| format!("--user: {error}"))?;
            options = options.credentials(credentials);
        }
        if self.plain_password {
            options = options.plain_password();
        }
        Ok(options)
    }

    fn tls_options(&self) -> TlsOptions {
        let mut tls = TlsOptions::new();
        if let Some(path) = &self.tls_ca {
            tls = tls.ca_file(path);
        }
        if let Some(chain) = &self.tls_cert {
            tls = tls.certificate(chain, self.tls_key.as_ref().unwrap_or(chain));
        }
        if let Some(name) = &self.tls_name {
            tls = tls.server_name(name);
        }
        tls
    }

    fn password(&self) -> Result<Vec<u8>, String> {
        if let Some(path) = &self.password_file {
            return first_line(path).map_err(|error| format!("{}: {error}", path.display()));
        }
        std::env::var_os(PASSWORD)
            .map(OsString::into_vec)
            .ok_or_else(|| format!("--user: no password; add --password-file, or set {PASSWORD}"))
    }
}

/// The first line of a file, without its end; no more of it is read than a password can be long.
fn first_line(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let bytes_max = CREDENTIALS_BYTES_MAX as u64 + 2;
    File::open(path)?.take(bytes_max).read_to_end(&mut text)?;
    let end = text.iter().position(|byte| *byte == b'\n');
    text.truncate(end.unwrap_or(text.len()));
    if text.ends_with(b"\r") {
        text.pop();
    }
    Ok(text)
}
