//! What the host has for the device: its memory, and the limits on that.

use std::fs;
use std::path::Path;

use super::finding::Finding;

/// What there is to know of the host. Where a file is not there, as on other systems than Linux, that line is left out.
pub(super) fn examine() -> Vec<Finding> {
    examine_under(Path::new("/"))
}

fn examine_under(root: &Path) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    [
        read("proc/meminfo").as_deref().and_then(memory),
        read("sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(transparent_pages),
        read("proc/meminfo").as_deref().and_then(reserved_pages),
        read("proc/self/limits").as_deref().and_then(locked_memory),
        group_limit(&read),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `MemTotal:       65536 kB`, in bytes.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let number = line.trim();
    match number.strip_suffix(" kB") {
        Some(kib) => kib.trim().parse::<u64>().ok()?.checked_mul(1024),
        None => number.parse().ok(),
    }
}

fn memory(text: &str) -> Option<Finding> {
    let (total, available) = (meminfo(text, "MemTotal")?, meminfo(text, "MemAvailable")?);
    Some(Finding::note("memory", format!("{} of {} available", size(available), size(total))))
}

fn transparent_pages(text: &str) -> Option<Finding> {
    let chosen = text.split_once('[')?.1.split_once(']')?.0;
    Some(if chosen == "never" {
        Finding::missing(
            "transparent huge pages",
            "they are switched off",
            "pinning large blocks takes several times as long without: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    } else {
        Finding::ok("transparent huge pages", chosen)
    })
}

fn reserved_pages(text: &str) -> Option<Finding> {
    let (count, bytes) = (meminfo(text, "HugePages_Total")?, meminfo(text, "Hugepagesize")?);
    let detail = match count {
        0 => "none, and nothing here needs them".to_owned(),
        _ => format!("{count} of {}", size(bytes)),
    };
    Some(Finding::note("reserved huge pages", detail))
}

fn locked_memory(text: &str) -> Option<Finding> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_whitespace().next()?;
    let name = "limit of locked memory";
    Some(match soft.parse::<u64>() {
        Err(_) => Finding::ok(name, soft),
        Ok(bytes) => Finding::note(name, size(bytes)).with_advice(
            "CUDA pins without it; RDMA and io_uring do not: raise it with `ulimit -l unlimited` where they fail",
        ),
    })
}

/// The limit of the control group, of version 2 or 1. Above all memory is none.
fn group_limit(read: &impl Fn(&str) -> Option<String>) -> Option<Finding> {
    let groups = read("proc/self/cgroup")?;
    let path_of = |controller: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    // Within a container the group is often the root of what is to be seen.
    let either = |base: &str, path: Option<&str>, file: &str| {
        let path = path.unwrap_or("/").trim_end_matches('/');
        read(&format!("{base}{path}/{file}")).or_else(|| read(&format!("{base}/{file}")))
    };
    let text = either("sys/fs/cgroup", path_of(""), "memory.max")
        .or_else(|| either("sys/fs/cgroup/memory", path_of("memory"), "memory.limit_in_bytes"))?;
    let total = read("proc/meminfo").and_then(|text| meminfo(&text, "MemTotal")).unwrap_or(u64::MAX);
    let name = "limit of the control group";
    Some(match text.trim().parse::<u64>() {
        Ok(bytes) if bytes < total => Finding::note(name, size(bytes))
            .with_advice("pinned and managed memory count against it: leave room, or the process is ended"),
        _ => Finding::ok(name, "none"),
    })
}

/// Bytes for people: whole units, of which there are at least two.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift >= 2) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn found(files: &[(&str, &str)]) -> Vec<(&'static str, Verdict, String)> {
        let name = format!("alluvion-doctor-host-{}-{:?}", std::process::id(), std::thread::current().id());
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let findings = examine_under(&root);
        let _ = fs::remove_dir_all(&root);
        findings.into_iter().map(|finding| (finding.name, finding.verdict, finding.detail)).collect()
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\n",
    );

    #[test]
    fn a_host_without_files_has_nothing_to_say() {
        assert_eq!(found(&[]), []);
        assert_eq!(
            found(&[("proc/meminfo", "nonsense"), ("proc/self/limits", "Max"), ("proc/self/cgroup", ":")]),
            []
        );
    }

    #[test]
    fn limits_are_found_where_they_are() {
        let note = Verdict::Note;
        let memory = ("memory", note, "8 GiB of 16 GiB available".to_owned());
        let pages = ("reserved huge pages", note, "3 of 2 MiB".to_owned());
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax locked memory     8388608    8388608    bytes\n";
        let version_2 = found(&[
            MEMINFO,
            ("proc/self/limits", limits),
            ("proc/self/cgroup", "0::/jobs/7\n"),
            ("sys/fs/cgroup/jobs/7/memory.max", "4294967296\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        ]);
        assert_eq!(
            version_2,
            [
                memory.clone(),
                ("transparent huge pages", Verdict::Missing, "they are switched off".to_owned()),
                pages.clone(),
                ("limit of locked memory", note, "8 MiB".to_owned()),
                ("limit of the control group", note, "4 GiB".to_owned()),
            ]
        );
        let version_1 = found(&[
            MEMINFO,
            ("proc/self/limits", "Max locked memory     unlimited    unlimited    bytes\n"),
            ("proc/self/cgroup", "4:cpu,memory:/elsewhere\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ]);
        assert_eq!(
            version_1,
            [
                memory,
                ("transparent huge pages", Verdict::Ok, "madvise".to_owned()),
                pages,
                ("limit of locked memory", Verdict::Ok, "unlimited".to_owned()),
                ("limit of the control group", Verdict::Ok, "none".to_owned()),
            ]
        );
    }

    #[test]
    fn sizes_are_for_people() {
        let sizes = [0, 2047, 2048, (2 << 20) - 1, 141 << 30].map(size);
        assert_eq!(sizes, ["0 bytes", "2047 bytes", "2 KiB", "2047 KiB", "141 GiB"]);
    }
}
