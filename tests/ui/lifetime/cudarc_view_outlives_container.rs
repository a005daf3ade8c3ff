//! A view for cudarc cannot outlive what it shows.

use std::sync::Arc;

use alluvion::interop::cudarc::CudarcView;
use alluvion::{DeviceVec, StreamRef};
use cudarc::driver::CudaStream;

fn view<'a>(theirs: &Arc<CudaStream>, ours: StreamRef<'a>) -> CudarcView<'a, u8> {
    let vector = DeviceVec::<u8>::zeroed(4, ours).unwrap();
    vector.read_on(ours).unwrap().for_cudarc(theirs).unwrap()
}

fn main() {}
