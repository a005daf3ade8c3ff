//! What processes share: how it is opened, and what is refused.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use calluvion::*;

use crate::shared_pair::*;
use crate::support::*;

#[test]
fn another_process_reads_and_writes_what_is_shared() {
    for (recipe, needs_descriptor) in WAYS {
        let pair = Pair::new();
        let filled = Filled::new(&pair, recipe, 3000, 5);
        let shared = filled.share(&pair, ALV_SHARE_WRITABLE);
        let (sent, descriptor) = (sent(shared), descriptor(shared));
        assert_eq!(descriptor >= 0, needs_descriptor, "{recipe}");
        let imported = pair
            .open(&sent, descriptor, ALV_OPEN_WRITABLE)
            .unwrap_or_else(|_| panic!("{recipe}: {}", message()));
        let range = range(imported);
        assert_eq!((range.bytes, range.device, range.flags), (3000, 0, ALV_OPEN_WRITABLE), "{recipe}");
        assert!(range.visible_bytes >= 3000, "{recipe}: {range:?}");
        assert_eq!((importers(shared), pair.its_figures()), (1, (1, 3000)), "{recipe}");
        // SAFETY: a live stream.
        let its_stream = unsafe { alv_stream_handle(pair.its_stream) };
        assert_eq!(copied(pair.its_memory, range.data, 3000, its_stream), [5; 3000], "{recipe}");
        // SAFETY: the memory is open to be written until it is released, which waits for this.
        assert_eq!(unsafe { alv_fill_raw(pair.its_memory, range.data, 6, 1000, its_stream) }, ALV_OK);
        assert_eq!((end(shared, 0), is_over(shared)), (ALV_IN_USE, false), "{recipe}");
        assert!(message().contains("a process still has it"), "{}", message());
        // SAFETY: counts that the test holds: the first is not the last.
        unsafe { assert_eq!(alv_imported_retain(imported), imported) };
        drop_imported(imported);
        assert_eq!(importers(shared), 1, "{recipe}");
        drop_imported(imported);
        assert_eq!((importers(shared), pair.its_figures()), (0, (0, 0)), "{recipe}");
        assert_eq!(
            (end(shared, -1), is_over(shared), self::descriptor(shared)),
            (ALV_OK, true, -1),
            "{recipe}"
        );
        assert_eq!((end(shared, 0), importers(shared)), (ALV_OK, 0), "{recipe}");
        assert_eq!(
            pair.open(&sent, -1, 0).err(),
            Some(if needs_descriptor { ALV_INVALID_ARGUMENT } else { ALV_STALE })
        );
        let bytes = filled.bytes(&pair);
        assert!(bytes[..1000].iter().all(|&byte| byte == 6) && bytes[1000..].iter().all(|&byte| byte == 5));
        drop_shared(shared);
        filled.free(&pair);
    }
}

/// The lines about sharing on the page of a resource.
fn share_lines(resource: *const ResourceHandle) -> Vec<String> {
    let mut text = String::new();
    // SAFETY: a live handle, a name and a function that fills the text.
    let status = unsafe { alv_metrics(resource, c"mine".as_ptr(), Some(append), (&raw mut text).cast()) };
    assert_eq!(status, ALV_OK);
    text.lines().filter(|line| line.starts_with("alluvion_share_")).map(str::to_owned).collect()
}

#[test]
fn a_page_of_metrics_says_what_is_shared() {
    let lines = |imports, imported_bytes, parked, parked_bytes| {
        [
            format!("alluvion_share_imports{{device=\"0\"}} {imports}"),
            format!("alluvion_share_imported_bytes{{device=\"0\"}} {imported_bytes}"),
            format!("alluvion_share_parked{{device=\"0\"}} {parked}"),
            format!("alluvion_share_parked_bytes{{device=\"0\"}} {parked_bytes}"),
        ]
    };
    let pair = Pair::new();
    let filled = Filled::new(&pair, "pool | cuda", 3000, 5);
    let resource = filled.resource;
    let shared = filled.share(&pair, 0);
    let imported = pair.open(&sent(shared), -1, 0).expect("it is there");
    assert_eq!(share_lines(pair.its_memory), lines(1, 3000, 0, 0));
    assert_eq!(share_lines(resource), lines(0, 0, 0, 0));
    // SAFETY: a live share, whose block the test gives up, and a live stream of its device.
    assert_eq!(unsafe { alv_shared_park_on(shared, pair.stream) }, ALV_OK);
    drop_shared(shared);
    assert_eq!(share_lines(resource), lines(0, 0, 1, 3000));
    drop_imported(imported);
    assert_eq!(share_lines(pair.its_memory), lines(0, 0, 0, 0));
    assert_eq!(sweep(&pair.first), 1);
    assert_eq!(share_lines(resource), lines(0, 0, 0, 0));
    release(resource);
}

#[test]
fn bare_streams_will_do() {
    let pair = Pair::new();
    let resource = pair.first.recipe("pool | cuda");
    let (stream, its_stream) = (pair.first.foreign_stream(), pair.second.foreign_stream());
    let (mut block, mut shared) = (null_mut(), null_mut());
    // SAFETY: live handles and streams, places, and a block of that size, which is freed after the end.
    unsafe {
        assert_eq!(alv_allocate_raw(resource, 500, 0, stream, &raw mut block), ALV_OK);
        assert_eq!(alv_fill_raw(resource, block, 9, 500, stream), ALV_OK);
        assert_eq!(alv_share_raw(resource, block, 500, 0, null(), stream, &raw mut shared), ALV_OK);
        // Opening with a bare stream is for the chosen machine: the program shared.c does it.
        let imported = pair.open(&sent(shared), -1, 0).expect("it is there");
        let range = range(imported);
        assert_eq!((range.flags, copied(pair.its_memory, range.data, 500, its_stream)), (0, vec![9; 500]));
        drop_imported(imported);
        assert_eq!(end(shared, 0), ALV_OK);
        alv_shared_release(shared);
        alv_deallocate_raw(resource, block, 500, 0, stream);
        release(resource);
        assert_eq!(alv_sim_stream_destroy(pair.first.0, 0, stream), ALV_OK);
        assert_eq!(alv_sim_stream_destroy(pair.second.0, 0, its_stream), ALV_OK);
    }
}

#[test]
fn what_a_message_says_and_what_is_none() {
    let pair = Pair::new();
    let filled = Filled::new(&pair, "pool(initial=1MiB) | cuda", 3000, 5);
    let shared = filled.share(&pair, ALV_SHARE_WRITABLE);
    let bytes = sent(shared);
    let mut info = MessageInfo {
        struct_size: size_of::<MessageInfo>(),
        bytes: 0,
        visible_bytes: 0,
        flags: 0,
        reserved: 7,
        device_uuid: [0; 16],
    };
    let mut read = |bytes: &[u8]| {
        // SAFETY: the bytes, and a whole struct.
        let status = unsafe { alv_message_read(bytes.as_ptr().cast(), bytes.len(), &raw mut info) };
        (status, info)
    };
    let (status, said) = read(&bytes);
    assert_eq!((status, said.bytes, said.visible_bytes), (ALV_OK, 3000, 1 << 20));
    assert_eq!((said.flags, said.reserved), (ALV_MESSAGE_WRITABLE, 0));
    assert_ne!(said.device_uuid, [0; 16]);
    assert_eq!(read(&bytes[1..]).0, ALV_MALFORMED);
    assert_eq!(read(&[]).0, ALV_MALFORMED);
    let long = [bytes.as_slice(), &[0; ALV_MESSAGE_BYTES]].concat();
    assert_eq!(read(&long).0, ALV_INVALID_ARGUMENT);
    assert_eq!(pair.open(&bytes[1..], -1, 0), Err(ALV_MALFORMED));
    assert_eq!(pair.open(&long, -1, 0), Err(ALV_INVALID_ARGUMENT));

    // Room for it, or none.
    let (mut buffer, mut needed) = ([7_u8; ALV_MESSAGE_BYTES], 0);
    // SAFETY: a live handle, a buffer with more room than is told, and a place.
    unsafe {
        let place = buffer.as_mut_ptr().cast();
        assert_eq!(alv_shared_message(shared, null_mut(), 0, &raw mut needed), ALV_OK);
        assert_eq!((needed, needed <= ALV_MESSAGE_BYTES), (bytes.len(), true));
        assert_eq!(alv_shared_message(shared, place, needed - 1, &raw mut needed), ALV_INVALID_ARGUMENT);
        assert_eq!((needed, buffer), (bytes.len(), [7; ALV_MESSAGE_BYTES]));
        assert_eq!(alv_shared_message(shared, place, needed, null_mut()), ALV_OK);
    }
    assert_eq!((&buffer[..needed], buffer[needed]), (bytes.as_slice(), 7));

    // An altered message opens nothing.
    let mut altered = bytes.clone();
    altered[230] ^= 1;
    assert_eq!(pair.open(&altered, -1, 0), Err(ALV_MALFORMED));
    assert_eq!(end(shared, 0), ALV_OK);
    drop_shared(shared);
    filled.free(&pair);
}

#[test]
fn what_was_not_allowed_is_refused() {
    let pair = Pair::new();
    let filled = Filled::new(&pair, "cuda", 3000, 5);
    assert_eq!(filled.try_share(&pair, &options(2)), Err(ALV_INVALID_ARGUMENT));
    let shared = filled.share(&pair, 0);
    let sent = sent(shared);
    assert_eq!(pair.open(&sent, -1, 4), Err(ALV_INVALID_ARGUMENT));
    assert_eq!(pair.open(&sent, -1, ALV_OPEN_WRITABLE), Err(ALV_INVALID_ARGUMENT));
    assert!(message().contains("its exporter shares it to be read"), "{}", message());
    let closed = i32::MAX;
    assert_eq!(pair.open(&sent, closed, 0), Err(ALV_INVALID_ARGUMENT));
    assert!(message().contains("it is not open"), "{}", message());
    // In the process itself.
    let mut imported = null_mut();
    // SAFETY: a live stream, the message's bytes and a place.
    let status = unsafe {
        alv_open_shared_on(pair.stream, sent.as_ptr().cast(), sent.len(), -1, null(), &raw mut imported)
    };
    assert_eq!(nothing(status, imported), ALV_OWN_PROCESS);
    assert_eq!((end(shared, 0), pair.open(&sent, -1, 0)), (ALV_OK, Err(ALV_STALE)));
    drop_shared(shared);
    filled.free(&pair);

    let pinned = Filled::new(&pair, "pinned", 3000, 5);
    assert_eq!(pinned.try_share(&pair, &options(0)), Err(ALV_UNSUPPORTED));
    pinned.free(&pair);
    assert_eq!((figures(&pair.first).imports, pair.its_figures()), (0, (0, 0)));
}

#[test]
fn memory_of_another_device_is_opened_as_a_peer() {
    let first = Sim::new(2);
    let second = first.process();
    let (stream, its_stream) = (first.stream(), second.stream_of(1));
    let its_memory = second.try_recipe("cuda", 1).expect("the recipe is fine");
    let pair = Pair { first, second, stream, its_stream, its_memory };
    let filled = Filled::new(&pair, "cuda", 3000, 5);
    let shared = filled.share(&pair, 0);
    assert_eq!(pair.open(&sent(shared), -1, 0), Err(ALV_DEVICE_MISMATCH));
    let imported = pair.open(&sent(shared), -1, ALV_OPEN_PEER).expect("it is reached");
    let range = range(imported);
    assert_eq!((range.device, range.bytes), (1, 3000));
    drop_imported(imported);
    assert_eq!(end(shared, 0), ALV_OK);
    drop_shared(shared);
    filled.free(&pair);
}

#[test]
fn both_sides_name_the_directory() {
    let pair = Pair::new();
    let folder = std::env::temp_dir().join(format!("alluvion-capi-share-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("there is room");
    let name = CString::new(folder.to_str().expect("it is UTF-8")).expect("no 0 within");
    let filled = Filled::new(&pair, "cuda", 3000, 5);
    let there = ShareOptions { directory: name.as_ptr(), ..options(0) };
    let shared = filled.try_share(&pair, &there).expect("the folder is there");
    let leases = || {
        let rooms = std::fs::read_dir(&folder).expect("it is there").flatten();
        let files = rooms.flat_map(|room| std::fs::read_dir(room.path()).expect("it is there").flatten());
        files.filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("lease-"))).count()
    };
    assert_eq!(leases(), 1);
    assert_eq!(pair.open(&sent(shared), -1, 0), Err(ALV_STALE));
    drop_imported(pair.open_in(&sent(shared), -1, 0, Some(&name)).expect("it is there"));
    assert_eq!(end(shared, 0), ALV_OK);
    drop_shared(shared);
    assert_eq!(leases(), 0);
    std::fs::remove_dir_all(&folder).expect("it is this user's");
    assert_eq!(filled.try_share(&pair, &there), Err(ALV_UNWRITABLE));
    assert_eq!(
        filled.try_share(&pair, &ShareOptions { directory: c"".as_ptr(), ..there }),
        Err(ALV_INVALID_ARGUMENT)
    );
    filled.free(&pair);
}

#[test]
fn a_descriptor_stays_the_callers() {
    let pair = Pair::new();
    let filled = Filled::new(&pair, "mapped(handles=fd)", 3000, 5);
    let shared = filled.share(&pair, 0);
    // SAFETY: a descriptor that is open; the copy is the test's.
    let kept = unsafe { OwnedFd::from_raw_fd(libc::dup(descriptor(shared))) };
    let imported = pair.open(&sent(shared), kept.as_raw_fd(), 0).expect("it is there");
    kept.try_clone().expect("it is still open");
    drop_imported(imported);
    assert_eq!(end(shared, 0), ALV_OK);
    drop_shared(shared);
    filled.free(&pair);
}

#[test]
fn a_block_on_several_pages_goes_by_one_descriptor() {
    let pair = Pair::new();
    // One page is there, of 2 MiB, and the block is longer.
    let filled = Filled::new(&pair, "pool(initial=2MiB) | mapped(handles=fd)", 3 << 20, 5);
    let shared = filled.share(&pair, ALV_SHARE_WRITABLE);
    let imported = pair
        .open(&sent(shared), descriptor(shared), ALV_OPEN_WRITABLE)
        .unwrap_or_else(|_| panic!("{}", message()));
    let range = range(imported);
    assert_eq!((range.bytes, range.visible_bytes), (3 << 20, 4 << 20));
    // SAFETY: a live stream.
    let its_stream = unsafe { alv_stream_handle(pair.its_stream) };
    assert_eq!(copied(pair.its_memory, range.data, 3 << 20, its_stream), [5; 3 << 20]);
    // SAFETY: the memory is open to be written until it is released, which waits for this.
    assert_eq!(unsafe { alv_fill_raw(pair.its_memory, range.data, 6, 3 << 20, its_stream) }, ALV_OK);
    drop_imported(imported);
    assert_eq!(end(shared, 0), ALV_OK);
    assert_eq!(filled.bytes(&pair), [6; 3 << 20]);
    drop_shared(shared);
    filled.free(&pair);
}
