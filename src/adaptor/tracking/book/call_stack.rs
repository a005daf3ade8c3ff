//! `CallStack`: the calls that led to an allocation.

use core::fmt;
use core::hash::{Hash, Hasher};
#[cfg(feature = "backtrace")]
use std::path::Path;

use super::interpreted::InterpretedCalls;
#[cfg(feature = "backtrace")]
use super::interpreted::{self, CaptureCalls};
#[cfg(feature = "backtrace")]
use crate::contain::contain;
use crate::sync::Arc;

/// The allocations whose call stack is captured.
///
/// A capture takes about a microsecond and half a kilobyte; names are looked up later, when they are displayed. It
/// needs the crate's feature `backtrace`. Without it there is `None` only, and [tags](crate::tag::with_tag) label the
/// blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallStacks {
    /// Of no allocation.
    #[default]
    None,
    /// Of every allocation.
    #[cfg(feature = "backtrace")]
    All,
    /// Of the first allocation, and of every `n`-th after it. 0 counts as 1.
    #[cfg(feature = "backtrace")]
    EveryNth(u64),
    /// Of one allocation every so many bytes: of few small blocks, and of every block that is at least as large. 0
    /// counts as 1.
    #[cfg(feature = "backtrace")]
    EveryBytes(u64),
}

#[cfg(feature = "backtrace")]
impl CallStacks {
    /// Takes call stacks of the program that an interpreter runs in the place of native ones, in the whole process, on the threads
    /// that the interpreter knows. The first capture stays: returns whether this one is it.
    ///
    /// `capture` is called on the thread that allocates, with no lock held.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use alluvion::adaptor::{CallSite, CallStacks, InterpretedCalls};
    /// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// #[derive(Debug)]
    /// struct Line(u32);
    ///
    /// impl InterpretedCalls for Line {
    ///     fn calls(&self) -> Vec<CallSite> {
    ///         vec![CallSite::new("load", Some("query.py"), Some(self.0))]
    ///     }
    /// }
    ///
    /// assert!(CallStacks::interpret(|_most| Some(Arc::new(Line(7)))));
    /// let sim = Sim::new();
    /// let tracking = Cuda::new(&sim.device(0)).tracking().call_stacks(CallStacks::All);
    /// let _numbers = DeviceVec::<u8, _>::zeroed_in(100, &sim.device(0).stream()?, &tracking)?;
    /// assert_eq!(tracking.outstanding().by_call_site()[0].label, "load (query.py:7)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn interpret(capture: CaptureCalls) -> bool {
        interpreted::set(capture)
    }
}

/// Which allocations are looked at.
#[derive(Default)]
pub(super) struct Sampler {
    #[cfg(feature = "backtrace")]
    of: CallStacks,
    /// What has passed so far, of what is sampled by: allocations, or bytes.
    #[cfg(feature = "backtrace")]
    passed: crate::sync::AtomicU64,
}

#[cfg(not(feature = "backtrace"))]
impl Sampler {
    pub(super) fn of(CallStacks::None: CallStacks) -> Self {
        Self {}
    }

    #[expect(clippy::unused_self, reason = "with the feature it decides")]
    pub(super) fn captures(&self) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "with the feature it decides")]
    pub(super) fn stack(&self, _: usize) -> Option<CallStack> {
        None
    }
}

#[cfg(feature = "backtrace")]
impl Sampler {
    pub(super) fn of(of: CallStacks) -> Self {
        Self { of, ..Self::default() }
    }

    /// Returns `true` if it captures any calls.
    pub(super) fn captures(&self) -> bool {
        self.of != CallStacks::None
    }

    /// The calls that led here, if it is the turn of this allocation.
    pub(super) fn stack(&self, bytes: usize) -> Option<CallStack> {
        self.takes(bytes as u64).then(CallStack::capture)
    }

    fn takes(&self, bytes: u64) -> bool {
        // Relaxed: how much went before is all that is asked.
        let pass = |amount| self.passed.fetch_add(amount, crate::sync::Ordering::Relaxed);
        match self.of {
            CallStacks::None => false,
            CallStacks::All => true,
            CallStacks::EveryNth(n) => pass(1).is_multiple_of(n.max(1)),
            CallStacks::EveryBytes(step) => {
                let (before, step) = (pass(bytes), step.max(1));
                before / step != before.wrapping_add(bytes) / step
            }
        }
    }
}

/// A call in the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CallSite {
    /// The function that it is in.
    pub function: String,
    /// The file, if the program has debug information.
    pub file: Option<String>,
    /// The line, if the program has debug information.
    pub line: Option<u32>,
}

impl CallSite {
    /// A call in a function, at a line of a file if that is known.
    #[must_use]
    pub fn new(function: &str, file: Option<&str>, line: Option<u32>) -> Self {
        Self { function: function.to_owned(), file: file.map(str::to_owned), line }
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            _ => Ok(()),
        }
    }
}

/// The calls that led to an allocation, the innermost first. Without the feature there is none.
#[derive(Clone)]
#[cfg_attr(not(feature = "backtrace"), allow(dead_code, reason = "nothing is captured"))]
pub(super) enum CallStack {
    /// The addresses of native calls.
    Native(Box<[usize]>),
    /// The calls of a program that an interpreter runs.
    Interpreted(Arc<dyn InterpretedCalls>),
}

/// Two captures of an interpreter are not compared: they are equal if they are one.
impl PartialEq for CallStack {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Native(calls), Self::Native(others)) => calls == others,
            (Self::Interpreted(calls), Self::Interpreted(others)) => Arc::ptr_eq(calls, others),
            _ => false,
        }
    }
}

impl Eq for CallStack {}

impl Hash for CallStack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Native(calls) => calls.hash(state),
            Self::Interpreted(calls) => Arc::as_ptr(calls).cast::<()>().hash(state),
        }
    }
}

impl fmt::Debug for CallStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site() {
            Some(site) => write!(f, "CallStack({site})"),
            None => f.write_str("CallStack"),
        }
    }
}

#[cfg(not(feature = "backtrace"))]
impl CallStack {
    pub(super) fn calls(&self) -> Vec<CallSite> {
        Vec::new()
    }

    pub(super) fn site(&self) -> Option<CallSite> {
        None
    }
}

#[cfg(feature = "backtrace")]
impl CallStack {
    /// As many calls as RMM keeps.
    const MOST: usize = 64;

    /// The calls that led here.
    #[inline(never)]
    pub(super) fn capture() -> Self {
        if let Some(calls) = interpreted::capture(Self::MOST) {
            return Self::Interpreted(calls);
        }
        let mut calls = smallvec::SmallVec::<[usize; Self::MOST]>::new();
        backtrace::trace(|frame| {
            calls.push(frame.ip() as usize);
            calls.len() < Self::MOST
        });
        Self::Native(calls.into_boxed_slice())
    }

    pub(super) fn calls(&self) -> Vec<CallSite> {
        match self {
            Self::Native(calls) => calls.iter().flat_map(|&call| named(call)).collect(),
            Self::Interpreted(calls) => contain(|| calls.calls()).unwrap_or_default(),
        }
    }

    pub(super) fn site(&self) -> Option<CallSite> {
        match self {
            Self::Native(calls) => {
                calls.iter().find_map(|&call| named(call).into_iter().find(|site| !is_below(site)))
            }
            Self::Interpreted(_) => self.calls().into_iter().next(),
        }
    }
}

/// What is at an address: a function, and those that were inlined there before it.
#[cfg(feature = "backtrace")]
fn named(call: usize) -> Vec<CallSite> {
    let mut sites = Vec::new();
    backtrace::resolve(core::ptr::without_provenance_mut(call), |symbol| {
        if let Some(name) = symbol.name() {
            sites.push(CallSite {
                // The alternate form has no hash.
                function: format!("{name:#}"),
                file: symbol.filename().map(|path| path.display().to_string()),
                line: symbol.lineno(),
            });
        }
    });
    sites
}

/// Whether a call is in a crate that lies below every program.
#[cfg(feature = "backtrace")]
fn is_below(call: &CallSite) -> bool {
    match crate_of(&call.function) {
        Some(name) => ["alluvion", "calluvion", "backtrace", "core", "alloc", "std"].contains(&name),
        None => {
            is_of_c(&call.function) || call.file.as_deref().is_some_and(|file| is_file_below(Path::new(file)))
        }
    }
}

/// Whether a function is one of the C library, or of its headers for C++, whose names are shown as the compiler has made them; or
/// what Rust's compiler puts between them.
#[cfg(feature = "backtrace")]
fn is_of_c(function: &str) -> bool {
    let begins = ["alv_", "alluvion_", "_ZN8alluvion", "_ZNK8alluvion", "__rust_"];
    begins.iter().any(|begin| function.starts_with(begin)) || ["rmmAlloc", "rmmRealloc"].contains(&function)
}

/// The crate that a function is of. `None` where the name is not the whole path: debug information of lines alone has the last
/// part of it.
#[cfg(feature = "backtrace")]
fn crate_of(function: &str) -> Option<&str> {
    // A method of a trait is `<crate::Type as crate::Trait>::method`.
    let mut path = function.trim_start_matches(['<', '&', '*', '(', '[']);
    for word in ["mut ", "const ", "dyn "] {
        path = path.strip_prefix(word).unwrap_or(path);
    }
    let (first, _) = path.split_once("::")?;
    // In `last<crate::Type>` the path is of a parameter.
    first.chars().all(|letter| letter.is_alphanumeric() || letter == '_').then_some(first)
}

/// Where this crate's sources are, as debug information says it. A build that maps paths to others (`--remap-path-prefix`) says to which,
/// and then has no path of its machine in it.
#[cfg(feature = "backtrace")]
const SOURCES: &str = match option_env!("ALLUVION_MAPPED_SOURCES") {
    Some(mapped) => mapped,
    None => concat!(env!("CARGO_MANIFEST_DIR"), "/src"),
};

/// Whether a file is a source of such a crate.
#[cfg(feature = "backtrace")]
fn is_file_below(file: &Path) -> bool {
    let parts: Vec<_> = file.iter().filter_map(|part| part.to_str()).collect();
    file.starts_with(SOURCES)
        // The standard library: `/rustc/HASH/library/core/src/..`, or `.../rust/library/core/src/..` where its sources are there.
        || parts.windows(3).any(|part| part[0] == "library" && ["core", "alloc", "std"].contains(&part[1]) && part[2] == "src")
        || parts.windows(2).any(|part| part[0].starts_with("backtrace-") && part[1] == "src")
}

#[cfg(all(test, feature = "backtrace", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_by_number_and_by_size() {
        let taken = |of, bytes: &[u64]| {
            let sampler = Sampler::of(of);
            bytes.iter().map(|&bytes| sampler.takes(bytes)).collect::<Vec<_>>()
        };
        assert_eq!(taken(CallStacks::None, &[1; 2]), [false; 2]);
        assert_eq!(taken(CallStacks::All, &[1; 2]), [true; 2]);
        assert_eq!(taken(CallStacks::EveryNth(3), &[1; 5]), [true, false, false, true, false]);
        assert_eq!(taken(CallStacks::EveryNth(0), &[1; 2]), [true; 2]);
        let bytes = [40, 40, 40, 100, 79, 1, 1000];
        assert_eq!(taken(CallStacks::EveryBytes(100), &bytes), [false, false, true, true, false, true, true]);
        assert_eq!(taken(CallStacks::EveryBytes(0), &[1; 2]), [true; 2]);
    }

    #[test]
    fn what_lies_below_a_program_is_known_by_its_crate() {
        for below in [
            "alluvion::adaptor::register::TrackingBook::enter",
            "<alluvion::adaptor::Tracking<U> as alluvion::resource::Resource>::allocate",
            "<&mut dyn core::ops::FnMut<A> as core::ops::FnOnce<A>>::call_once",
            "std::thread::spawn",
            "backtrace::backtrace::trace",
            "calluvion::allocate::allocate::{{closure}}",
            "alv_allocate_raw",
            "alluvion_torch_malloc",
            "rmmAlloc",
            "__rust_try",
            "_ZNK8alluvion14basic_resourceINS_14default_errorsEE8allocateEmm",
        ] {
            assert!(is_below(&call(below, None)), "{below}");
        }
        for above in [
            "main",
            "app::alluvion::load",
            "<app::Table as core::ops::Drop>::drop",
            "alluvion_cli::main",
            "_ZN3app4loadEv",
            "alvin",
        ] {
            assert!(!is_below(&call(above, None)), "{above}");
        }
    }

    #[test]
    fn what_lies_below_a_program_is_known_by_its_file() {
        let own = format!("{SOURCES}/adaptor/tracking.rs");
        for below in [
            own.as_str(),
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/ops/function.rs",
            "/home/a/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/thread/mod.rs",
            "/home/a/.cargo/registry/src/index/backtrace-0.3.76/src/backtrace/mod.rs",
        ] {
            for function in ["allocate", "allocate<alluvion::source::Null>", "{closure#0}"] {
                assert!(is_below(&call(function, Some(below))), "{below} {function}");
            }
            assert!(!is_below(&call("app::load", Some(below))), "a whole name says it");
        }
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layers/tracking.rs");
        for above in [beside, "/home/a/app/src/library/core.rs", "/home/a/backtrace/src/main.rs"] {
            assert!(!is_below(&call("load<alluvion::source::Null>", Some(above))), "{above}");
        }
        assert!(!is_below(&call("main", None)), "nothing is known of it");
    }

    fn call(function: &str, file: Option<&str>) -> CallSite {
        CallSite { function: function.to_owned(), file: file.map(str::to_owned), line: None }
    }

    #[test]
    fn a_stack_is_captured_and_named() {
        let stack = CallStack::capture();
        let calls = stack.calls();
        let here = "a_stack_is_captured_and_named";
        let call = calls.iter().find(|call| call.function.contains(here)).expect("this function called it");
        assert!(call.file.as_deref().is_some_and(|file| file.ends_with("call_stack.rs")), "{call}");
        assert!(call.line.is_some() && call.to_string().contains("call_stack.rs:"));
        let CallStack::Native(addresses) = &stack else { panic!("no interpreter is here") };
        assert!(addresses.len() <= CallStack::MOST);
    }
}
