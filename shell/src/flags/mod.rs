//! Groups of flags that several subcommands share.
//!
//! Uses only `log` of this program, for the flag of its format.

mod access;
mod authority;
mod cluster;
mod password;
mod process;
mod server;

use std::time::Duration;

use self::access::AccessArgs;
pub(crate) use self::authority::AuthorityFlags;
pub(crate) use self::cluster::ClusterFlags;
pub(crate) use self::process::Process;
pub(crate) use self::server::ServerArgs;

/// The headings of `--help`.
pub(crate) const NETWORK: &str = "Network";
pub(crate) const CLUSTER: &str = "Cluster";
pub(crate) const SECURITY: &str = "Security";
pub(crate) const TLS: &str = "TLS";
pub(crate) const LOGGING: &str = "Logging";
pub(crate) const PROCESS: &str = "Process";

/// Reads a number of seconds, which may have a fraction.
///
/// # Errors
/// A message for the user.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| "expected a number of seconds from 0 on, such as 2 or 0.5".to_owned())
}
