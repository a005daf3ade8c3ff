//! Kernels that take their time and then do what a GPU does not forgive: each loses the context that it runs in.

#![expect(unsafe_code, reason = "launches kernels")]

use std::ffi::c_void;
use std::time::Duration;

use alluvion::DevicePtr;
use cudarc::driver::{result, sys};

use crate::gpu_module::{self, WAIT};

/// What a kernel does wrong.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// What the module has beside the kernel.
    beside: &'static str,
    body: &'static str,
}

/// One of each kind that safe tools bring about: what the driver answers to them is for the tests to find out.
pub(crate) const FAULTS: [Fault; 6] = [
    Fault {
        name: "address",
        beside: "",
        body: "mov.u64 %address, 4096;
    st.global.u32 [%address], 1;",
    },
    Fault { name: "misaligned", beside: "", body: "st.global.u32 [%base+1], 1;" },
    Fault { name: "trap", beside: "", body: "trap;" },
    Fault {
        name: "assertion",
        beside: ".extern .func __assertfail
(.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 function, .param .b64 width);
.global .align 1 .b8 message_text[3] = {110, 111, 0};",
        body: "mov.u64 %address, message_text;
    cvta.global.u64 %address, %address;
    {
    .param .b64 message;
    .param .b64 file;
    .param .b32 line;
    .param .b64 function;
    .param .b64 width;
    st.param.b64 [message], %address;
    st.param.b64 [file], %address;
    st.param.b32 [line], 1;
    st.param.b64 [function], %address;
    st.param.b64 [width], 1;
    call.uni __assertfail, (message, file, line, function, width);
    }",
    },
    Fault {
        name: "shared",
        beside: "",
        body: "mov.u32 %word, 16777216;
    st.shared.u32 [%word], 1;",
    },
    // Data in the place of a function.
    Fault {
        name: "counter",
        beside: "",
        body: "mov.u64 %address, %base;
shape: .callprototype _ ();
    call %address, (), shape;",
    },
];

/// One thread.
fn text(fault: &Fault) -> String {
    let Fault { beside, body, .. } = fault;
    format!(
        "
{beside}
.visible .entry fail(.param .u64 words, .param .u64 nanoseconds)
{{
    .reg .b32 %word;
    .reg .b64 %base, %wait, %address;
    ld.param.u64 %base, [words];
    ld.param.u64 %wait, [nanoseconds];
    {WAIT}
    {body}
    ret;
}}
"
    )
}

impl Fault {
    /// The one of that name.
    pub(crate) fn named(name: &str) -> &'static Self {
        FAULTS.iter().find(|fault| fault.name == name).expect("there is a fault of that name")
    }

    /// Loads the kernel into the context that is current. It stays loaded, as long as that lives.
    pub(crate) fn load(&self) -> sys::CUfunction {
        gpu_module::function(gpu_module::load(&text(self)), "fail")
    }
}

/// Queues the kernel, which goes wrong after `wait`. `words` are memory of the device, or null where the fault needs none.
pub(crate) fn launch(
    function: sys::CUfunction,
    stream: sys::CUstream,
    words: Option<DevicePtr>,
    wait: Duration,
) {
    let mut address = words.map_or(0, DevicePtr::address);
    let mut nanoseconds = wait.as_nanos() as u64;
    let mut arguments: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut nanoseconds).cast()];
    // SAFETY: the arguments are those of the kernel. What it does loses its context and nothing else.
    unsafe { result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream, &mut arguments) }
        .expect("it can be launched");
}
