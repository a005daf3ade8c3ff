//! A program whose tests are told nothing by the environment of whoever runs them: a container without a resource of its own takes that
//! which `ALLUVION_RESOURCE` names.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "changes the environment, before there is a second thread")]

/// What names a resource, or has one write a file. Not `ALLUVION_DRIVER`: that says which driver is tested on a GPU.
const NAMES: [&str; 3] = ["ALLUVION_RESOURCE", "ALLUVION_LOG_FILE", "RMM_LOG_FILE"];

extern "C" fn forget() {
    // The child of a test has the variables that its test gives it.
    if std::env::var_os("ALLUVION_TEST_CHILD").is_some() {
        return;
    }
    for name in NAMES {
        // SAFETY: nobody reads or writes the environment meanwhile: the loader calls this before `main`, when there is one thread.
        unsafe { std::env::remove_var(name) };
    }
}

// The loader calls what this section lists: pointers to functions of C, of which this is one. What it passes to them is not read.
#[used]
#[unsafe(link_section = ".init_array")]
static FORGET: extern "C" fn() = forget;
