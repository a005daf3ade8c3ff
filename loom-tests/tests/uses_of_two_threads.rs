//! Two uses of one block, entered by two threads: the block is given back behind both.

use std::sync::Arc;

use alluvion::{DeviceVec, Stream};
use loom::thread;
use loom_tests::{Behind, Rig, Work, explore_bounded};

const USES: [Work; 2] = [Work(0), Work(1)];
const NEXT: Work = Work(2);

fn read(rig: &Rig, vector: &DeviceVec<u8, Behind>, stream: &Stream, work: Work) {
    let guard = vector.read_on(stream.as_ref()).expect("nothing fails");
    rig.submit(stream.as_ref(), work);
    drop(guard);
}

#[test]
fn a_block_is_given_back_behind_both() {
    // All schedules would take minutes; with three preemptions they take seconds.
    explore_bounded(Some(3), || {
        let rig = Rig::new();
        let (home, first, second) = (rig.stream(), rig.stream(), rig.stream());
        let resource = Behind::new(&rig, NEXT, &USES);
        let vector = DeviceVec::<u8, _>::uninit_in(256, home.as_ref(), resource).expect("there is room");
        let vector = Arc::new(vector);
        let reading = {
            let (rig, vector) = (rig.clone(), Arc::clone(&vector));
            thread::spawn(move || read(&rig, &vector, &first, USES[0]))
        };
        read(&rig, &vector, &second, USES[1]);
        // The last one of the two gives it back.
        drop(vector);
        reading.join().unwrap();
        assert_eq!(rig.mock.host_waits(), 0, "the device waits");
        rig.mock.assert_no_mistakes();
    });
}
