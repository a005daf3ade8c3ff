//! A kernel of your own on containers of this crate: PTX on a GPU, a closure on the simulator.

#![expect(unsafe_code, reason = "launches kernels, whose arguments nobody can check")]

mod machine;

use std::error::Error;

use alluvion::sim::Kernel;
use alluvion::{DeviceVec, ReadGuard, Sim, Stream, WriteGuard};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// `y[i] = a * x[i] + y[i]`, for every GPU since 2014.
const SAXPY: &str = "
.version 6.0
.target sm_50
.address_size 64

.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<5>;
    .reg .b64 %d<8>;

    ld.param.u64 %d1, [y];
    ld.param.u64 %d2, [x];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %d3, %d1;
    cvta.to.global.u64 %d4, %d2;
    mul.wide.u32 %d5, %r5, 4;
    add.u64 %d6, %d3, %d5;
    add.u64 %d7, %d4, %d5;
    ld.global.f32 %f2, [%d7];
    ld.global.f32 %f3, [%d6];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%d6], %f4;
DONE:
    ret;
}
";

const COUNT: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let uploads = device.stream()?;
    let xs: Vec<f32> = (0..COUNT).map(|index| index as f32).collect();
    let x = DeviceVec::from_slice(&xs, &uploads)?;
    let mut y = DeviceVec::filled(COUNT, 1.0_f32, &uploads)?;

    match &sim {
        None => on_the_gpu(&x, &mut y)?,
        Some(sim) => on_the_simulator(sim, &device.stream()?, &x, &mut y)?,
    }

    // The stream that reads need not be the one that computed.
    let sums = y.to_vec(&uploads)?;
    assert!(sums.iter().zip(&xs).all(|(sum, x)| *sum == 2.0 * x + 1.0));
    println!("2 x + 1 for {COUNT} elements: {:?} …", &sums[..4]);
    if let Some(sim) = sim {
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    Ok(())
}

/// Launches through cudarc, on a stream of cudarc that this crate has wrapped.
fn on_the_gpu(x: &DeviceVec<f32>, y: &mut DeviceVec<f32>) -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let saxpy = context.load_module(Ptx::from_src(SAXPY))?.load_function("saxpy")?;
    let theirs = context.new_stream()?;
    let ours = Stream::from_cudarc(&theirs)?;

    // The guards say what the kernel does with each vector, and on which stream. They make it wait for the uploads.
    let x = x.read_on(&ours)?.for_cudarc(&theirs)?;
    let mut y = y.write_on(&ours)?.for_cudarc(&theirs)?;
    let (factor, count) = (2.0_f32, COUNT as u32);
    let mut launch = theirs.launch_builder(&saxpy);
    launch.arg(&mut y).arg(&x).arg(&factor).arg(&count);
    // SAFETY: the arguments are those that the kernel declares, and it touches the first `count` elements of
    // the two vectors, which have as many. The views are for this stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
    // The module goes at the end of this function, and must not go under a kernel. The vectors could.
    theirs.synchronize()?;
    Ok(())
}

/// Launches the same work as a closure. The simulator holds it to the ranges that it declares.
fn on_the_simulator(
    sim: &Sim,
    stream: &Stream,
    x: &DeviceVec<f32>,
    y: &mut DeviceVec<f32>,
) -> Result<(), Box<dyn Error>> {
    let (read, write) = (x.read_on(stream)?, y.write_on(stream)?);
    let kernel = saxpy_as_a_closure(&read, &write);
    // SAFETY: the stream is live, because it is borrowed, and of this device. The kernel touches the elements
    // of two vectors for which guards are open on this stream.
    unsafe { sim.launch(0, stream.raw(), kernel) }?;
    Ok(())
}

fn saxpy_as_a_closure(x: &ReadGuard<'_, f32>, y: &WriteGuard<'_, f32>) -> Kernel {
    let (from, to) = (x.as_device_ptr().unguarded().address(), y.as_device_ptr().unguarded().address());
    let bytes = COUNT * size_of::<f32>();
    Kernel::new("saxpy").reads(from, bytes).writes(to, bytes).run(move |memory| {
        for index in 0..COUNT as u64 {
            let x = f32::from_bits(memory.read_u32(from + 4 * index));
            let y = f32::from_bits(memory.read_u32(to + 4 * index));
            memory.write_u32(to + 4 * index, 2.0_f32.mul_add(x, y).to_bits());
        }
    })
}
