//! What a process of these tests does when it is asked to.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each call of the driver has the same reason to be permitted"
)]

use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use alluvion::driver::{
    Driver, DriverResult, EventHandle, ExportedMemory, FillValue, HandleType, Location, MapAccess,
    MemoryHandle, PointerHandle, PoolProperties, RawEvent, RawMemory, RawPool, RawStream, StreamFlags,
};

use super::wire::Message;

/// How long a stream is stalled that nobody lets go: longer than any test waits for it.
const STALL: Duration = Duration::from_secs(120);
/// What `Read` answers for bytes that differ.
pub(crate) const MIXED: u64 = 256;

macro_rules! ops {
    ($($name:ident,)+) => {
        /// What a process can be asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u64)]
        pub(crate) enum Op { $($name),+ }

        const OPS: &[Op] = &[$(Op::$name),+];
    };
}

ops! {
    Allocate, Free, MemoryHandle, MemoryOpen, MemoryClose,
    SharedEvent, PlainEvent, EventHandle, EventOpen, EventDestroy, EventRecord, EventQuery,
    StreamWait, Synchronize, Fill, Read, Stall, Release,
    PoolCreate, PoolDestroy, PoolExport, PoolImport, PoolTrim, PoolExportPointer, PoolImportPointer,
    PoolSetAccess,
    AllocateAsync, FreeAsync,
    MemoryCreate, MemoryRelease, MemoryExport, MemoryImport, Map, Unmap, Granularity,
    Reserve, MapAt, Access, UnmapAt, Unreserve,
    Uuid, Range, Descriptors, Leave,
}

/// One process, or as much of one as a thread can be.
struct Worker {
    driver: Arc<dyn Driver>,
    ordinal: u32,
    stream: RawStream,
    /// Lets the stream go on when it is dropped.
    stall: RefCell<Option<Sender<()>>>,
}

/// Does what it is asked through `socket` until that is closed, or until it is asked to leave: then it returns `true`.
pub(crate) fn serve(driver: Arc<dyn Driver>, ordinal: u32, socket: &UnixStream) -> bool {
    let stream = driver.stream_create(ordinal, StreamFlags::default()).expect("a stream can be made");
    let worker = Worker { driver, ordinal, stream, stall: RefCell::new(None) };
    while let Ok(asked) = Message::receive(socket) {
        let op = OPS[asked.numbers[0] as usize];
        if op == Op::Leave {
            return true;
        }
        let mut answer = Message::of([0; 4]);
        match worker.run(op, asked, &mut answer) {
            Ok(value) => answer.numbers[1] = value,
            Err(error) => answer.numbers[0] = error.code.0.into(),
        }
        let descriptor = answer.descriptor.take();
        if answer.send(socket, descriptor.as_ref().map(std::os::fd::AsFd::as_fd)).is_err() {
            break;
        }
    }
    false
}

impl Worker {
    fn run(&self, op: Op, asked: Message, answer: &mut Message) -> DriverResult<u64> {
        let (driver, ordinal, stream) = (&*self.driver, self.ordinal, self.stream);
        let sharing = driver.sharing().expect("the machine shares memory");
        let [_, a, b, c] = asked.numbers;
        let (pool, memory, event) = (RawPool(a), RawMemory(a), RawEvent(a));
        let handle_type = HandleType(b as u32);
        // SAFETY: the tests ask for what the contract permits, or for what the machine must refuse.
        unsafe {
            match op {
                Op::Allocate => return driver.allocate_device(ordinal, a as usize),
                Op::Free => driver.free_device(ordinal, a)?,
                Op::MemoryHandle => answer.handle = sharing.memory_handle(ordinal, a)?.0,
                Op::MemoryOpen => return sharing.memory_open(ordinal, MemoryHandle(asked.handle)),
                Op::MemoryClose => sharing.memory_close(ordinal, a)?,
                Op::SharedEvent => return sharing.event_create_shared(ordinal).map(|event| event.0),
                Op::PlainEvent => return driver.event_create(ordinal).map(|event| event.0),
                Op::EventHandle => answer.handle = sharing.event_handle(ordinal, event)?.0,
                Op::EventOpen => {
                    return sharing.event_open(ordinal, EventHandle(asked.handle)).map(|event| event.0);
                }
                Op::EventDestroy => driver.event_destroy(ordinal, event)?,
                Op::EventRecord => driver.event_record(ordinal, event, stream)?,
                Op::EventQuery => return driver.event_query(ordinal, event).map(u64::from),
                Op::StreamWait => driver.stream_wait_event(ordinal, stream, event)?,
                Op::Synchronize => driver.stream_synchronize(ordinal, stream)?,
                Op::Fill => driver.fill_async(ordinal, a, FillValue::U8(b as u8), c as usize, stream)?,
                Op::Read => return self.read(a, b as usize),
                Op::Stall => return self.stall(),
                Op::Release => *self.stall.borrow_mut() = None,
                Op::PoolCreate => {
                    let handle_types = HandleType(a as u32);
                    let made = driver.pool_create(ordinal, PoolProperties { handle_types, max_bytes: 0 });
                    return made.map(|pool| pool.0);
                }
                Op::PoolDestroy => driver.pool_destroy(ordinal, pool)?,
                Op::PoolExport => put_into(answer, sharing.pool_export(ordinal, pool, handle_type)?),
                Op::PoolImport => return sharing.pool_import(ordinal, &exported(asked)).map(|pool| pool.0),
                Op::PoolTrim => driver.pool_trim(ordinal, pool, 0)?,
                Op::PoolExportPointer => answer.handle = sharing.pool_export_pointer(ordinal, a)?.0,
                Op::PoolImportPointer => {
                    return sharing.pool_import_pointer(ordinal, pool, PointerHandle(asked.handle));
                }
                Op::PoolSetAccess => {
                    sharing.pool_set_access(b as u32, pool, ordinal, MapAccess::ReadWrite)?;
                }
                Op::AllocateAsync => return driver.allocate_async(ordinal, b as usize, pool, stream),
                Op::FreeAsync => driver.free_async(ordinal, a, stream)?,
                Op::MemoryCreate => {
                    return driver.memory_create(ordinal, a as usize, handle_type).map(|memory| memory.0);
                }
                Op::MemoryRelease => driver.memory_release(ordinal, memory)?,
                Op::MemoryExport => put_into(answer, driver.memory_export(ordinal, memory, handle_type)?),
                Op::MemoryImport => {
                    return sharing.memory_import(ordinal, &exported(asked)).map(|memory| memory.0);
                }
                Op::Map => return self.map(memory, b as usize),
                Op::Unmap => {
                    driver.stream_synchronize(ordinal, stream)?;
                    driver.memory_unmap(ordinal, a, b as usize)?;
                    driver.virtual_free(ordinal, a, b as usize)?;
                }
                Op::Reserve => return driver.virtual_reserve(ordinal, a as usize, 0),
                Op::MapAt => driver.memory_map(ordinal, b, c as usize, memory)?,
                Op::Access => {
                    let here = Location::Device(ordinal);
                    driver.memory_set_access(ordinal, a, b as usize, here, MapAccess::ReadWrite)?;
                }
                Op::UnmapAt => {
                    driver.stream_synchronize(ordinal, stream)?;
                    driver.memory_unmap(ordinal, a, b as usize)?;
                }
                Op::Unreserve => driver.virtual_free(ordinal, a, b as usize)?,
                Op::Granularity => return driver.virtual_granularity(ordinal).map(|bytes| bytes as u64),
                Op::Uuid => answer.handle[..16].copy_from_slice(&sharing.device_uuid(ordinal)?),
                Op::Range => {
                    let range = driver.address_range(a)?;
                    return Ok(range.map_or(0, |range| range.bytes as u64));
                }
                Op::Descriptors => return Ok(descriptors()),
                Op::Leave => unreachable!("it is no call"),
            }
        }
        Ok(0)
    }

    /// The byte that all of the range has.
    fn read(&self, address: u64, bytes: usize) -> DriverResult<u64> {
        let mut into = vec![0xEE_u8; bytes];
        let to = into.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the caller has the memory, and both stay until the wait has succeeded: if it fails, the process is of no use and
        // ends.
        unsafe {
            self.driver.copy_async(self.ordinal, to, address, bytes, self.stream)?;
            if let Err(error) = self.driver.stream_synchronize(self.ordinal, self.stream) {
                into.leak();
                return Err(error);
            }
        }
        let first = into[0];
        Ok(if into.iter().all(|byte| *byte == first) { first.into() } else { MIXED })
    }

    /// Keeps the stream busy until it is told to let go.
    fn stall(&self) -> DriverResult<u64> {
        let (release, released) = channel::<()>();
        let wait = Box::new(move || {
            // An error says that it was let go of, or that the time is over.
            let _ = released.recv_timeout(STALL);
        });
        // SAFETY: the stream is live, and the function does not unwind.
        unsafe { self.driver.stream_host_call(self.ordinal, self.stream, wait) }?;
        *self.stall.borrow_mut() = Some(release);
        Ok(0)
    }

    fn map(&self, memory: RawMemory, bytes: usize) -> DriverResult<u64> {
        let (driver, ordinal) = (&*self.driver, self.ordinal);
        let address = driver.virtual_reserve(ordinal, bytes, 0)?;
        let here = Location::Device(ordinal);
        // SAFETY: the memory is live; the machine refuses a size that is not its own. Nobody uses what fails.
        unsafe {
            if let Err(error) = driver.memory_map(ordinal, address, bytes, memory) {
                driver.virtual_free(ordinal, address, bytes)?;
                return Err(error);
            }
            let access = driver.memory_set_access(ordinal, address, bytes, here, MapAccess::ReadWrite);
            if let Err(error) = access {
                driver.memory_unmap(ordinal, address, bytes)?;
                driver.virtual_free(ordinal, address, bytes)?;
                return Err(error);
            }
        }
        Ok(address)
    }
}

/// What came with the question: a descriptor, or a fabric handle.
fn exported(asked: Message) -> ExportedMemory {
    match asked.descriptor {
        Some(descriptor) => ExportedMemory::FileDescriptor(descriptor),
        None => ExportedMemory::Fabric(Box::new(asked.handle)),
    }
}

fn put_into(answer: &mut Message, exported: ExportedMemory) {
    match exported {
        ExportedMemory::FileDescriptor(descriptor) => answer.descriptor = Some(descriptor),
        ExportedMemory::Fabric(handle) => answer.handle = *handle,
        _ => unreachable!("there are two ways"),
    }
}

/// How many descriptors this process has open, but for the one that the question needs.
fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").expect("it is there").count() as u64 - 1
}
