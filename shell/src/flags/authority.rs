//! The authority of a cluster: etcd, and the name of the cluster in it.
//!
//! The programs of a cluster take an option that is not given from the environment, as a server does with its own:
//! `LATCHD_` and the long name.

use std::path::PathBuf;
use std::str::FromStr;

use latchd_cluster::election::{CLUSTER_BYTES_MAX, ring_key};
use latchd_cluster::{AuthorityLogin, AuthorityOptions, AuthorityUrl, LOGIN_BYTES_MAX};

use super::CLUSTER;
use super::password::PasswordSource;

/// The options of the authority.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuthorityFlags {
    /// Elect primaries through the etcd at these URLs, separated by commas
    ///
    /// At most 16, each `http://HOST:PORT` or `https://HOST:PORT`; the default port is 2379.
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = CLUSTER)]
    authority: Vec<AuthorityUrl>,
    /// Use the cluster of this name in etcd
    ///
    /// NAME has at most 64 letters, digits, `-`, `_` and `.`.
    #[arg(long, value_name = "NAME", value_parser = name, help_heading = CLUSTER)]
    cluster: Option<String>,
    /// Authenticate to etcd as this user
    ///
    /// The password is in --authority-password-file or `LATCHD_AUTHORITY_PASSWORD`.
    #[arg(long, value_name = "NAME", help_heading = CLUSTER)]
    authority_user: Option<String>,
    /// Read the password for etcd from the first line of this file
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    authority_password_file: Option<PathBuf>,
    /// Trust only the certificate authorities in this file (PEM) for etcd
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    authority_ca: Option<PathBuf>,
    /// Present this client certificate to etcd (PEM)
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    authority_cert: Option<PathBuf>,
    /// Read the key of --authority-cert from this file (PEM) [default: --authority-cert]
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    authority_key: Option<PathBuf>,
}

impl AuthorityFlags {
    /// The options of the authority and the name of the cluster; `None` if neither is given.
    ///
    /// # Errors
    /// A message for the user, if an option is wrong or missing.
    pub(crate) fn options(&self) -> Result<Option<(AuthorityOptions, String)>, String> {
        let mut urls = self.authority.clone();
        if let (true, Some(list)) = (urls.is_empty(), variable("LATCHD_AUTHORITY")?) {
            let parse =
                |url| AuthorityUrl::from_str(url).map_err(|why| format!("LATCHD_AUTHORITY: {why}"));
            urls = list.split(',').map(parse).collect::<Result<_, _>>()?;
        }
        let cluster = or_variable(self.cluster.as_ref(), "LATCHD_CLUSTER")?;
        let mut options = AuthorityOptions::new(urls);
        options.ca_file = or_variable(self.authority_ca.as_ref(), "LATCHD_AUTHORITY_CA")?;
        options.certificate = or_variable(self.authority_cert.as_ref(), "LATCHD_AUTHORITY_CERT")?;
        options.key = or_variable(self.authority_key.as_ref(), "LATCHD_AUTHORITY_KEY")?;
        options.login = self.login()?;
        match (options.endpoints.is_empty(), cluster) {
            (true, None) => Ok(None),
            (true, Some(_)) => Err("--cluster: there is no authority; add --authority URL".into()),
            (false, None) => Err("--authority: there is no name; add --cluster NAME".into()),
            (false, Some(cluster)) => {
                name(&cluster).map_err(|why| format!("--cluster {cluster}: {why}"))?;
                options.check()?;
                Ok(Some((options, cluster)))
            }
        }
    }

    fn login(&self) -> Result<Option<AuthorityLogin>, String> {
        let file = "LATCHD_AUTHORITY_PASSWORD_FILE";
        let file: Option<PathBuf> = or_variable(self.authority_password_file.as_ref(), file)?;
        let user: Option<String> =
            or_variable(self.authority_user.as_ref(), "LATCHD_AUTHORITY_USER")?;
        let Some(user) = user else {
            return match file {
                None => Ok(None),
                Some(_) => {
                    Err("--authority-password-file: there is no user; add --authority-user".into())
                }
            };
        };
        let source = PasswordSource {
            user_flag: "--authority-user",
            file_flag: "--authority-password-file",
            variable: "LATCHD_AUTHORITY_PASSWORD",
            bytes_max: LOGIN_BYTES_MAX,
        };
        let password = String::from_utf8(source.read(file.as_deref())?);
        let password = password.map_err(|_| "--authority-user: the password is not UTF-8")?;
        let login = AuthorityLogin::new(user, password);
        login
            .map(Some)
            .map_err(|why| format!("--authority-user: {why}"))
    }
}

/// The value that is given, else that of a variable.
fn or_variable<T: Clone + From<String>>(
    given: Option<&T>,
    name: &str,
) -> Result<Option<T>, String> {
    match given {
        Some(value) => Ok(Some(value.clone())),
        None => Ok(variable(name)?.map(T::from)),
    }
}

/// A variable that is not empty.
fn variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name}: the value is not UTF-8")),
    }
}

/// Reads the name of a cluster.
fn name(text: &str) -> Result<String, String> {
    match ring_key(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!(
            "expected a name of 1 to {CLUSTER_BYTES_MAX} letters, digits, `-`, `_` and `.`"
        )),
    }
}
