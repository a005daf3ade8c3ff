//! The memory that the host has left for this process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::driver::MemoryInfo;
use crate::error::Error;

/// As [`host_memory`], with an error if the system does not say.
pub(in crate::source) fn of_host() -> Result<MemoryInfo, Error> {
    host_memory().ok_or_else(|| {
        Error::unsupported(
            "the size of the host's memory",
            "the system has no /proc/meminfo",
            "ask the system",
        )
    })
}

/// Free and total memory of the host, as far as this process may use it: the least of the kernel's available memory and of the
/// rest of each control group. `None` where the system does not say.
///
/// To access more than that does not fail: it ends the process, or another one.
pub(super) fn host_memory() -> Option<MemoryInfo> {
    let mut info = of_kernel(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for folder in groups.lines().flat_map(group_folders) {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let group = VERSIONS.iter().find_map(|version| {
            of_group(&read(version.limit)?, &read(version.used)?, &read("memory.stat")?, version.cache)
        });
        if let Some(group) = group {
            info.free_bytes = info.free_bytes.min(group.free_bytes);
            info.total_bytes = info.total_bytes.min(group.total_bytes);
        }
    }
    Some(info)
}

/// The names of the files of one version of control groups, and of the lines of `memory.stat` that count the file cache.
struct GroupFiles {
    limit: &'static str,
    used: &'static str,
    cache: [&'static str; 2],
}

const VERSIONS: [GroupFiles; 2] = [
    GroupFiles { limit: "memory.max", used: "memory.current", cache: ["inactive_file", "active_file"] },
    GroupFiles {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cache: ["total_inactive_file", "total_active_file"],
    },
];

/// The folders that can limit memory, for one line of `/proc/self/cgroup`: the group's and those above it.
///
/// In a container the path may be that of the host, which is not visible; the top folder is then the container's own.
fn group_folders(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let root = match controllers {
        "" => Path::new("/sys/fs/cgroup"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            Path::new("/sys/fs/cgroup/memory")
        }
        _ => return Vec::new(),
    };
    let group = root.join(path.trim_start_matches('/'));
    group.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_path_buf).collect()
}

/// The number on the line that starts with `key`.
fn number(text: &str, key: &str) -> Option<usize> {
    let mut words = text.lines().map(str::split_whitespace).filter_map(|mut words| {
        let first = words.next()?.trim_end_matches(':');
        (first == key).then(|| words.next()).flatten()
    });
    words.next()?.parse().ok()
}

fn of_kernel(meminfo: &str) -> Option<MemoryInfo> {
    let bytes = |key| number(meminfo, key)?.checked_mul(1024);
    Some(MemoryInfo { free_bytes: bytes("MemAvailable")?, total_bytes: bytes("MemTotal")? })
}

/// `None` for a group without a limit.
fn of_group(limit: &str, used: &str, stat: &str, cache: [&str; 2]) -> Option<MemoryInfo> {
    let (limit, used): (usize, usize) = (limit.trim().parse().ok()?, used.trim().parse().ok()?);
    // The file cache counts as used, and can be reclaimed.
    let cached = cache.iter().filter_map(|key| number(stat, key)).fold(0, usize::saturating_add);
    Some(MemoryInfo { free_bytes: limit.saturating_sub(used.saturating_sub(cached)), total_bytes: limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_in_kib() {
        let text = "MemTotal:       100 kB\nMemFree:         10 kB\nMemAvailable:    60 kB\n";
        let expected = MemoryInfo { free_bytes: 60 << 10, total_bytes: 100 << 10 };
        assert_eq!(of_kernel(text), Some(expected));
        assert_eq!(of_kernel("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn a_group_counts_files_as_used_and_they_are_not() {
        let keys = VERSIONS[0].cache;
        let stat = "anon 500\nactive_file 100\ninactive_file 200\n";
        let expected = MemoryInfo { free_bytes: 600, total_bytes: 1000 };
        assert_eq!(of_group("1000\n", "700\n", stat, keys), Some(expected));
        assert_eq!(of_group("max\n", "700\n", stat, keys), None);
        assert_eq!(of_group("1000", "2000", "", keys).map(|info| info.free_bytes), Some(0));
    }

    #[test]
    fn groups_limit_each_other_from_the_top_down() {
        let folders =
            |line| group_folders(line).iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
        assert_eq!(folders("0::/a/b"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(folders("0::/"), ["/sys/fs/cgroup/"]);
        assert_eq!(folders("4:cpu,memory:/c:1"), ["/sys/fs/cgroup/memory/c:1", "/sys/fs/cgroup/memory"]);
        assert!(folders("8:pids:/a").is_empty() && folders("").is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_some() {
        let info = host_memory().unwrap();
        assert!(0 < info.free_bytes && info.free_bytes <= info.total_bytes, "{info:?}");
    }
}
