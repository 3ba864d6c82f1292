//! Checks the limits of the process, of the kernel and of memory.

use std::path::Path;
use std::str::FromStr;

use latchd_server::Config;

use super::Finding;
use crate::flags::Process;
use crate::os::{descriptors, privileges};

/// The memory that a server needs besides `-m`: its code, its threads and the smallest client buffers, in bytes.
const BESIDE_BYTES: u64 = 64 << 20;

/// Checks all limits.
pub(super) fn look(config: &Config, process: &Process) -> Vec<Finding> {
    let mut findings = vec![descriptors(config), memory(config), backlog(config)];
    findings.extend(overcommit(config));
    if process.lock_memory {
        findings.push(locked_memory(config, process));
    }
    findings
}

/// The memory that a server of this configuration needs, in bytes.
pub(crate) fn memory_needed(config: &Config) -> u64 {
    config.memory_bytes_max as u64 + BESIDE_BYTES
}

fn descriptors(config: &Config) -> Finding {
    let needed = descriptors::needed(config);
    match descriptors::most().filter(|most| *most < needed) {
        Some(most) => Finding::warning(descriptors::too_few(config, most)),
        None => Finding::good(format!(
            "the limit allows {needed} descriptors for {} connections",
            config.connections_max
        )),
    }
}

/// Checks the available memory and the limit of the control group.
fn memory(config: &Config) -> Finding {
    let needed = memory_needed(config);
    let wanted = format!(
        "-m {} needs about {} MB of memory",
        config.memory_bytes_max >> 20,
        needed >> 20
    );
    let group = group_bytes_max();
    if let Some(most) = group.filter(|most| *most < needed) {
        return Finding::warning(format!(
            "{wanted}, but the control group allows {} MB: the kernel would kill the server; raise \
             memory.max or lower -m",
            most >> 20
        ));
    }
    match available_bytes() {
        Some(available) if available < needed => Finding::warning(format!(
            "{wanted}, but {} MB are available; lower -m or free memory",
            available >> 20
        )),
        Some(_) | None => Finding::good(format!("{wanted}, which is available")),
    }
}

/// `MemAvailable` of proc(5).
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// The lowest `memory.max` of this process's control group and its ancestors, if there is one.
fn group_bytes_max() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(own);
    own.ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| number_in(&group.join("memory.max")))
        .min()
}

fn backlog(config: &Config) -> Finding {
    let backlog = config.backlog;
    match number_in::<u32>(Path::new("/proc/sys/net/core/somaxconn")) {
        Some(most) if most < u32::from(backlog) => Finding::warning(format!(
            "-b {backlog}: the kernel lets only {most} connections wait; raise the sysctl \
             net.core.somaxconn or lower -b"
        )),
        Some(_) | None => Finding::good(format!(
            "the kernel lets {backlog} connections wait to be accepted"
        )),
    }
}

/// With strict accounting, the kernel refuses memory although it is free.
fn overcommit(config: &Config) -> Option<Finding> {
    let mode: u8 = number_in(Path::new("/proc/sys/vm/overcommit_memory"))?;
    (mode == 2).then(|| {
        Finding::warning(format!(
            "the sysctl vm.overcommit_memory is 2: the kernel may refuse part of the {} MB of -m, and a \
             request without memory closes its connection; set it to 0 or 1",
            config.memory_bytes_max >> 20
        ))
    })
}

fn locked_memory(config: &Config, process: &Process) -> Finding {
    let needed = memory_needed(config);
    let leaves_root = process.user.is_some() && privileges::is_root();
    match privileges::too_little_locked(needed, leaves_root) {
        Some(most) => Finding::warning(privileges::locks_too_little(needed, most)),
        None => Finding::good("-k: the limit allows locking all memory"),
    }
}

/// Reads a file of the kernel that holds one number. `max` is `None`.
fn number_in<N: FromStr>(path: &Path) -> Option<N> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
