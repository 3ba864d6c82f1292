//! TLS and login of `latchd lock`, `latchd cli` and `latchd bench`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use latchd_client::{ClientOptions, Credentials, TlsOptions};
use latchd_protocol::wire::LOGIN_BYTES_MAX;

use super::password::PasswordSource;
use super::{SECURITY, TLS};

/// The variable with the password, if no file is given.
const PASSWORD: &str = "LATCHD_PASSWORD";

/// TLS and login.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// Use TLS; verify the server by the authorities of the system or of --tls-ca
    #[arg(long, help_heading = TLS)]
    tls: bool,
    /// Trust only the certificate authorities in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls", help_heading = TLS)]
    tls_ca: Option<PathBuf>,
    /// Present this client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls", help_heading = TLS)]
    tls_cert: Option<PathBuf>,
    /// Read the key of --tls-cert from this file (PEM) [default: --tls-cert]
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = TLS)]
    tls_key: Option<PathBuf>,
    /// Expect this name in the server's certificate [default: the host of -s]
    #[arg(long, value_name = "NAME", requires = "tls", help_heading = TLS)]
    tls_name: Option<String>,
    /// Log in as this user; set --password-file or `LATCHD_PASSWORD`
    #[arg(long, value_name = "NAME", help_heading = SECURITY)]
    user: Option<OsString>,
    /// Read the password from the first line of this file
    #[arg(long, value_name = "FILE", requires = "user", help_heading = SECURITY)]
    password_file: Option<PathBuf>,
    /// Send the password to another machine without TLS, readable on the network
    #[arg(long, requires = "user", conflicts_with = "tls", help_heading = SECURITY)]
    plain_password: bool,
}

impl AccessArgs {
    /// Whether the connections are under TLS.
    pub(crate) const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Adds these flags to the options of a client.
    ///
    /// # Errors
    /// A message for the user, if the password is missing or invalid.
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
        let source = PasswordSource {
            user_flag: "--user",
            file_flag: "--password-file",
            variable: PASSWORD,
            bytes_max: LOGIN_BYTES_MAX as usize,
        };
        source.read(self.password_file.as_deref())
    }
}
