//! The kernel's figures of a process: its time on a processor, its wait for one, its memory.
//!
//! Times are from `schedstat` of each thread, which counts nanoseconds; `stat` would count ticks of
//! 10 ms. Threads that ended are no longer counted: none of the servers ends one while it works.
//!
//! Source: Linux `Documentation/scheduler/sched-stats.rst` and `Documentation/filesystems/proc.rst`.

use std::fs;
use std::io;
use std::ops::Sub;
use std::path::Path;

use anyhow::{Context, Result};

/// Times of a process or a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    /// On a processor.
    pub(crate) cpu_ns: u64,
    /// Ready to run, while something else had the processor.
    pub(crate) waited_ns: u64,
}

impl Usage {
    /// Of all threads of a process.
    pub(crate) fn of_server(pid: u32) -> Result<Self> {
        let mut sum = Self::default();
        let folder = format!("/proc/{pid}/task");
        for task in fs::read_dir(&folder).with_context(|| folder.clone())? {
            let usage = match read(&task?.path().join("schedstat")) {
                // A thread may end between the list and the look.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.with_context(|| format!("a thread of process {pid}"))?,
            };
            sum.cpu_ns += usage.cpu_ns;
            sum.waited_ns += usage.waited_ns;
        }
        Ok(sum)
    }

    /// Of the calling thread.
    pub(crate) fn of_this_thread() -> Result<Self> {
        read(Path::new("/proc/thread-self/schedstat")).context("/proc/thread-self/schedstat")
    }
}

impl Sub for Usage {
    type Output = Self;

    /// The increase since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

fn read(file: &Path) -> io::Result<Usage> {
    parse_schedstat(&fs::read_to_string(file)?)
        .ok_or_else(|| io::Error::other("this kernel does not count a thread's time (schedstat)"))
}

/// `<ns on a processor> <ns waiting> <times run>`.
fn parse_schedstat(text: &str) -> Option<Usage> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(Usage {
        cpu_ns: numbers.next()?.ok()?,
        waited_ns: numbers.next()?.ok()?,
    })
}

/// Physical memory that a process has now, in bytes.
pub(crate) fn rss_bytes(pid: u32) -> Result<u64> {
    // smaps_rollup counts pages; the counter in `status` may be behind by some for each thread.
    let file = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    parse_kib(&text, "Rss:").with_context(|| format!("no Rss in {file}"))
}

/// The most physical memory that a process ever had, in bytes.
pub(crate) fn rss_bytes_peak(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    parse_kib(&text, "VmHWM:").with_context(|| format!("no VmHWM in {file}"))
}

/// `<name> <number> kB` on a line of its own, in bytes.
fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().strip_suffix("kB")?.trim_end();
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// How many threads a process has.
pub(crate) fn threads(pid: u32) -> Result<usize> {
    let folder = format!("/proc/{pid}/task");
    Ok(fs::read_dir(&folder).context(folder)?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_two_times_and_a_count() {
        let usage = parse_schedstat("62372211 34654216 210\n");
        let expected = Usage {
            cpu_ns: 62_372_211,
            waited_ns: 34_654_216,
        };
        assert_eq!(usage, Some(expected));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("1 x 2"), None);
    }

    #[test]
    fn sizes_are_in_units_of_1024() {
        let text = "56041 [rollup]\nRss:                1964 kB\nPss:    144 kB\n";
        assert_eq!(parse_kib(text, "Rss:"), Some(1964 << 10));
        assert_eq!(parse_kib(text, "Swap:"), None);
    }

    #[test]
    fn this_thread_uses_time() {
        let before = Usage::of_this_thread().expect("proc is there");
        let mut number = 1_u64;
        while (Usage::of_this_thread().expect("proc is there") - before).cpu_ns == 0 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        let pid = std::process::id();
        assert!(rss_bytes(pid).expect("proc is there") > 1 << 16);
        assert!(rss_bytes_peak(pid).expect("proc is there") > 1 << 16);
        assert!(threads(pid).expect("proc is there") >= 1);
    }
}
