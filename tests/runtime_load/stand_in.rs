//! Libraries that stand where a vendor's should: written in C against the vendor's header, with a simulated machine behind them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, process};

use alluvion::driver::Call;
use alluvion::driver::runtime::{Runtime, RuntimeDriver};
use alluvion::sim::{SimConfig, SimDriver};

use crate::machine;

/// A library of one vendor and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StandIn {
    pub(crate) runtime: Runtime,
    pub(crate) major: u32,
    /// Without what the driver can do without, without what it cannot, or without one function: of the name before the `=`.
    pub(crate) lacks: &'static str,
}

impl StandIn {
    pub(crate) const fn new(runtime: Runtime, major: u32) -> Self {
        Self { runtime, major, lacks: "" }
    }

    pub(crate) const fn lacking(self, lacks: &'static str) -> Self {
        Self { lacks, ..self }
    }

    /// Without one function, by its name, which the compiler takes for another one.
    pub(crate) fn without(self, name: &str) -> Self {
        static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let lacks = names.entry(name.to_owned()).or_insert_with(|| format!("{name}=absent").leak());
        self.lacking(lacks)
    }

    /// The folder in which the library lies, by the name that the vendor's has.
    pub(crate) fn folder(self) -> PathBuf {
        let file = self.file();
        file.parent().expect("it is in a folder").to_owned()
    }

    /// The library, built at the first call.
    pub(crate) fn file(self) -> PathBuf {
        static BUILT: Mutex<BTreeMap<StandIn, PathBuf>> = Mutex::new(BTreeMap::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built.entry(self).or_insert_with(|| self.build()).clone()
    }

    /// Builds it where nobody has built it from the same text. It is never put in place of another one: a process that has it open must
    /// find the same file when it opens it once more.
    fn build(self) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runtime_load/c");
        let mut text = DefaultHasher::new();
        numbers_of_calls().hash(&mut text);
        for name in ["stand_in.c", "lent.c", "cudart.h", "hip.h", "maca.h"] {
            fs::read(source.join(name)).expect("it is in the repository").hash(&mut text);
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "runtime_load-{:016x}-{}-{}-{}",
            text.finish(),
            self.runtime,
            self.major,
            self.lacks
        ));
        let file = folder.join(match self.runtime {
            Runtime::Cudart => format!("libcudart.so.{}", self.major),
            Runtime::Hip => format!("libamdhip64.so.{}", self.major),
            _ => "libmcruntime.so".to_owned(),
        });
        if file.is_file() {
            return file;
        }
        let unfinished = folder.join(format!("unfinished-{}", process::id()));
        fs::create_dir_all(&unfinished).expect("the folder is writable");
        fs::write(unfinished.join("calls.h"), numbers_of_calls()).expect("the folder is writable");
        let library = unfinished.join("library");
        let status = Command::new("cc")
            .args(["-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"])
            .arg(format!("-D{}", self.runtime.name().to_uppercase()))
            .arg(format!("-DMAJOR={}", self.major))
            .args((!self.lacks.is_empty()).then(|| format!("-D{}", self.lacks)))
            .args([Path::new("-I"), &source, Path::new("-I"), &unfinished, Path::new("-o"), &library])
            .arg(source.join("stand_in.c"))
            .status()
            .expect("there is a C compiler");
        assert!(status.success());
        // Another process may have been faster.
        if let Err(error) = fs::hard_link(&library, &file) {
            assert!(file.is_file(), "{error}");
        }
        let _ = fs::remove_dir_all(unfinished);
        file
    }

    /// The simulated machine that is behind it: as old as the library says, with what a HIP 5 can say, and knowing
    /// plain allocations, which the driver behind cudart does.
    pub(crate) fn config(self) -> SimConfig {
        let version = match (self.runtime, self.major, self.lacks) {
            (Runtime::Cudart, 12, "LACKS_DRIVER") => 12_000,
            (Runtime::Cudart, 12, _) => 12_080,
            _ => 13_000,
        };
        SimConfig::default().version(version).announced(true)
    }

    /// A driver over it.
    pub(crate) fn load(self) -> Arc<RuntimeDriver> {
        // SAFETY: `stand_in.c` is compiled against the vendor's header.
        unsafe { RuntimeDriver::load_from(self.runtime, &self.file()) }.expect("the stand-in starts")
    }

    /// Puts the machine behind the library, as every library of this process then has it.
    pub(crate) fn put_behind(self, sim: &Arc<SimDriver>, devices: i32) {
        machine::choose(Arc::clone(sim));
        self.tell(machine::answer, devices);
    }

    /// A driver over it that has this simulated process behind it, as have all that the calling thread loads and calls.
    pub(crate) fn load_for_thread(self, process: Arc<SimDriver>, devices: i32) -> Arc<RuntimeDriver> {
        machine::choose_for_thread(process);
        self.tell(machine::answer, devices);
        self.load()
    }

    fn tell(self, answer: machine::Answer, devices: i32) {
        // SAFETY: the library is the stand-in, which is loaded for good; the function has this type.
        unsafe {
            let library = libloading::Library::new(self.file()).expect("it can be loaded");
            let behind: libloading::Symbol<'_, unsafe extern "C" fn(machine::Answer, i32)> =
                library.get(b"stand_in_behind\0").expect("the stand-in has it");
            behind(answer, devices);
            std::mem::forget(library);
        }
    }

    /// A function of the stand-in that no vendor's library has, or one that a program would call.
    pub(crate) fn function<F: Copy>(self, name: &str) -> F {
        // SAFETY: the library is the stand-in, which is loaded for good; the caller knows the type of its functions.
        unsafe {
            let library = libloading::Library::new(self.file()).expect("it can be loaded");
            let function = *library.get::<F>(name.as_bytes()).expect("the stand-in has it");
            std::mem::forget(library);
            function
        }
    }
}

/// A header that has the numbers of the calls.
fn numbers_of_calls() -> String {
    Call::ALL.iter().map(|&call| format!("#define CALL_{call:?} {}\n", call as u8)).collect()
}
