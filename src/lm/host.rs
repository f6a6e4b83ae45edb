//! The machine's memory as this process may take it: what is free, and what a control group or a limit of the shell
//! leaves of it.
//!
//! Slurm, Docker and Kubernetes hold a job by control groups, and kill it where it takes more, however much the machine
//! has. Limits hold for a group and all groups above it. Read from `/proc` and `/sys`; elsewhere nothing is known. Knows
//! nothing of models.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory of this machine, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Of the whole machine.
    pub total: u64,
    /// What this process can still take: without swapping, and within the tightest limit.
    pub available: u64,
    /// The limit that leaves the least, where there is one.
    pub limit: Option<MemoryLimit>,
}

/// A limit that lies below the machine's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// What is left below it.
    pub left: u64,
    pub kind: LimitKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The folder of the control group that has it.
    ControlGroup(PathBuf),
    /// `ulimit -v`.
    AddressSpace,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder of the file system that is seen at `point`.
    pub root: String,
    pub point: PathBuf,
    /// Such as `ext4`, `nfs4`, `cgroup2`.
    pub kind: String,
    /// Options of the mount and of its file system.
    pub options: Vec<String>,
}

/// The memory this process has; `None` where the system does not say.
pub fn host_memory() -> Option<HostMemory> {
    memory_below(Path::new("/"))
}

/// What is mounted here; nothing where the system does not say.
pub fn mounts() -> Vec<Mount> {
    mounts_below(Path::new("/"))
}

/// The same for a machine whose `/proc` and `/sys` lie below `root`.
fn memory_below(root: &Path) -> Option<HostMemory> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let info = read("proc/meminfo")?;
    let total = kibibytes(&info, "MemTotal:")?;
    let available = kibibytes(&info, "MemAvailable:")?;
    let mut limits = control_groups(root);
    if let (Some(limits_of_shell), Some(status)) = (read("proc/self/limits"), read("proc/self/status")) {
        limits.extend(address_space(&limits_of_shell, &status));
    }
    // A limit of more than there is limits nothing; groups of the first version have one such where none was set.
    let limit = limits.into_iter().filter(|limit| limit.bytes < total).min_by_key(|limit| limit.left);
    let available = limit.as_ref().map_or(available, |limit| available.min(limit.left));
    Some(HostMemory { total, available, limit })
}

fn mounts_below(root: &Path) -> Vec<Mount> {
    let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// `36 35 98:0 /root /point rw,relatime shared:1 - kind device options`, proc(5).
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let options = left.get(5)?.split(',').chain(right.get(2)?.split(','));
    Some(Mount {
        root: unescaped(left.get(3)?),
        point: PathBuf::from(unescaped(left.get(4)?)),
        kind: (*right.first()?).to_string(),
        options: options.map(str::to_string).collect(),
    })
}

/// Blanks, tabs, line ends and backslashes are written as three octal digits there.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_string(), |text, (code, character)| text.replace(code, character))
}

/// The number of KiB after a name, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Files of a control group that say what it may have, what it has, and which entries of `memory.stat` are pages of
/// files: those leave when there is need, so they are as good as free.
struct Names {
    limits: &'static [&'static str],
    usage: &'static str,
    pages: [&'static str; 2],
}

const VERSION_1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    pages: ["total_inactive_file ", "total_active_file "],
};

// Beyond `memory.high` a group is not killed, but it stands still.
const VERSION_2: Names = Names {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    pages: ["inactive_file ", "active_file "],
};

/// The limits of the groups this process is in, from its own up to the top that is seen.
fn control_groups(root: &Path) -> Vec<MemoryLimit> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = mounts_below(root);
    let mut limits = Vec::new();
    for line in groups.lines() {
        // `0::/path` in the second version, `4:memory:/path` in the first
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (names, mount) = if number == "0" && controllers.is_empty() {
            (VERSION_2, mounts.iter().find(|mount| mount.kind == "cgroup2"))
        } else if controllers.split(',').any(|name| name == "memory") {
            let of_memory = |mount: &&Mount| mount.kind == "cgroup" && mount.options.iter().any(|o| o == "memory");
            (VERSION_1, mounts.iter().find(of_memory))
        } else {
            continue;
        };
        let Some(mount) = mount else { continue };
        let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        // In a container the mount shows the container's group, while the path may still be the machine's.
        let inside = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let inside = if inside.components().any(|part| part.as_os_str() == "..") { Path::new("") } else { inside };
        let own = top.join(inside);
        let folders = own.ancestors().take_while(|folder| folder.starts_with(&top));
        limits.extend(folders.filter_map(|folder| limit_of(folder, root, &names)));
    }
    limits
}

fn limit_of(folder: &Path, root: &Path, names: &Names) -> Option<MemoryLimit> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // `max` is no number and no limit.
    let bytes = names.limits.iter().filter_map(|name| number(name)).min()?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let pages = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let reclaimable: u64 = names.pages.iter().filter_map(|name| pages(name)).sum();
    let held = number(names.usage).unwrap_or(0).saturating_sub(reclaimable);
    let shown = Path::new("/").join(folder.strip_prefix(root).unwrap_or(folder));
    Some(MemoryLimit { bytes, left: bytes.saturating_sub(held), kind: LimitKind::ControlGroup(shown) })
}

/// `ulimit -v`, with which other schedulers hold a job. Files that are mapped count too.
fn address_space(limits: &str, status: &str) -> Option<MemoryLimit> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let bytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let left = bytes.saturating_sub(kibibytes(status, "VmSize:")?);
    Some(MemoryLimit { bytes, left, kind: LimitKind::AddressSpace })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A machine of 200 GiB, 150 of them available.
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

    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");

    #[test]
    fn without_limits_it_is_the_machines() {
        let free = HostMemory { total: 200 * GIB, available: 150 * GIB, limit: None };
        assert_eq!(machine(&[]).unwrap(), free);
        let unlimited =
            [V2, ("proc/self/cgroup", "0::/user.slice\n"), ("sys/fs/cgroup/user.slice/memory.max", "max\n")];
        assert_eq!(machine(&unlimited).unwrap(), free);
        assert_eq!(memory_below(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_job_of_slurm_has_what_its_group_leaves() {
        // The limit is the job's; the process is in a task of a step below it. 3 GiB are held, one of them pages of files.
        let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
        let own = format!("{job}/step_0/user/task_0/memory.max");
        let (limit, held, stat) =
            (format!("{job}/memory.max"), format!("{job}/memory.current"), format!("{job}/memory.stat"));
        let memory = machine(&[
            V2,
            ("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"),
            (&own, "max\n"),
            (&limit, "4294967296\n"),
            (&held, "3221225472\n"),
            (&stat, "anon 5\nfile 6\ninactive_file 805306368\nactive_file 268435456\n"),
        ])
        .unwrap();
        assert_eq!((memory.total, memory.available), (200 * GIB, 2 * GIB));
        let limit = memory.limit.unwrap();
        assert_eq!((limit.bytes, limit.left), (4 * GIB, 2 * GIB));
        let group = PathBuf::from("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7");
        assert_eq!(limit.kind, LimitKind::ControlGroup(group));
    }

    #[test]
    fn the_tightest_of_several_groups_counts() {
        let memory = machine(&[
            V2,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/a/memory.high", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.max", "8589934592\n"),
        ]);
        assert_eq!(memory.unwrap().available, GIB);
    }

    #[test]
    fn a_container_of_docker_by_groups_of_the_first_version() {
        // The path is the machine's, the mount shows the container's group as its top.
        let mounts = "40 30 0:31 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      41 30 0:32 /docker/c0ffee /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let files = [
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "5:cpu:/docker/c0ffee\n4:memory:/docker/c0ffee\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 536870912\n"),
        ];
        assert_eq!(machine(&files).unwrap().available, 3 * GIB + GIB / 2);
        // What stands there where nothing was set.
        let unset = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let files = [files[0], files[1], unset];
        assert_eq!(machine(&files).unwrap().limit, None);
    }

    #[test]
    fn a_limit_of_the_shell() {
        let files = [
            (
                "proc/self/limits",
                "Limit    Soft Limit   Hard Limit   Units\nMax address space  6442450944  unlimited  bytes\n",
            ),
            ("proc/self/status", "Name: x\nVmSize:\t 2097152 kB\n"),
        ];
        let memory = machine(&files).unwrap();
        assert_eq!(memory.available, 4 * GIB);
        assert_eq!(memory.limit.unwrap().kind, LimitKind::AddressSpace);
    }

    #[test]
    fn names_of_mounts_may_have_blanks() {
        let found = mount("1 2 0:3 / /mnt/a\\040b\\134c rw,noatime shared:5 - nfs4 host:/x rw,vers=4.2").unwrap();
        assert_eq!(found.point, PathBuf::from("/mnt/a b\\c"));
        assert_eq!((found.kind.as_str(), found.options.len()), ("nfs4", 4));
        assert_eq!(mount("1 2 0:3 / /mnt"), None);
    }
}
