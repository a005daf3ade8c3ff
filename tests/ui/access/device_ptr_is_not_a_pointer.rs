//! `DevicePtr`: "nothing in safe code can read through it".

use alluvion::DevicePtr;

fn main() {
    let block = DevicePtr::new(0x1000).unwrap();
    let _byte: u8 = *block;
}
