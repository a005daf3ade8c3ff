//! Two kernels for a GPU: one that takes its time and then writes, one that counts what is not as it was written.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "launches kernels")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use alluvion::{DevicePtr, StreamRef};
use cudarc::driver::{CudaContext, result, sys};

use crate::gpu_module::{self, WAIT, raw};

/// A launch has a thread for each word.
fn text() -> String {
    format!(
        "
.visible .entry write_late(.param .u64 words, .param .u32 count, .param .u32 value, .param .u64 nanoseconds)
{{
    .reg .pred %beyond;
    .reg .b32 %block, %width, %thread, %index, %count, %word;
    .reg .b64 %base, %offset, %address, %wait;
    ld.param.u64 %base, [words];
    ld.param.u32 %count, [count];
    ld.param.u32 %word, [value];
    ld.param.u64 %wait, [nanoseconds];
    {WAIT}
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %width, %thread;
    setp.ge.u32 %beyond, %index, %count;
    @%beyond bra done;
    cvta.to.global.u64 %address, %base;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %address, %address, %offset;
    st.global.u32 [%address], %word;
done:
    ret;
}}
.visible .entry count_others(.param .u64 words, .param .u32 count, .param .u32 value, .param .u64 counter)
{{
    .reg .pred %beyond, %same;
    .reg .b32 %block, %width, %thread, %index, %count, %word, %found;
    .reg .b64 %base, %offset, %address, %others;
    ld.param.u64 %base, [words];
    ld.param.u32 %count, [count];
    ld.param.u32 %word, [value];
    ld.param.u64 %others, [counter];
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %width, %thread;
    setp.ge.u32 %beyond, %index, %count;
    @%beyond bra done;
    cvta.to.global.u64 %address, %base;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %address, %address, %offset;
    ld.global.u32 %found, [%address];
    setp.eq.u32 %same, %found, %word;
    @%same bra done;
    cvta.to.global.u64 %address, %others;
    red.global.add.u32 [%address], 1;
done:
    ret;
}}
"
    )
}

/// The kernels, loaded. They stay so: the process is short.
pub(crate) struct Kernels {
    context: Arc<CudaContext>,
    /// Addresses of the driver's functions, since its pointers stay on one thread.
    write_late: usize,
    count_others: usize,
}

impl Kernels {
    /// Loads both, and launches each once: the first launch may wait for the device.
    pub(crate) fn load() -> Self {
        let context = CudaContext::new(0).expect("these tests need a GPU");
        context.bind_to_thread().expect("the context lives");
        let module = gpu_module::load(&text());
        let function = |name: &str| gpu_module::function(module, name).expose_provenance();
        let kernels =
            Self { write_late: function("write_late"), count_others: function("count_others"), context };
        let device = alluvion::Device::named("0").expect("these tests need a GPU");
        let stream = device.stream().expect("a stream can be made");
        let nowhere = DevicePtr::new(256).expect("it is not null");
        kernels.write_late(stream.as_ref(), nowhere, 0, 0, Duration::ZERO);
        kernels.count_others(stream.as_ref(), nowhere, 0, 0, nowhere);
        stream.synchronize().expect("kernels without a word do nothing");
        kernels
    }

    /// Queues writing `word` over `count` words, which begins after `wait`.
    pub(crate) fn write_late(
        &self,
        stream: StreamRef<'_>,
        words: DevicePtr,
        count: usize,
        word: u32,
        wait: Duration,
    ) {
        let mut last = wait.as_nanos() as u64;
        self.launch(self.write_late, stream, words, count, word, &mut last);
    }

    /// Queues counting, at `others`, those of `count` words that are not `word`.
    pub(crate) fn count_others(
        &self,
        stream: StreamRef<'_>,
        words: DevicePtr,
        count: usize,
        word: u32,
        others: DevicePtr,
    ) {
        self.launch(self.count_others, stream, words, count, word, &mut others.address());
    }

    fn launch(
        &self,
        function: usize,
        stream: StreamRef<'_>,
        words: DevicePtr,
        count: usize,
        mut word: u32,
        last: &mut u64,
    ) {
        let mut address = words.address();
        let mut length = u32::try_from(count).expect("a test has fewer words");
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut address).cast(),
            (&raw mut length).cast(),
            (&raw mut word).cast(),
            ptr::from_mut(last).cast(),
        ];
        self.context.bind_to_thread().expect("the context lives");
        let function: sys::CUfunction = ptr::with_exposed_provenance_mut(function);
        let blocks = length.div_ceil(256).max(1);
        // SAFETY: the arguments are those of the kernel; the test keeps the memory until the stream has been waited for.
        unsafe {
            result::launch_kernel(function, (blocks, 1, 1), (256, 1, 1), 0, raw(stream), &mut arguments)
        }
        .expect("it can be launched");
    }
}
