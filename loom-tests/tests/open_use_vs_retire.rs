//! An open use against retire: a guard that was leaked lasts up to whatever its stream has come to, also while the last handle
//! of the stream goes.

use alluvion::DeviceVec;
use loom::thread;
use loom_tests::{Behind, Rig, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

#[test]
fn a_block_is_given_back_behind_a_use_that_is_still_open() {
    explore(|| {
        let rig = Rig::new();
        let (home, other) = (rig.stream(), rig.stream());
        let resource = Behind::new(&rig, NEXT, &[USE]);
        let vector = DeviceVec::<u8, _>::uninit_in(256, home.as_ref(), resource).expect("there is room");
        core::mem::forget(vector.read_on(other.as_ref()).expect("nothing fails"));
        rig.submit(other.as_ref(), USE);
        let ending = thread::spawn(move || drop(other));
        drop(vector);
        ending.join().unwrap();
        assert_eq!(rig.mock.host_waits(), 0, "the device waits");
        rig.mock.assert_no_mistakes();
    });
}
