//! Blocks that have no container: who may free them, and when.

#![expect(unsafe_code, reason = "shares and frees blocks by hand")]

use std::sync::Arc;

use alluvion::share::{SharedBlock, status, sweep};
use alluvion::source::Cuda;
use alluvion::{AnyResource, Device, DevicePtr, DeviceVec, Layout, Resource, Stream};

use crate::rig::Rig;

/// A block of a device, which the test frees.
struct Lent {
    resource: Cuda,
    block: DevicePtr,
    layout: Layout,
}

impl Lent {
    fn new(device: &Device, stream: &Stream) -> Self {
        let (resource, layout) = (Cuda::new(device), Layout::from_bytes(1000).unwrap());
        let block = resource.allocate(layout, stream.as_ref()).unwrap();
        Self { resource, block, layout }
    }

    fn share(&self, rig: &Rig, stream: &Stream) -> SharedBlock {
        // SAFETY: the block is live, and of this resource; the test frees it when its keeper has gone.
        unsafe { SharedBlock::new(&self.resource, self.block, self.layout, rig.share_config(), stream) }
            .unwrap()
    }

    fn free(self, stream: &Stream) {
        // SAFETY: the block came from the resource with this layout, and nobody has it any more.
        unsafe { self.resource.deallocate(self.block, self.layout, stream.as_ref()) };
    }
}

#[test]
fn a_block_that_nobody_has_is_not_parked() {
    let rig = Rig::new();
    let (device, stream) = (rig.first.device(0), rig.first.device(0).stream().unwrap());
    let lent = Lent::new(&device, &stream);
    let keeper = Arc::new(());
    lent.share(&rig, &stream).park(Arc::clone(&keeper));
    assert_eq!((Arc::strong_count(&keeper), status(&device).parked), (1, 0));
    lent.free(&stream);
    drop((device, stream));
    rig.assert_clean();
}

#[test]
fn a_parked_block_can_be_opened_until_nobody_has_it_and_a_share_looks_after_it() {
    let rig = Rig::new();
    let (device, stream) = (rig.first.device(0), rig.first.device(0).stream().unwrap());
    let its_stream = rig.second.device(0).stream().unwrap();
    let lent = Lent::new(&device, &stream);
    let shared = lent.share(&rig, &stream);
    let message = shared.message().clone();
    let first = rig.import(&message, None).open_bytes(&its_stream).unwrap();
    let keeper = Arc::new(());
    shared.park(Arc::clone(&keeper));
    assert_eq!((status(&device).parked, status(&device).parked_bytes), (1, 1000));
    let second = rig.import(&message, None).open_bytes(&its_stream).unwrap();
    drop(first);
    assert_eq!((sweep(&device), Arc::strong_count(&keeper)), (0, 2));
    drop(second);
    // Another share asks after those that wait.
    let other = Lent::new(&device, &stream);
    assert!(other.share(&rig, &stream).try_end().unwrap());
    assert_eq!((Arc::strong_count(&keeper), status(&device).parked), (1, 0));
    assert!(rig.import(&message, None).open_bytes(&its_stream).is_err_and(|error| error.is_stale()));
    lent.free(&stream);
    other.free(&stream);
    drop((device, stream, its_stream));
    rig.assert_clean();
}

/// A keeper that is dropped by a share of something else, which has nothing to do with what it throws.
#[test]
fn a_keeper_that_panics_is_no_matter_of_the_next_share() {
    struct Bomb {
        _counted: Arc<()>,
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let rig = Rig::new();
    let (device, stream) = (rig.first.device(0), rig.first.device(0).stream().unwrap());
    let its_stream = rig.second.device(0).stream().unwrap();
    let (lents, keeper) = ([(); 3].map(|()| Lent::new(&device, &stream)), Arc::new(()));
    let imported = lents.each_ref().map(|lent| {
        let shared = lent.share(&rig, &stream);
        let imported = rig.import(shared.message(), None).open_bytes(&its_stream).unwrap();
        shared.park(Bomb { _counted: Arc::clone(&keeper) });
        imported
    });
    drop(imported);
    let vector = DeviceVec::filled_in(100, 7_u8, &stream, AnyResource::new(Cuda::new(&device))).unwrap();
    let vector = rig.share(vector, &stream).end().unwrap();
    assert_eq!((Arc::strong_count(&keeper), status(&device).parked), (1, 0));
    assert_eq!(vector.to_vec(&stream).unwrap(), [7; 100]);
    lents.into_iter().for_each(|lent| lent.free(&stream));
    drop((vector, device, stream, its_stream));
    rig.assert_clean();
}

#[test]
fn the_keeper_goes_with_a_device_that_is_lost() {
    let rig = Rig::new();
    let (device, stream) = (rig.first.device(0), rig.first.device(0).stream().unwrap());
    let its_stream = rig.second.device(0).stream().unwrap();
    let lent = Lent::new(&device, &stream);
    let shared = lent.share(&rig, &stream);
    let imported = rig.import(shared.message(), None).open_bytes(&its_stream).unwrap();
    rig.first.kill();
    let keeper = Arc::new(());
    shared.park(Arc::clone(&keeper));
    // Nothing runs there any more, and there is nobody to wait for.
    assert_eq!((Arc::strong_count(&keeper), status(&device).parked), (1, 0));
    drop((imported, its_stream));
    rig.second.assert_clean();
}
