//! The server of `latchd lock`, `latchd cli` and `latchd bench`.

use std::env;

use super::NETWORK;

/// The variable that names the server, if no option does.
const SERVER: &str = "LATCHD_SERVER";

/// The server, if neither an option nor the variable names one.
const DEFAULT: &str = "127.0.0.1:11211";

/// The server to connect to.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Connect to this server [default: `LATCHD_SERVER`, or 127.0.0.1:11211]
    ///
    /// ADDRESS is HOST:PORT or the path of a Unix socket.
    #[arg(short, long, value_name = "ADDRESS", help_heading = NETWORK)]
    server: Option<String>,
}

impl ServerArgs {
    /// Its address.
    ///
    /// # Errors
    /// A message for the user, if the variable is not UTF-8.
    pub(crate) fn address(&self) -> Result<String, String> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        match env::var_os(SERVER) {
            Some(server) if !server.is_empty() => server.into_string().map_err(|server| {
                format!(
                    "{SERVER}: `{}` is not an address; set HOST:PORT or a path",
                    server.display()
                )
            }),
            Some(_) | None => Ok(DEFAULT.into()),
        }
    }
}
