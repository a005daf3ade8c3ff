//! What processes that were killed may leave behind in this one, or in the directory by which processes know of each other.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("Linux says").count()
}

/// The files of leases of this user that are left when the dead ones have been removed.
pub(crate) fn leases() -> usize {
    alluvion::share::lease::sweep("/dev/shm".as_ref());
    let user = fs::metadata("/proc/self").expect("Linux says").uid();
    let room = format!("/dev/shm/alluvion-{user}");
    let names = fs::read_dir(room).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.starts_with("lease-"))).count()
}
