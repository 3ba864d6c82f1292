//! The server of `latchd lock`, `latchd cli` and `latchd bench`.

use std::env;
use std::time::Duration;

use latchd_client::ClientOptions;
use latchd_client::blocking::Client;

use super::{AccessArgs, NETWORK};

/// The variable that names the server, if no option does.
const SERVER: &str = "LATCHD_SERVER";

/// The server, if neither an option nor the variable names one.
const DEFAULT: &str = "127.0.0.1:11211";

/// The most servers of a list.
const SERVERS_MAX: usize = 16;

/// The server to connect to, and the way to it.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Connect to this server [default: `LATCHD_SERVER`, or 127.0.0.1:11211]
    ///
    /// ADDRESS is HOST:PORT or the path of a Unix socket. `latchd lock` also takes a list, such as the
    /// addresses of a primary and its standby with a comma between, and uses the first that serves.
    #[arg(short, long, value_name = "ADDRESS", help_heading = NETWORK, verbatim_doc_comment)]
    server: Option<String>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

impl ServerArgs {
    /// A client of this server. `timeout` limits a connect and a reply.
    ///
    /// # Errors
    /// A message for the user, if the options are wrong.
    pub(crate) fn client(&self, timeout: Duration) -> Result<Client, String> {
        // A timeout of 0 would expire before the first attempt.
        let timeout = timeout.max(Duration::from_millis(1));
        let options = ClientOptions::new()
            .connect_timeout(timeout)
            .reply_timeout(timeout);
        let client = Client::new(&self.address()?, self.access.options(options)?);
        client.map_err(|error| error.to_string())
    }

    fn address(&self) -> Result<String, String> {
        let address = self.value()?;
        if address.contains(',') {
            return Err(format!("{address}: give one address"));
        }
        Ok(address)
    }

    /// Its addresses: one, or a list.
    ///
    /// # Errors
    /// A message for the user, if the variable is not UTF-8, an address is empty or there are more than
    /// [`SERVERS_MAX`].
    pub(crate) fn addresses(&self) -> Result<Vec<String>, String> {
        let value = self.value()?;
        let addresses: Vec<String> = value.split(',').map(|one| one.trim().into()).collect();
        if addresses.len() > SERVERS_MAX {
            return Err(format!("give at most {SERVERS_MAX} servers"));
        }
        if addresses.iter().any(String::is_empty) {
            return Err(format!("{value}: an address is empty"));
        }
        Ok(addresses)
    }

    fn value(&self) -> Result<String, String> {
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
