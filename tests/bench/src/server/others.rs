//! Processor time of other processes: the disturbance of a measurement.
//!
//! All processes count except this one, those that it started, and the kernel's own threads, which
//! work for every process. A process that ends hands its time to its parent, where it is found when
//! it was waited for. The unit is a tick of the kernel's, mostly 10 ms: enough for rounds of
//! seconds.
//!
//! Source: Linux `Documentation/filesystems/proc.rst`, `/proc/PID/stat` and `/proc/stat`.

use std::fs;
use std::process;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;

/// The parent of the kernel's own threads.
const KTHREADD: u32 = 2;

/// The time of others until now, in nanoseconds; only differences mean something.
pub(crate) fn cpu_ns() -> Result<u64> {
    let mut ticks = stolen_ticks(&fs::read_to_string("/proc/stat").context("/proc/stat")?)
        .context("/proc/stat begins in a form of its own")?;
    let ours = process::id();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(pid) = name.and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end between the list and the look.
        let Ok(text) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let times = parse_stat(&text).with_context(|| format!("/proc/{pid}/stat: {text}"))?;
        if ![pid, times.parent].contains(&ours) && ![pid, times.parent].contains(&KTHREADD) {
            ticks += times.ticks;
        }
    }
    Ok(ticks.saturating_mul(1_000_000_000 / clock_ticks_per_second()))
}

/// Of a process, and of those of its children that it has waited for.
#[derive(Debug, Eq, PartialEq)]
struct Times {
    parent: u32,
    ticks: u64,
}

/// `<pid> (<name>) <state> <parent> …`, where the name may hold anything.
fn parse_stat(text: &str) -> Option<Times> {
    let (_, behind_name) = text.rsplit_once(')')?;
    let mut words = behind_name.split_ascii_whitespace();
    let parent = words.nth(1)?.parse().ok()?;
    // utime, stime, cutime and cstime are words 14 to 17 of the line.
    let ticks = words.skip(9).take(4).map(|word| word.parse::<u64>().ok());
    Some(Times {
        parent,
        ticks: ticks.sum::<Option<u64>>()?,
    })
}

/// The time that the host of this virtual machine gave to others: the eighth number of the first
/// line.
fn stolen_ticks(text: &str) -> Option<u64> {
    text.lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .nth(7)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_lines_have_parent_and_times() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194304 9 0 0 0 100 20 3 4 20 0 1 0 5 6 7\n";
        let times = Times {
            parent: 7,
            ticks: 127,
        };
        assert_eq!(parse_stat(text), Some(times));
        assert_eq!(parse_stat("42 (a"), None);
    }

    #[test]
    fn stolen_time_is_the_eighth_number() {
        assert_eq!(stolen_ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some(8));
        assert_eq!(stolen_ticks("cpu0 1 2 3 4 5 6 7 8\n"), None);
    }

    #[test]
    fn a_childs_time_is_not_others() {
        // It burns a good tenth of a second, which is more than a tick, and is waited for.
        let before = parse_stat(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(
            Command::new("sh")
                .args(["-c", script])
                .status()
                .unwrap()
                .success()
        );
        let after = parse_stat(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        assert!(after.ticks > before.ticks);
        assert_eq!(after.parent, before.parent);
        assert!(cpu_ns().unwrap() > 0);
    }
}
