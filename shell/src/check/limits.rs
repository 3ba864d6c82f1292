//! Limits of the process, of the kernel and of memory.

use std::path::Path;
use std::str::FromStr;

use latchd_server::Config;

use super::Finding;
use crate::flags::Process;
use crate::os::{descriptors, privileges};

/// What a server takes beside `-m`: itself, its threads, and the least of what it keeps for clients.
const BESIDE_BYTES: u64 = 64 << 20;

/// Looks at what a server may have.
pub(super) fn look(config: &Config, process: &Process) -> Vec<Finding> {
    let mut findings = vec![descriptors(config), memory(config), backlog(config)];
    findings.extend(overcommit(config));
    if process.lock_memory {
        findings.push(locked_memory(config, process));
    }
    findings
}

/// What a server of this configuration needs of the machine's memory, in bytes.
pub(crate) fn memory_needed(config: &Config) -> u64 {
    config.memory_bytes_max as u64 + BESIDE_BYTES
}

fn descriptors(config: &Config) -> Finding {
    let needed = descriptors::needed(config);
    match descriptors::most().filter(|most| *most < needed) {
        Some(most) => Finding::warning(descriptors::too_few(config, most)),
        None => Finding::good(format!(
            "{needed} descriptors for {} connections",
            config.connections_max
        )),
    }
}

/// What there is now, and what the control group may have.
fn memory(config: &Config) -> Finding {
    let needed = memory_needed(config);
    let wanted = format!(
        "-m {} needs some {} MB",
        config.memory_bytes_max >> 20,
        needed >> 20
    );
    let group = group_bytes_max();
    if let Some(most) = group.filter(|most| *most < needed) {
        return Finding::warning(format!(
            "{wanted}, and the control group may have {}: the kernel would end the server; raise \
             that, or lower -m",
            most >> 20
        ));
    }
    match available_bytes() {
        Some(available) if available < needed => Finding::warning(format!(
            "{wanted}, and {} are available: lower -m, or make room",
            available >> 20
        )),
        Some(_) | None => Finding::good(format!("{wanted}, and there is as much")),
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

/// The lowest `memory.max` on the way from our control group to the root, if there is one.
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
            "-b {backlog}: the kernel lets {most} wait; raise the sysctl net.core.somaxconn, or \
             lower -b"
        )),
        Some(_) | None => Finding::good(format!("{backlog} connections may wait to be accepted")),
    }
}

/// With strict accounting memory is refused that is there.
fn overcommit(config: &Config) -> Option<Finding> {
    let mode: u8 = number_in(Path::new("/proc/sys/vm/overcommit_memory"))?;
    (mode == 2).then(|| {
        Finding::warning(format!(
            "the sysctl vm.overcommit_memory is 2: the kernel may refuse some of the {} MB of -m, and \
             a request that there is no memory for closes its connection",
            config.memory_bytes_max >> 20
        ))
    })
}

fn locked_memory(config: &Config, process: &Process) -> Finding {
    let needed = memory_needed(config);
    let leaves_root = process.user.is_some() && privileges::is_root();
    match privileges::too_little_locked(needed, leaves_root) {
        Some(most) => Finding::warning(privileges::locks_too_little(needed, most)),
        None => Finding::good("-k: memory may be locked"),
    }
}

/// The number that is all of a file of the kernel; `None` also for `max`.
fn number_in<N: FromStr>(path: &Path) -> Option<N> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
