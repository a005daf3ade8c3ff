//! Blocks that are saved to files and restored, and what sleeps on a disk.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::{env, fs, process};

use calluvion::*;

use crate::support::*;

/// A folder of this test alone, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("alluvion-capi-saved-{}-{name}", process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path)
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).expect("it is there").count()
    }

    fn model(&self) -> PathBuf {
        self.0.join("model")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.to_str().expect("it is text")).expect("no 0 within")
}

fn create(path: &Path) -> Result<*mut SaverHandle, Status> {
    let mut saver = std::ptr::dangling_mut();
    // SAFETY: a string and a place.
    let status = unsafe { alv_saver_create(text(path).as_ptr(), &raw mut saver) };
    assert_eq!(saver.is_null(), status != ALV_OK);
    if status == ALV_OK { Ok(saver) } else { Err(status) }
}

fn open(path: &Path) -> Result<*mut SavedHandle, Status> {
    let mut saved = std::ptr::dangling_mut();
    // SAFETY: a string and a place.
    let status = unsafe { alv_saved_open(text(path).as_ptr(), &raw mut saved) };
    assert_eq!(saved.is_null(), status != ALV_OK);
    if status == ALV_OK { Ok(saved) } else { Err(status) }
}

fn save(
    saver: *const SaverHandle,
    stack: *const ResourceHandle,
    name: &CStr,
    block: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: live handles, a string, and memory of the stack on its default stream.
    unsafe { alv_saver_save_raw(saver, stack, name.as_ptr(), block, bytes, null_mut()) }
}

fn restore(
    saved: *const SavedHandle,
    stack: *const ResourceHandle,
    name: &CStr,
    block: *mut c_void,
    bytes: usize,
) -> Status {
    // SAFETY: as above.
    unsafe { alv_saved_restore_raw(saved, stack, name.as_ptr(), block, bytes, null_mut()) }
}

fn finish(saver: *const SaverHandle) -> Status {
    let mut bytes = 0;
    // SAFETY: a live handle and a place.
    unsafe { alv_saver_finish(saver, &raw mut bytes) }
}

fn end(saver: *mut SaverHandle, saved: *mut SavedHandle) {
    // SAFETY: counts of the test's, or null.
    unsafe {
        alv_saver_release(saver);
        alv_saved_release(saved);
    }
}

fn filled(stack: *const ResourceHandle, bytes: usize, value: u8) -> *mut c_void {
    let (status, block) = allocate(stack, bytes, 0);
    assert_eq!(status, ALV_OK);
    // SAFETY: memory of the stack, on its default stream.
    assert_eq!(unsafe { alv_fill_raw(stack, block, value, bytes, null_mut()) }, ALV_OK);
    block
}

fn contents(stack: *const ResourceHandle, block: *const c_void, bytes: usize) -> Vec<u8> {
    let mut host = vec![0; bytes];
    // SAFETY: memory of the stack and of the host, on its default stream, which is waited for.
    unsafe {
        assert_eq!(alv_copy_raw(stack, host.as_mut_ptr().cast(), block, bytes, null_mut()), ALV_OK);
        assert_eq!(alv_synchronize_raw(stack, null_mut()), ALV_OK);
    }
    host
}

/// More than two of the parts that are copied at a time.
const LONG: usize = (17 << 20) + 3;

#[test]
fn blocks_come_back_in_another_machine() {
    let folder = Folder::new("come-back");
    {
        let sim = Sim::new(1);
        let stack = sim.recipe("pool | cuda");
        let (long, short) = (filled(stack, LONG, 7), filled(stack, 3, 9));
        let saver = create(&folder.model()).expect("there is room");
        assert_eq!(save(saver, stack, c"long", long, LONG), ALV_OK);
        assert_eq!(save(saver, stack, c"nothing", null(), 0), ALV_OK);
        assert_eq!(save(saver, stack, c"long", short, 3), ALV_INVALID_ARGUMENT, "the name is taken");
        assert_eq!(save(saver, stack, c"short", short, 3), ALV_OK);
        assert!(!folder.model().exists());
        let mut bytes = 0;
        // SAFETY: a live handle and a place.
        assert_eq!(unsafe { alv_saver_finish(saver, &raw mut bytes) }, ALV_OK);
        assert_eq!(bytes, fs::metadata(folder.model()).expect("it is there").len());
        assert_eq!(
            (finish(saver), save(saver, stack, c"late", short, 3)),
            (ALV_INVALID_ARGUMENT, ALV_INVALID_ARGUMENT)
        );
        assert!(message().contains("its file is finished"), "{}", message());
        // SAFETY: one more count of a live handle.
        end(unsafe { alv_saver_retain(saver) }, null_mut());
        end(saver, null_mut());
        free(stack, long, LONG, 0);
        free(stack, short, 3, 0);
        release(stack);
    }
    let sim = Sim::new(1);
    let stack = sim.recipe("pool | cuda");
    let saved = open(&folder.model()).expect("it is whole");
    let (mut count, mut bytes, mut needed, mut name) = (0, 0, 0, [0; 16]);
    // SAFETY: a live handle, strings and places.
    unsafe {
        assert_eq!((alv_saved_count(saved, &raw mut count), count), (ALV_OK, 3));
        assert_eq!(alv_saved_name(saved, 1, name.as_mut_ptr(), name.len(), &raw mut needed), ALV_OK);
        assert_eq!((CStr::from_ptr(name.as_ptr()), needed), (c"nothing", 7));
        assert_eq!(alv_saved_name(saved, 3, null_mut(), 0, &raw mut needed), ALV_INVALID_ARGUMENT);
        assert_eq!((alv_saved_bytes(saved, c"long".as_ptr(), &raw mut bytes), bytes), (ALV_OK, LONG as u64));
        assert_eq!(alv_saved_bytes(saved, c"lnog".as_ptr(), &raw mut bytes), ALV_INVALID_ARGUMENT);
    }
    let (_, long) = allocate(stack, LONG, 0);
    assert_eq!(restore(saved, stack, c"long", long, LONG), ALV_OK);
    assert!(contents(stack, long, LONG) == vec![7; LONG]);
    assert_eq!(restore(saved, stack, c"short", long, 3), ALV_OK);
    assert_eq!(contents(stack, long, 4), [9, 9, 9, 7]);
    assert_eq!(restore(saved, stack, c"nothing", null_mut(), 0), ALV_OK);
    assert_eq!(restore(saved, stack, c"short", long, 4), ALV_LENGTH_MISMATCH);
    assert_eq!(restore(saved, stack, c"shrot", long, 3), ALV_INVALID_ARGUMENT);
    free(stack, long, LONG, 0);
    // SAFETY: one more count of a live handle.
    end(null_mut(), unsafe { alv_saved_retain(saved) });
    end(null_mut(), saved);
    release(stack);
}

#[test]
fn what_cannot_be_written_or_read_says_so() {
    let (sim, folder) = (Sim::new(1), Folder::new("refused"));
    let stack = sim.recipe("pool | cuda");
    assert_eq!(create(&folder.0.join("missing/model")), Err(ALV_UNWRITABLE));
    assert_eq!(open(&folder.model()), Err(ALV_UNREADABLE));
    fs::write(folder.model(), "no such file").expect("there is room");
    assert_eq!(open(&folder.model()), Err(ALV_MALFORMED));
    // One that is given up leaves what was there.
    let block = filled(stack, 1000, 1);
    let saver = create(&folder.model()).expect("there is room");
    assert_eq!(save(saver, stack, c"block", block, 1000), ALV_OK);
    end(saver, null_mut());
    assert_eq!(fs::read(folder.model()).expect("it is there"), b"no such file");
    assert_eq!(folder.files(), 1);
    // A byte that is another one.
    let saver = create(&folder.model()).expect("there is room");
    assert_eq!((save(saver, stack, c"block", block, 1000), finish(saver)), (ALV_OK, ALV_OK));
    let mut whole = fs::read(folder.model()).expect("it is there");
    let at = whole.windows(1000).position(|part| part.iter().all(|byte| *byte == 1)).expect("they are there");
    whole[at + 500] = 2;
    fs::write(folder.model(), &whole).expect("there is room");
    let saved = open(&folder.model()).expect("its table is whole");
    assert_eq!(restore(saved, stack, c"block", block, 1000), ALV_MALFORMED);
    end(saver, saved);
    free(stack, block, 1000, 0);
    release(stack);
}

/// A stream that captures would record the copies.
#[test]
fn a_stream_that_captures_is_refused() {
    let (sim, folder) = (Sim::new(1), Folder::new("captures"));
    let stack = sim.recipe("pool | cuda");
    let (block, stream) = (filled(stack, 1000, 1), sim.foreign_stream());
    let saver = create(&folder.model()).expect("there is room");
    // SAFETY: live handles, a string, and memory of the stack.
    unsafe {
        assert_eq!(alv_sim_begin_capture(sim.0, 0, stream), ALV_OK);
        assert_eq!(alv_saver_save_raw(saver, stack, c"block".as_ptr(), block, 1000, stream), ALV_CAPTURE);
        assert_eq!(alv_sim_end_capture(sim.0, 0, stream), ALV_OK);
        assert_eq!(alv_saver_save_raw(saver, stack, c"block".as_ptr(), block, 1000, stream), ALV_OK);
    }
    end(saver, null_mut());
    free(stack, block, 1000, 0);
    release(stack);
    // SAFETY: a live stream, which nothing uses.
    assert_eq!(unsafe { alv_sim_stream_destroy(sim.0, 0, stream) }, ALV_OK);
}

/// Each call of the driver fails once: it is an error, what was saved before is kept, and the call can be made again.
#[test]
fn a_call_that_fails_loses_nothing() {
    let folder = Folder::new("calls");
    let mut failures = 0;
    for nth in 1.. {
        let sim = Sim::new(1);
        let stack = sim.recipe("pool | cuda");
        let (first, second) = (filled(stack, 1000, 1), filled(stack, 2000, 2));
        let saver = create(&folder.model()).expect("there is room");
        assert_eq!(save(saver, stack, c"first", first, 1000), ALV_OK);
        sim.fail_any(nth);
        let saved_second = save(saver, stack, c"second", second, 2000);
        sim.clear_faults();
        if saved_second != ALV_OK {
            failures += 1;
            assert_eq!(save(saver, stack, c"second", second, 2000), ALV_OK);
        }
        assert_eq!(finish(saver), ALV_OK);
        let saved = open(&folder.model()).expect("it is whole");
        sim.fail_any(nth);
        let restored = restore(saved, stack, c"first", second, 1000);
        sim.clear_faults();
        if restored != ALV_OK {
            failures += 1;
            assert_eq!(restore(saved, stack, c"first", second, 1000), ALV_OK);
        }
        assert_eq!(contents(stack, second, 1000), [1; 1000]);
        end(saver, saved);
        free(stack, first, 1000, 0);
        free(stack, second, 2000, 0);
        release(stack);
        if saved_second == ALV_OK && restored == ALV_OK {
            break;
        }
    }
    assert!(failures >= 6, "{failures} calls failed");
}

#[test]
fn what_sleeps_is_kept_on_a_disk() {
    let (sim, folder) = (Sim::new(1), Folder::new("asleep"));
    let stack = sim.recipe("pool(checked=true) | mapped");
    let block = filled(stack, LONG, 7);
    let sleep = |tag: Option<&CStr>, at: &Path| {
        let mut sleeper = std::ptr::dangling_mut();
        let tag = tag.map_or(null(), CStr::as_ptr);
        // SAFETY: a live handle, strings and a place; no test uses what sleeps.
        let status = unsafe { alv_sleep_on_disk(stack, tag, text(at).as_ptr(), &raw mut sleeper) };
        assert_eq!(sleeper.is_null(), status != ALV_OK);
        (status, sleeper)
    };
    assert_eq!(sleep(None, &folder.0.join("missing")).0, ALV_UNWRITABLE);
    assert!(contents(stack, block, LONG) == vec![7; LONG]);
    let (status, nobody) = sleep(Some(c"nobody"), &folder.0);
    assert_eq!((status, folder.files()), (ALV_OK, 0));
    // SAFETY: a count of the test's.
    unsafe { alv_sleeper_release(nobody) };
    let (status, sleeper) = sleep(None, &folder.0);
    assert_eq!((status, folder.files()), (ALV_OK, 1));
    assert_eq!(allocate(stack, 1000, 0).0, ALV_ASLEEP);
    let mut into = [1_u8; 3];
    // SAFETY: a live handle, and a place of so many bytes.
    let read = unsafe { alv_sleeper_read_kept(sleeper, block, into.as_mut_ptr().cast(), 3) };
    assert_eq!((read, into), (ALV_INVALID_ARGUMENT, [1; 3]));
    assert!(message().contains("a file has the contents"), "{}", message());
    // SAFETY: a live handle.
    assert_eq!(unsafe { alv_wake(sleeper) }, ALV_OK);
    assert!(contents(stack, block, LONG) == vec![7; LONG]);
    assert_eq!(folder.files(), 0);
    // SAFETY: as above.
    unsafe { alv_sleeper_release(sleeper) };
    free(stack, block, LONG, 0);
    release(stack);
}

#[test]
fn one_block_is_kept_on_a_disk() {
    let (sim, folder) = (Sim::new(1), Folder::new("block"));
    let (stack, other) = (sim.recipe("stats | pool | mapped"), sim.recipe("pool | mapped"));
    let (first, second) = (filled(stack, LONG, 7), filled(stack, 2 << 20, 8));
    let sleep = |stack, block, folder: Option<&Path>| {
        let mut sleeper = std::ptr::dangling_mut();
        let folder = folder.map(text);
        let folder = folder.as_ref().map_or(null(), |folder| folder.as_ptr());
        // SAFETY: a live handle, a block, the default stream, a string and a place; no test uses what sleeps.
        let status =
            unsafe { alv_sleep_block_on_disk_raw(stack, block, null_mut(), folder, &raw mut sleeper) };
        assert_eq!(sleeper.is_null(), status != ALV_OK);
        (status, sleeper)
    };
    let here = Some(&*folder.0);
    // SAFETY: a count of the test's.
    let release_sleeper = |sleeper| unsafe { alv_sleeper_release(sleeper) };
    // SAFETY: a live handle.
    let wake = |sleeper| unsafe { alv_wake(sleeper) };

    // What cannot be: nothing sleeps, and there is no file.
    fs::write(folder.model(), "no folder").expect("there is room");
    for (of, block, at, status) in [
        (stack, first, None, ALV_INVALID_ARGUMENT),
        (stack, first, Some(&*folder.0.join("missing")), ALV_UNWRITABLE),
        (stack, first, Some(&*folder.model()), ALV_UNWRITABLE),
        (stack, first, Some(Path::new("/dev/null")), ALV_UNWRITABLE),
        (stack, null_mut(), here, ALV_INVALID_ARGUMENT),
        (stack, first.wrapping_byte_add(256), here, ALV_INVALID_ARGUMENT),
        (other, first, here, ALV_INVALID_ARGUMENT),
        (null_mut(), first, here, ALV_INVALID_ARGUMENT),
    ] {
        assert_eq!(sleep(of, block, at).0, status, "{at:?}");
        assert_eq!((folder.files(), contents(stack, first, LONG) == vec![7; LONG]), (1, true));
    }
    fs::remove_file(folder.model()).expect("it is the test's");

    let (status, sleeper) = sleep(stack, first, here);
    assert_eq!((status, folder.files()), (ALV_OK, 1));
    assert_eq!(sleep(stack, first, here).0, ALV_INVALID_ARGUMENT, "it sleeps");
    assert_eq!((folder.files(), contents(stack, second, 2 << 20) == vec![8; 2 << 20]), (1, true));
    // A file that somebody has damaged, and then put in order.
    let file =
        fs::read_dir(&folder.0).expect("it is there").next().expect("there is one").expect("as is").path();
    let whole = fs::read(&file).expect("it is there");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for (wrong, status) in [(&damaged[..], ALV_MALFORMED), (&whole[..whole.len() / 2], ALV_UNREADABLE)] {
        fs::write(&file, wrong).expect("there is room");
        assert_eq!(wake(sleeper), status);
    }
    fs::write(&file, &whole).expect("there is room");
    // Whoever removes its name removes no contents.
    fs::remove_file(&file).expect("it is there");
    assert_eq!((wake(sleeper), wake(sleeper), folder.files()), (ALV_OK, ALV_OK, 0));
    assert!(contents(stack, first, LONG) == vec![7; LONG]);
    release_sleeper(sleeper);

    // Freed while it sleeps, with its file; and a sleeper that goes first leaves none.
    let (_, sleeper) = sleep(stack, second, here);
    free(stack, second, 2 << 20, 0);
    release_sleeper(sleeper);
    assert_eq!(folder.files(), 0);
    let (_, sleeper) = sleep(stack, first, here);
    release_sleeper(sleeper);
    assert_eq!(folder.files(), 0);
    free(stack, first, LONG, 0);
    assert_eq!(counts(stack).allocations.value, 0);
    release(stack);
    release(other);
}
