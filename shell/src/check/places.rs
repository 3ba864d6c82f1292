//! Checks addresses, users and files.
//!
//! The order is the server's: root opens the log and becomes the user of `-u`. The other checks run as that user.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use latchd_server::{Config, ListenAddress, UnixSocket, may_replace};

use super::Finding;
use crate::flags::Process;
use crate::log;
use crate::os::pid_file;
use crate::os::privileges::{self, Refusal};

/// Checks the user, the addresses, and the files that a server reads and writes.
pub(super) fn look(config: &Config, process: &Process) -> Vec<Finding> {
    let mut findings = Vec::new();
    let log_file = process.log_file.as_deref();
    let opened = log_file.map(log_file_opened);
    findings.push(user(process));
    if let (Some(path), Some(Ok(()))) = (log_file, &opened) {
        findings.push(match log::may_reopen(path) {
            Ok(()) => Finding::good(format!("--log-file {} is writable", path.display())),
            Err(why) => Finding::warning(why),
        });
    }
    findings.extend(opened.and_then(Result::err));
    for (flag, wanted) in config
        .listen
        .iter()
        .map(|wanted| ("-l", wanted))
        .chain(config.status.iter().map(|wanted| ("--status", wanted)))
    {
        findings.extend(tcp(flag, wanted));
    }
    findings.extend(config.unix_socket.as_ref().map(unix));
    let auth_file = config.auth_file.as_deref();
    findings.extend(auth_file.map(|path| passwords(config, path)));
    findings.extend(config.tls.as_ref().map(|_| certificates(config)));
    let ports = pid_file::ports_path();
    let written = [
        ("-P", process.pidfile.as_deref()),
        ("MEMCACHED_PORT_FILENAME", ports.as_deref()),
        ("-e", config.memory_file.as_deref()),
    ];
    for (flag, path) in written {
        findings.extend(path.map(|path| written_file(flag, path)));
    }
    findings
}

/// Checks whether the user that starts the server can open the log. Creates no file.
fn log_file_opened(path: &Path) -> Result<(), Finding> {
    let opened = match fs::symlink_metadata(path) {
        Ok(_) => OpenOptions::new().append(true).open(path).map(|_| ()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => may_replace(path),
        Err(error) => Err(error),
    };
    opened.map_err(|error| {
        Finding::failure(format!(
            "--log-file {} is not writable: {error}",
            path.display()
        ))
    })
}

/// Listens for a moment on each address of a name.
fn tcp(flag: &str, wanted: &ListenAddress) -> Vec<Finding> {
    match wanted.bind() {
        Ok(listeners) => listeners
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .map(|address| Finding::good(format!("{address} is free")))
            .collect(),
        Err(error) => vec![Finding::failure(format!("{flag}: {error}"))],
    }
}

fn unix(wanted: &UnixSocket) -> Finding {
    let path = wanted.path.display();
    match wanted.is_left_over() {
        Ok(true) => Finding::good(format!("-s {path} is left over from a stopped server")),
        Ok(false) => match may_replace(&wanted.path) {
            Ok(()) => Finding::good(format!("-s {path} can be created")),
            Err(error) => Finding::failure(format!("-s {path}: cannot create the socket: {error}")),
        },
        Err(error) => Finding::failure(format!("-s: {error}")),
    }
}

/// Becomes the server's user, so the following checks run as that user.
fn user(process: &Process) -> Finding {
    let Some(name) = &process.user else {
        return if privileges::is_root() {
            Finding::warning("running as root, which is not needed; add -u NAME")
        } else {
            Finding::good("not running as root")
        };
    };
    match privileges::become_user(name) {
        Ok(None) => Finding::good(format!("-u {name}: the server can run as this user")),
        Ok(Some(warning)) => Finding::warning(warning),
        Err(Refusal::NoUser(why) | Refusal::Denied(why)) => Finding::failure(why),
    }
}

/// Reads the passwords. Warns if other users can read them.
fn passwords(config: &Config, path: &Path) -> Finding {
    let shown = path.display();
    let is_open = || fs::metadata(path).is_ok_and(|file| file.mode() & 0o044 != 0);
    match config.check_passwords() {
        Err(error) => Finding::failure(error.to_string()),
        Ok(()) if is_open() => Finding::warning(format!(
            "-Y {shown} is readable by other users; chmod 600 and chown it to the server's user"
        )),
        Ok(()) => Finding::good(format!("-Y {shown} is readable, and not by other users")),
    }
}

/// Reads the certificates and the key.
fn certificates(config: &Config) -> Finding {
    match config.check_certificates() {
        Ok(()) => Finding::good("the certificates and the key of -Z are usable"),
        Err(error) => Finding::failure(format!("cannot use the certificates of -Z: {error}")),
    }
}

fn written_file(flag: &str, path: &Path) -> Finding {
    let shown = path.display();
    match may_replace(path) {
        Ok(()) => Finding::good(format!("{flag} {shown} is writable")),
        // A server that cannot write its process id or its ports starts anyway.
        Err(error) if flag != "-e" => {
            Finding::warning(format!("{flag} {shown} is not writable: {error}"))
        }
        Err(error) => Finding::failure(format!("{flag} {shown} is not writable: {error}")),
    }
}
