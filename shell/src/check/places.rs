//! Checks addresses, users and files.
//!
//! The order is the server's: root opens the log and becomes the user of `-u`. The other checks run as that user.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::iter;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use latchd_server::{Config, ListenAddress, UnixSocket, may_replace};
use nix::unistd::{Uid, User};
use rustix::fs::{Access, access};

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
    findings.extend(config.auth_file.as_deref().map(passwords));
    if let Some(tls) = &config.tls {
        let key = tls.key.as_ref().map(|path| ("-o ssl_key", path));
        let authorities = tls.ca_cert.as_ref().map(|path| ("-o ssl_ca_cert", path));
        let read = iter::once(("-o ssl_chain_cert", &tls.chain_cert));
        let read = read.chain(key).chain(authorities);
        findings.extend(read.map(|(flag, path)| read_file(flag, path)));
    }
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

fn read_file(flag: &str, path: &Path) -> Finding {
    let shown = path.display();
    match File::open(path) {
        Ok(_) => Finding::good(format!("{flag} {shown} is readable")),
        Err(error) => Finding::failure(format!("{flag} {shown} is not readable: {error}")),
    }
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
    match fs::symlink_metadata(&wanted.path) {
        Ok(file) if !file.file_type().is_socket() => Finding::failure(format!(
            "-s {path}: the file exists and is not a socket; choose another path"
        )),
        Ok(_) if UnixStream::connect(&wanted.path).is_ok() => {
            Finding::failure(format!("-s {path}: in use; stop the other server"))
        }
        Ok(_) => Finding::good(format!("-s {path} is left over from a stopped server")),
        Err(_) => match may_replace(&wanted.path) {
            Ok(()) => Finding::good(format!("-s {path} can be created")),
            Err(error) => Finding::failure(format!("-s {path}: cannot create the socket: {error}")),
        },
    }
}

/// Becomes the server's user, so the following checks run as that user.
fn user(process: &Process) -> Finding {
    match &process.user {
        None if privileges::is_root() => {
            Finding::warning("running as root, which is not needed; add -u NAME")
        }
        None => Finding::good("not running as root"),
        Some(name) => match privileges::ignored_user(name) {
            Some(ignored) => Finding::warning(ignored),
            None => match User::from_name(name).ok().flatten() {
                None => Finding::failure(format!("-u {name}: no such user")),
                Some(user) if user.uid == Uid::effective() => {
                    Finding::good(format!("-u {name}: already running as this user"))
                }
                Some(_) => match privileges::become_user(name) {
                    Ok(None) => Finding::good(format!("-u {name}: can switch to this user")),
                    Ok(Some(warning)) => Finding::warning(warning),
                    Err(Refusal::NoUser(why) | Refusal::Denied(why)) => Finding::failure(why),
                },
            },
        },
    }
}

/// Warns if other users can read the passwords.
fn passwords(path: &Path) -> Finding {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) => Finding::failure(format!("-Y {shown} is not readable: {error}")),
        Ok(_) if access(path, Access::READ_OK).is_err() => Finding::failure(format!(
            "-Y {shown} is not readable by the server's user; chown it"
        )),
        Ok(file) if file.mode() & 0o044 != 0 => Finding::warning(format!(
            "-Y {shown} is readable by other users; chmod 600 and chown it to the server's user"
        )),
        Ok(_) => Finding::good(format!("-Y {shown} is readable, and not by other users")),
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
