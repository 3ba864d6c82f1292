//! The listening Unix socket, and its file.
//!
//! - A Unix socket gets its permissions before it listens, so no other user can connect in between. It listens before
//!   its file has its name, so no client that finds the file is refused. In a cluster the file reserves the name.
//! - Only the server that made the file of a Unix socket removes it. It recognizes the file by its inode,
//!   since another process may have put a file of its own at the path. The check whether another server is
//!   alive does not connect to it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Address, Listener};
use crate::config::{Config, UnixSocket};
use crate::net::transport::Security;

/// The identity of a file, independent of its path: device and inode.
pub(super) type FileId = (u64, u64);

/// Binds a socket of this path, which does not listen yet.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::AddrInUse`] if another server has the path.
pub(super) fn bind(wanted: &UnixSocket, config: &Config) -> io::Result<Listener> {
    remove_stale(&wanted.path)?;
    let beside = beside(&wanted.path).filter(|_| !config.is_member());
    let path = beside.as_ref().unwrap_or(&wanted.path).clone();
    if beside.is_some() {
        // A server that was killed may have left it, with the same process id.
        remove_stale(&path)?;
    }
    let socket = unix_socket(SocketType::STREAM)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
    // From here on this server owns the file, and removes it even if the next step fails.
    let listener = Listener {
        socket,
        address: Address::Unix(wanted.path.clone()),
        security: Security::Plain,
        file: file_id(&path),
        beside,
        waits_with: Some(config.backlog),
    };
    rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(wanted.mode))?;
    Ok(listener)
}

/// A path in the same folder, for a socket that does not listen yet. `None` if the path leaves no space for another: then the
/// file has its name from the first.
fn beside(path: &Path) -> Option<PathBuf> {
    let id = std::process::id();
    let mut longer = path.as_os_str().to_owned();
    longer.push(format!(".{id}"));
    let paths = [longer.into(), path.with_file_name(format!(".{id}"))];
    paths
        .into_iter()
        .find(|path: &PathBuf| SocketAddrUnix::new(path).is_ok())
}

/// Gives the file of a socket its name.
///
/// # Errors
/// [`Errno::ADDRINUSE`] if another file has it by now.
pub(super) fn name(beside: &Path, path: &Path) -> rustix::io::Result<()> {
    match renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => Err(Errno::ADDRINUSE),
        // A file system without this flag, such as NFS.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::rename(beside, path),
        named => named,
    }
}

/// The file at a path; `None` if there is none, or it cannot be looked up.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

fn unix_socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Removes the file of a socket that no process has: its server was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    if is_stale(path)? {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Whether a socket that no process has is at a path; `false` if nothing is there.
pub(super) fn is_stale(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file exists and is not a socket",
        )),
        Ok(_) => {
            // The other type: the kernel tells a live socket by that, also one that does not listen or is busy.
            let socket = unix_socket(SocketType::DGRAM)?;
            match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
                Err(Errno::CONNREFUSED) => Ok(true),
                Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::listen::listen;
    use crate::net::listen::tests::{temporary_path, unix_config};

    /// Binds the socket of this path, as [`listen`] does before it listens.
    fn bound(path: &Path) -> Listener {
        let config = unix_config(path);
        bind(config.unix_socket.as_ref().unwrap(), &config).unwrap()
    }

    fn connects(path: &Path) -> bool {
        std::os::unix::net::UnixStream::connect(path).is_ok()
    }

    #[test]
    fn socket_listens_before_its_file_shows() {
        let long = format!("latchd-{:0<60}", std::process::id());
        let folder = std::env::temp_dir().join(long);
        std::fs::create_dir_all(&folder).unwrap();
        // The longest path that a socket can have, and one that has space for a suffix.
        let name_bytes = 107 - 1 - folder.as_os_str().len();
        for path in [temporary_path("early"), folder.join("s".repeat(name_bytes))] {
            let listener = bound(&path);
            assert!(!path.exists(), "{}", path.display());
            listener.begin().unwrap();
            assert!(connects(&path));
            drop(listener);
            assert!(!path.exists());
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn simultaneous_start_spares_the_first_server() {
        let path = temporary_path("both");
        let late = bound(&path);
        let first = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = late.begin().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(late);
        assert!(connects(&path));
        drop(first);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn unnamed_file_of_a_killed_server_is_replaced() {
        let path = temporary_path("unnamed");
        let unnamed = beside(&path).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&unnamed).unwrap());
        let listeners = listen(&unix_config(&path)).unwrap();
        assert!(connects(&path) && !unnamed.exists());
        drop(listeners);
    }

    #[test]
    fn unix_socket_has_mode_and_is_removed() {
        use std::os::unix::fs::PermissionsExt;
        let path = temporary_path("mode");
        let listeners = listen(&unix_config(&path)).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_dead_unix_socket_is_replaced() {
        let path = temporary_path("live");
        let live = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = listen(&unix_config(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(live); // The standard library leaves the file behind, as a killed server does.
        assert!(path.exists());
        drop(listen(&unix_config(&path)).unwrap());
    }

    #[test]
    fn busy_server_is_not_waited_for() {
        let path = temporary_path("busy");
        let mut wanted = unix_config(&path);
        wanted.backlog = 0;
        let listener = listen(&wanted).unwrap().remove(0);
        let mut waiting = Vec::new();
        loop {
            let socket = unix_socket(SocketType::STREAM).unwrap();
            match rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap()) {
                Ok(()) => waiting.push(socket),
                Err(errno) => break assert_eq!(errno, Errno::AGAIN),
            }
        }
        let error = listen(&wanted).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(listener);
    }

    #[test]
    fn file_of_another_server_stays() {
        let path = temporary_path("taken-over");
        let first = listen(&unix_config(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = listen(&unix_config(&path)).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = temporary_path("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(listen(&unix_config(&path)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    }
}
