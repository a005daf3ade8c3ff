//! Kin: whether a child of a fork of a process that has died still lives.
//!
//! A child of a fork has copies of its parent's descriptors until it begins another program or ends, and among them those of the
//! devices. While one of them is open, the driver keeps what the parent had, and the devices go on with what it had queued, whatever
//! has become of the parent itself.
//!
//! So each process has a lock that its children keep. It is of one byte of the file `.kin`, at a place that is random, and belongs to
//! an opening that a mapping alone keeps, which children of a fork get. Nothing is read or written there, and the file stays empty.
//! The lock is gone when the process, its children, and theirs have ended or begun another program.
//!
//! Children that were forked before the lock was made do not keep it. Whether there are any that have descriptors of devices is asked
//! when it is made; if there are, the process gets no mark, and after its death it is asked whether any process of the user that is not
//! older has devices open.

#![expect(unsafe_code, reason = "maps a file, and asks whether two descriptors are of one opening")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;

use super::file::{Others, lock, open_one};
use super::no_fork::NoFork;
use super::process::{OtherProcess, descriptors_of, others_since, this_process};
use super::{KinMark, Life, Opening};
use crate::sync::{Global, MadeIn};

/// The file, in the directory of a user. No limit and no lease has a name that begins with a dot.
const FILE: &str = ".kin";

/// The files by which a process has the devices of a vendor whose driver keeps the contexts of a dead process for its children.
const DEVICES: &str = "/dev/nvidia";

/// The bits of a mark that say where in the file, at random; those above say which file.
const AT_BITS: u32 = 40;
/// A mark is a place in a file, which has 63 bits.
const FILE_BITS: u32 = 22;

/// The marks of this process, of which one in each directory, and of its parents.
static MARKS: Global<Vec<Mark>> = Global::new(Vec::new(), in_child);

extern "C" fn in_child() {
    MARKS.look_after_fork();
}

struct Mark {
    file: [u64; 2],
    kin: KinMark,
    made_in: MadeIn,
}

/// The mark of this process in a user's directory. `NONE` if it has children that are older than their parent's lock would be.
pub(super) fn mark_in(room: &Path) -> io::Result<KinMark> {
    let _no_fork = NoFork::begin();
    let (file, found) = open_one(&room.join(FILE), Opening::Either)?;
    let identity = [found.dev(), found.ino()];
    let mut marks = MARKS.lock().ok_or_else(|| io::Error::other("the process was forked meanwhile"))?;
    let is_known = |mark: &&Mark| mark.file == identity && !mark.made_in.is_parent();
    if let Some(known) = marks.iter().find(is_known) {
        return Ok(known.kin);
    }
    if has_kin_with(DEVICES)? {
        return Ok(KinMark::NONE);
    }
    let kin = keep_a_byte(&file, found.ino())?;
    marks.push(Mark { file: identity, kin, made_in: MadeIn::this_process() });
    Ok(kin)
}

/// Locks a byte of the file, for as long as this process has it or a child of a fork.
fn keep_a_byte(file: &File, ino: u64) -> io::Result<KinMark> {
    loop {
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let at = u64::from_ne_bytes(random) & ((1 << AT_BITS) - 1);
        let kin = KinMark(file_part(ino) | at.max(1));
        let Some(locked) = lock(file, kin.0 as usize, 1)? else { continue };
        // SAFETY: the kernel chooses the addresses, so no other memory is replaced, and nobody may read or write there. The descriptor is
        // open.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), 1, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        locked.keep();
        return Ok(kin);
    }
}

const fn file_part(ino: u64) -> u64 {
    (ino & ((1 << FILE_BITS) - 1)) << AT_BITS
}

/// Whether a child of a fork of one of these may live, or a child of such a child. They have died, as far as their own locks say.
pub(super) fn is_left(room: &Path, dead: &[Life]) -> bool {
    is_left_of(room, dead, DEVICES)
}

fn is_left_of(room: &Path, dead: &[Life], devices: &str) -> bool {
    let mut since = None::<u64>;
    for life in dead.iter().filter(|life| !is_mine(life.kin)) {
        match is_kept(room, life.kin) {
            Some(true) => return true,
            Some(false) => {}
            None => since = Some(since.map_or(life.started, |since| since.min(life.started))),
        }
    }
    // Who cannot be asked after is not known to be gone.
    since.is_some_and(|since| {
        others_since(since).map_or(true, |others| others.iter().any(|other| has_some(other, devices)))
    })
}

/// A part of this process that gave up its lock alone.
fn is_mine(kin: KinMark) -> bool {
    let Some(marks) = MARKS.lock() else { return false };
    marks.iter().any(|mark| mark.kin == kin && !mark.made_in.is_parent())
}

/// Whether a process has that mark; `None` if it is none, or one of another file.
fn is_kept(room: &Path, kin: KinMark) -> Option<bool> {
    if kin == KinMark::NONE {
        return None;
    }
    let others = Others::open(&room.join(FILE)).ok()?;
    let ([_, ino], _) = others.identity().ok()?;
    if kin.0 >> AT_BITS << AT_BITS != file_part(ino) {
        return None;
    }
    others.is_locked(kin.0 as usize).ok()
}

fn has_some(other: &OtherProcess, prefix: &str) -> bool {
    other.is_ending() || other.descriptors(prefix).map_or(true, |found| !found.is_empty())
}

/// Whether another process has an opening of this one's, of a file whose path begins so.
fn has_kin_with(prefix: &str) -> io::Result<bool> {
    let mine = match descriptors_of("self", prefix) {
        // Without a list of processes nobody can tell.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        mine => mine?,
    };
    if mine.is_empty() {
        return Ok(false);
    }
    // No child is older.
    let (_, started) = this_process()?;
    for other in others_since(started)? {
        let theirs = match other.descriptors(prefix) {
            // One that lets nobody look has other privileges than this one, or has asked for that: a child of a fork has neither.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && may_be_looked_at() => continue,
            Err(_) => return Ok(true),
            Ok(theirs) => theirs,
        };
        let pairs = theirs.iter().flat_map(|theirs| mine.iter().map(move |mine| (mine, theirs)));
        let mut of_one_file = pairs.filter(|(mine, theirs)| mine.path == theirs.path);
        if of_one_file.any(|(mine, theirs)| may_be_one(mine.number, other.number, theirs.number)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether other processes of this user may look at what this one has open, and so at its children's.
fn may_be_looked_at() -> bool {
    // SAFETY: it takes a number, and changes nothing.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) == 1 }
}

/// Whether descriptor `mine` of this process, and `theirs` of another one, are of one opening, as far as the system says.
fn may_be_one(mine: u64, other: u32, theirs: u64) -> bool {
    /// Of the kernel's `kcmp.h`.
    const FILE: libc::c_int = 0;
    let process = std::process::id();
    // SAFETY: it takes numbers, and changes nothing.
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, process, other, FILE, mine, theirs) };
    match answer {
        -1 => {
            let gone = [libc::ESRCH, libc::EBADF];
            !io::Error::last_os_error().raw_os_error().is_some_and(|error| gone.contains(&error))
        }
        answer => answer == 0,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that has an opening of a file, whose own number is nobody's business.
    struct Keeper(Child);

    impl Keeper {
        fn of(file: &File) -> Self {
            let output = Stdio::from(file.try_clone().expect("there are descriptors"));
            let sleeps = Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(output).spawn();
            Self(sleeps.expect("there is a `sleep`"))
        }
    }

    impl Drop for Keeper {
        fn drop(&mut self) {
            self.0.kill().expect("it can be killed");
            self.0.wait().expect("it ends");
        }
    }

    /// A program that another test starts has copies of all descriptors for a moment, until it begins.
    fn eventually_nobody(prefix: &str) {
        while has_kin_with(prefix).expect("the system says") {
            std::thread::yield_now();
        }
    }

    /// A file in the place of a device's, of which this process has an opening, in a directory of its own.
    fn device(name: &str) -> (std::path::PathBuf, File) {
        let folder = std::env::temp_dir().join(format!("alluvion-kin-{name}-{}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("it is not there");
        let file = File::create(folder.join("device0")).expect("there is room");
        (folder, file)
    }

    #[test]
    fn a_child_that_was_forked_before_is_known_by_its_descriptors() {
        let (folder, file) = device("before");
        let prefix = folder.join("device");
        let prefix = prefix.to_str().expect("it is text");
        eventually_nobody(prefix);
        let keeper = Keeper::of(&file);
        assert!(has_kin_with(prefix).expect("the system says"));
        // An opening of its own is no kin's.
        drop(keeper);
        let another = Keeper::of(&File::create(folder.join("device0")).expect("there is room"));
        eventually_nobody(prefix);
        drop(another);
        std::fs::remove_dir_all(&folder).expect("it is this test's");
    }

    #[test]
    fn who_has_no_mark_is_left_while_anybody_as_young_has_a_device() {
        let (folder, file) = device("unknown");
        let prefix = folder.join("device");
        let prefix = prefix.to_str().expect("it is text");
        let (process, started) = this_process().expect("the system says");
        let dead = [Life { process, started, kin: KinMark::NONE }];
        let keeper = Keeper::of(&file);
        assert!(is_left_of(&folder, &dead, prefix));
        let younger = Life { started: u64::MAX, ..dead[0] };
        assert!(!is_left_of(&folder, &[younger], prefix), "nobody is as young");
        assert!(is_left_of(&folder, &[younger, dead[0]], prefix), "one of them may have left it");
        drop(keeper);
        std::fs::remove_dir_all(&folder).expect("it is this test's");
    }

    #[test]
    fn a_mark_is_of_one_file_and_is_had_while_its_process_lives() {
        let (folder, _) = device("mark");
        let mark = mark_in(&folder).expect("there is room");
        assert_eq!((mark_in(&folder).expect("it is there"), is_kept(&folder, mark)), (mark, Some(true)));
        assert!(is_mine(mark) && !is_mine(KinMark(mark.0 ^ 1)));
        assert_eq!(is_kept(&folder, KinMark(mark.0 ^ 1)), Some(false), "nobody's");
        assert_eq!(is_kept(&folder, KinMark(mark.0 ^ 1 << AT_BITS)), None, "of another file");
        assert_eq!(is_kept(&folder, KinMark::NONE), None);
        // Somebody has removed the file: the next one is another.
        std::fs::rename(folder.join(FILE), folder.join("away")).expect("it is there");
        let next = mark_in(&folder).expect("there is room");
        assert!(next != mark && is_mine(mark) && is_mine(next));
        assert_eq!((is_kept(&folder, mark), is_kept(&folder, next)), (None, Some(true)));
        std::fs::remove_dir_all(&folder).expect("it is this test's");
    }
}
