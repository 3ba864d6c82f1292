//! Notifies systemd that the server is ready, stops, and is healthy.
//!
//! - Notifications are optional: without a listener none are sent, and errors are ignored.
//!
//! Source: `sd_notify(3)`, `sd_watchdog_enabled(3)`. One datagram; the library sd-notify 0.5 knows no abstract names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager that started the program and asked for notifications.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Duration>,
}

/// A notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Clients are served.
    Ready,
    /// Files are being reloaded; [`State::Ready`] follows.
    Reloading,
    /// The server is stopping.
    Stopping,
    /// The server is healthy.
    Well,
}

impl ServiceManager {
    /// The service manager that the environment names, if any.
    pub(crate) fn from_environment() -> Option<Self> {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        let watched = std::env::var("WATCHDOG_PID");
        let is_for_us = watched.is_err() || watched == Ok(std::process::id().to_string());
        let interval = std::env::var("WATCHDOG_USEC").ok().filter(|_| is_for_us);
        let watchdog = interval.and_then(|interval| interval.parse().ok());
        Self::at(&address, watchdog.map(Duration::from_micros))
    }

    /// The service manager at a path, or at an abstract name, which begins with `@`.
    fn at(address: &OsStr, watchdog: Option<Duration>) -> Option<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(address),
        };
        Some(Self {
            socket: UnixDatagram::unbound().ok()?,
            address: address.ok()?,
            watchdog: watchdog.filter(|interval| !interval.is_zero()),
        })
    }

    /// The interval of watchdog notifications: half of the manager's timeout.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.watchdog.map(|interval| interval / 2)
    }

    /// Sends a notification.
    pub(crate) fn tell(&self, state: State) {
        let text = match state {
            State::Ready => "READY=1\nSTATUS=serving\n".into(),
            State::Reloading => {
                let now = clock_gettime(ClockId::Monotonic);
                let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={usec}\n")
            }
            State::Stopping => "STOPPING=1\nSTATUS=stopping\n".into(),
            State::Well => String::from("WATCHDOG=1\n"),
        };
        // The manager may have ended.
        let _ = self.socket.send_to_addr(text.as_bytes(), &self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn notifications_reach_paths_and_abstract_names() {
        let name = format!("latchd-manager-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            let interval = Some(Duration::from_secs(6));
            let manager = ServiceManager::at(&address, interval).unwrap();
            assert_eq!(manager.interval(), Some(Duration::from_secs(3)));
            manager.tell(State::Ready);
            assert!(heard(&socket).starts_with("READY=1\n"));
            manager.tell(State::Reloading);
            assert!(heard(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
            manager.tell(State::Well);
            assert_eq!(heard(&socket), "WATCHDOG=1\n");
            manager.tell(State::Stopping);
            assert!(heard(&socket).starts_with("STOPPING=1\n"));
        }
        std::fs::remove_file(&path).unwrap();
        // Without a listener the notification has no effect.
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        manager.tell(State::Ready);
        assert_eq!(manager.interval(), None);
    }
}
