//! The memory this process may take, and the name of its processor.
//!
//! Slurm, Docker and Kubernetes limit a job by control groups and kill it when it takes more, however much the
//! machine has. A group is bound by its own limit and by those of all groups above it. Everything is read from
//! `/proc` and `/sys`; on other systems nothing is known.

use std::fs;
use std::path::Path;

/// Memory that a process has on this machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Bytes of the whole machine.
    pub total: u64,
    /// Bytes that this process can still take without swapping, within the tightest limit.
    pub available: u64,
}

/// Limit in bytes, and bytes left below it.
type Limit = (u64, u64);

/// Reads the memory that this process has; `None` if the system does not say.
pub fn host_memory() -> Option<HostMemory> {
    memory_below(Path::new("/"))
}

/// Reads the memory of a machine whose `/proc` and `/sys` are below `root`.
fn memory_below(root: &Path) -> Option<HostMemory> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let info = read("proc/meminfo")?;
    let total = kibibytes(&info, "MemTotal:")?;
    let available = kibibytes(&info, "MemAvailable:")?;
    let mut limits = control_groups(root);
    if let (Some(shell), Some(status)) = (read("proc/self/limits"), read("proc/self/status")) {
        limits.extend(address_space(&shell, &status));
    }
    // Without a limit, control groups of version 1 report a huge one.
    let left = limits.into_iter().filter(|(bytes, _)| *bytes < total).map(|(_, left)| left);
    Some(HostMemory { total, available: left.fold(available, u64::min) })
}

/// Reads the name of the first processor; `None` if the system does not say.
pub(in crate::lm) fn processor_name() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == "model name").map(|(_, name)| name.trim().to_owned())
}

/// Reads the number of KiB after `name` in a file of `/proc`, and returns bytes.
pub(in crate::lm) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Version of control groups: where it is mounted, and its files with limits and usage. Entries of `memory.stat` for cached files
/// count as free, because the system reclaims them when needed.
struct Version {
    top: &'static str,
    limits: &'static [&'static str],
    usage: &'static str,
    cached_files: [&'static str; 2],
}

const VERSION_1: Version = Version {
    top: "sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cached_files: ["total_inactive_file", "total_active_file"],
};

// Beyond `memory.high` a group is not killed but nearly stopped.
const VERSION_2: Version = Version {
    top: "sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cached_files: ["inactive_file", "active_file"],
};

/// Limits of this process's control groups, from its own up to the top.
fn control_groups(root: &Path) -> Vec<Limit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        // `0::/path` in version 2, `4:memory:/path` in version 1
        let fields: Vec<&str> = line.splitn(3, ':').collect();
        let (version, path) = match fields[..] {
            ["0", "", path] => (VERSION_2, path),
            [_, controllers, path] if controllers.split(',').any(|name| name == "memory") => (VERSION_1, path),
            _ => continue,
        };
        // Inside a container the path may be the machine's, which does not exist there; the container's own group
        // is the top.
        let top = root.join(version.top);
        let own = top.join(path.trim_start_matches('/'));
        let folders = own.ancestors().take_while(|folder| folder.starts_with(&top));
        limits.extend(folders.filter_map(|folder| limit_of(folder, &version)));
    }
    limits
}

fn limit_of(folder: &Path, version: &Version) -> Option<Limit> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // `max`, which is no number, means no limit.
    let bytes = version.limits.iter().filter_map(|name| number(name)).min()?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let entries = stat.lines().filter_map(|line| line.split_once(' '));
    let cached = entries.filter(|(name, _)| version.cached_files.contains(name));
    let reclaimable: u64 = cached.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
    let held = number(version.usage).unwrap_or(0).saturating_sub(reclaimable);
    Some((bytes, bytes.saturating_sub(held)))
}

/// Limit of the address space (`ulimit -v`), which other schedulers set. Mapped files count too.
fn address_space(limits: &str, status: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let bytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some((bytes, bytes.saturating_sub(kibibytes(status, "VmSize:")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Machine of 200 GiB for tests, with 150 GiB available and some more `files`.
    fn machine(files: &[(&str, &str)]) -> Option<HostMemory> {
        let root = tempfile::tempdir().unwrap();
        let info = ("proc/meminfo", "MemTotal:       209715200 kB\nMemFree: 1 kB\nMemAvailable:   157286400 kB\n");
        for (path, text) in [info].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_below(root.path())
    }

    #[test]
    fn without_limits_all_memory_is_available() {
        let free = HostMemory { total: 200 * GIB, available: 150 * GIB };
        assert_eq!(machine(&[]).unwrap(), free);
        let unlimited =
            [("proc/self/cgroup", "0::/user.slice\n"), ("sys/fs/cgroup/user.slice/memory.max", "max\n")];
        assert_eq!(machine(&unlimited).unwrap(), free);
        assert_eq!(memory_below(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_slurm_job_has_what_its_group_leaves() {
        // The limit is the job's; the process is in a task of a step below it. 3 GiB are used, 1 GiB of it by
        // cached files.
        let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
        let own = format!("{job}/step_0/user/task_0/memory.max");
        let [limit, held, stat] = ["max", "current", "stat"].map(|name| format!("{job}/memory.{name}"));
        let mut files = vec![
            ("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"),
            (&own, "max\n"),
            (&limit, "4294967296\n"),
            (&held, "3221225472\n"),
            (&stat, "anon 5\nfile 6\ninactive_file 805306368\nactive_file 268435456\n"),
        ];
        let memory = machine(&files).unwrap();
        assert_eq!((memory.total, memory.available), (200 * GIB, 2 * GIB));
        // The tightest of several groups counts, and a group is slowed down at `memory.high`.
        files.push(("sys/fs/cgroup/system.slice/memory.max", "2147483648\n"));
        files.push(("sys/fs/cgroup/system.slice/memory.high", "1073741824\n"));
        assert_eq!(machine(&files).unwrap().available, GIB);
    }

    #[test]
    fn a_docker_container_with_control_groups_of_version_1() {
        // The path is the machine's; the container sees its own group as the top.
        let files = [
            ("proc/self/cgroup", "5:cpu:/docker/c0ffee\n4:memory:/docker/c0ffee\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 536870912\n"),
        ];
        assert_eq!(machine(&files).unwrap().available, 3 * GIB + GIB / 2);
        // The number that stands for no limit.
        let unset = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[files[0], unset]).unwrap().available, 150 * GIB);
    }

    #[test]
    fn a_limit_of_the_shell() {
        let limits = "Limit    Soft Limit   Hard Limit   Units\nMax address space  6442450944  unlimited  bytes\n";
        let files = [("proc/self/limits", limits), ("proc/self/status", "Name: x\nVmSize:\t 2097152 kB\n")];
        assert_eq!(machine(&files).unwrap().available, 4 * GIB);
    }
}
