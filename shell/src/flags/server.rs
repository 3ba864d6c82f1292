//! Which server `latchd lock` and `latchd cli` ask.

use std::env;

/// The variable that names the server if no option does.
const SERVER: &str = "LATCHD_SERVER";

/// The server if nothing names one.
const DEFAULT: &str = "127.0.0.1:11211";

/// Which server is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// HOST:PORT or the path of a Unix socket [default: `LATCHD_SERVER`, or 127.0.0.1:11211]
    #[arg(short, long, value_name = "HOST:PORT")]
    server: Option<String>,
}

impl ServerArgs {
    /// Its address.
    ///
    /// # Errors
    /// The variable is no text; a sentence for a person.
    pub(crate) fn address(&self) -> Result<String, String> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        match env::var_os(SERVER) {
            Some(server) if !server.is_empty() => server
                .into_string()
                .map_err(|server| format!("{SERVER}: `{}` is no address", server.display())),
            Some(_) | None => Ok(DEFAULT.into()),
        }
    }
}
