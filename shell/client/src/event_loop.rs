//! Whether async-io's event loop can start. Without descriptors it panics.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file descriptors that the event loop opens, and one for a socket.
const DESCRIPTORS: usize = 4;

/// Checks once whether there are enough file descriptors.
///
/// # Errors
/// The system's.
pub(super) fn check() -> io::Result<()> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    if !IS_CHECKED.load(Ordering::Relaxed) {
        let probes: io::Result<Vec<File>> =
            (0..DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
        drop(probes?);
        IS_CHECKED.store(true, Ordering::Relaxed);
    }
    Ok(())
}
