//! Addresses, users and files.

use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use latchd::{Config, UnixSocket};
use nix::unistd::{Uid, User};
use rustix::fs::{Access, access};

use super::Finding;
use crate::args::Process;
use crate::privileges;

/// Looks at where a server listens, who it is, and what it reads and writes.
pub(super) fn look(config: &Config, process: &Process) -> Vec<Finding> {
    let mut findings = Vec::new();
    for wanted in config.listen.iter().chain(&config.status) {
        findings.extend(tcp(&wanted.host, wanted.port, process));
    }
    findings.extend(config.unix_socket.as_ref().map(unix));
    findings.push(user(process));
    findings.extend(config.auth_file.as_deref().map(passwords));
    let written = [
        ("--log-file", process.log_file.as_deref()),
        ("-P", process.pidfile.as_deref()),
        ("-e", config.memory_file.as_deref()),
    ];
    for (flag, path) in written {
        findings.extend(path.map(|path| written_file(flag, path)));
    }
    findings
}

/// Listens for a moment on each address that a name has.
fn tcp(host: &str, port: u16, process: &Process) -> Vec<Finding> {
    if process.user.is_some() && (1..first_port()).contains(&port) {
        return vec![Finding::failure(format!(
            "{host}:{port}: only root can have this port, and -u gives root up before; choose one \
             from {} on",
            first_port()
        ))];
    }
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return vec![Finding::failure(format!("-l {host}: {error}"))],
    };
    addresses
        .map(|address| match TcpListener::bind(address) {
            Ok(_) => Finding::good(format!("{address} is free")),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::failure(format!(
                "{address} is in use: stop what runs there, or choose another with -p or -l"
            )),
            Err(error) => Finding::failure(format!("{address} cannot be listened on: {error}")),
        })
        .collect()
}

/// The first port that everybody can have.
fn first_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(1024)
}

fn unix(wanted: &UnixSocket) -> Finding {
    let path = wanted.path.display();
    match std::fs::symlink_metadata(&wanted.path) {
        Ok(file) if !file.file_type().is_socket() => {
            Finding::failure(format!("-s {path} exists and is not a socket"))
        }
        Ok(_) if UnixStream::connect(&wanted.path).is_ok() => {
            Finding::failure(format!("-s {path} is in use: stop what runs there"))
        }
        Ok(_) => Finding::good(format!("-s {path} is left from a server that has ended")),
        Err(_) => match parent(&wanted.path) {
            Ok(()) => Finding::good(format!("-s {path} can be made")),
            Err(error) => Finding::failure(format!("-s {path} cannot be made: {error}")),
        },
    }
}

fn user(process: &Process) -> Finding {
    match &process.user {
        None if privileges::is_root() => {
            Finding::warning("this is root, which no server needs: -u NAME gives that up")
        }
        None => Finding::good("this is not root"),
        Some(name) => match User::from_name(name).ok().flatten() {
            None => Finding::failure(format!("-u {name}: there is no such user")),
            Some(user) if user.uid == Uid::effective() => {
                Finding::good(format!("-u {name}: it already is"))
            }
            Some(_) if privileges::is_root() => Finding::good(format!("-u {name} can be become")),
            Some(_) => Finding::failure(format!("-u {name}: only root can become another user")),
        },
    }
}

/// A password that others can read is none.
fn passwords(path: &Path) -> Finding {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) => Finding::failure(format!("-Y {shown} cannot be read: {error}")),
        Ok(_) if access(path, Access::READ_OK).is_err() => {
            Finding::failure(format!("-Y {shown} cannot be read"))
        }
        Ok(file) if file.mode() & 0o044 != 0 => Finding::warning(format!(
            "-Y {shown} can be read by others: chmod 600, and chown it to the server's user"
        )),
        Ok(_) => Finding::good(format!("-Y {shown} can be read, and not by others")),
    }
}

fn written_file(flag: &str, path: &Path) -> Finding {
    let shown = path.display();
    let allowed = if path.exists() {
        access(path, Access::WRITE_OK).map_err(io::Error::from)
    } else {
        parent(path)
    };
    match allowed {
        Ok(()) => Finding::good(format!("{flag} {shown} can be written")),
        // A server that cannot write its number serves all the same.
        Err(error) if flag == "-P" => {
            Finding::warning(format!("{flag} {shown} cannot be written: {error}"))
        }
        Err(error) => Finding::failure(format!("{flag} {shown} cannot be written: {error}")),
    }
}

/// Whether a file can be made in the folder of a path.
fn parent(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
}
