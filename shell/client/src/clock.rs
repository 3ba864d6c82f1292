//! The client's clock and its random numbers.
//!
//! The clock runs while the machine is suspended (`CLOCK_BOOTTIME`; on macOS `CLOCK_MONOTONIC`), as the
//! server's does. So the client does not believe in an expired lock after a suspend.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use futures_lite::future;
use latchd_client_core::METADATA_BYTES_MAX;
use latchd_protocol::Instant;
use rustix::time::{ClockId, clock_gettime};

use super::background::Alarm;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The longest sleep before the clock is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The current moment.
pub(super) fn now() -> Instant {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let ms = u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000;
    Instant::from_millis(seconds.saturating_mul(1000).saturating_add(ms))
}

/// The time until `moment`, rounded up to a millisecond so that `moment` has passed afterwards.
pub(super) fn until(moment: Instant) -> Duration {
    let ms = moment.as_millis().saturating_sub(now().as_millis());
    Duration::from_millis(ms)
}

/// The time since `moment`.
pub(super) fn since(moment: Instant) -> Duration {
    Duration::from_millis(now().as_millis().saturating_sub(moment.as_millis()))
}

/// Sleeps until a moment; without one, for ever. It may return early, and the caller reads the clock again:
/// the timer, unlike the clock, stops while the machine is suspended.
pub(super) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => Alarm::after(until(moment).min(LOOK_AGAIN)).await,
        None => future::pending().await,
    }
}

/// Random bytes from the kernel.
pub(super) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("without random bytes no two holders can be told apart");
    bytes
}

/// A random number.
pub(super) fn seed() -> u64 {
    let low = u128::from_ne_bytes(random()) & u128::from(u64::MAX);
    u64::try_from(low).unwrap_or_default()
}

/// The program, the host and the number of this process, for people who look at a lock.
pub(super) fn this_process() -> &'static [u8] {
    static NAME: OnceLock<Vec<u8>> = OnceLock::new();
    NAME.get_or_init(|| {
        let program = std::env::current_exe().ok();
        let program = program
            .as_deref()
            .and_then(Path::file_name)
            .unwrap_or_default();
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let name = format!(
            "{}@{host}:{}",
            program.to_string_lossy(),
            std::process::id()
        );
        let plain = |byte: u8| if byte.is_ascii_graphic() { byte } else { b'?' };
        name.bytes().map(plain).take(METADATA_BYTES_MAX).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_and_does_not_run_back() {
        let earlier = now();
        std::thread::sleep(Duration::from_millis(3));
        assert!(now().as_millis() >= earlier.as_millis() + 2);
    }

    #[test]
    fn no_two_draws_are_alike() {
        assert_ne!(random(), random());
    }
}
