//! `alluvion doctor` from outside: on a simulated GPU, and on machines whose driver is missing, old, a stub or broken.

#[path = "../../tests/cuda_load/libraries.rs"]
mod libraries;
mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use program::{refused, text};
use serde_json::Value;

/// The libcuda that the library's own tests load: no GPU is behind it, and it fails as it is told to.
static STUB: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cuda_load/libcuda.rs");
    libraries::build(&source, libraries::directory("doctor-stub"), &[])
});

static NOTHING: LazyLock<PathBuf> =
    LazyLock::new(|| libraries::nothing(libraries::directory("doctor-nothing")));

/// One whose device is a part of a GPU.
#[cfg(target_os = "linux")]
static PART: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cuda_load/shared_gpu.rs");
    libraries::build(&source, libraries::directory("doctor-part"), &[])
});

/// What it says with that libcuda. It is no failure that there is no GPU.
fn without_gpu(library: &Path, variables: &[(&str, &str)]) -> (String, Value) {
    let (page, json) = with_library(library, variables);
    assert!(page.contains("No GPU was examined"), "{page}");
    (page, json)
}

/// What it says with that libcuda, as a page and as JSON. It is no failure that something is missing.
fn with_library(library: &Path, variables: &[(&str, &str)]) -> (String, Value) {
    let run = |arguments: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_alluvion"))
            .args(arguments)
            .env("LD_LIBRARY_PATH", library)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("ALLUVION_DRIVER")
            .envs(variables.iter().copied())
            .output()
            .expect("the program starts")
    };
    let [page, json] = [&["doctor"][..], &["doctor", "--json"]].map(|arguments| {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{variables:?}: {errors}");
        assert!(errors.is_empty(), "{errors}");
        String::from_utf8(output.stdout).expect("it prints text")
    });
    assert!(!page.contains('\x1b'), "{page}");
    (page, serde_json::from_str(&json).expect("it is JSON"))
}

/// The finding of that name.
fn finding<'v>(findings: &'v Value, name: &str) -> &'v Value {
    let list = findings.as_array().expect("a list of findings");
    list.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("{name} in {findings}"))
}

#[test]
fn help_has_examples() {
    let help = text(&["doctor", "--help"]);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn what_is_not_understood_is_said() {
    assert!(refused(2, &["doctor", "--driver", "rocm"]).contains("rocm"));
    assert!(refused(2, &["doctor", "now"]).contains("now"));
}

#[test]
fn a_variable_that_names_no_driver_is_said() {
    let output = Command::new(env!("CARGO_BIN_EXE_alluvion"))
        .args(["doctor", "--json"])
        .env("ALLUVION_DRIVER", "rocm")
        .env("LD_LIBRARY_PATH", &*NOTHING)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let driver = finding(&json["driver"]["findings"], "driver");
    assert_eq!(
        (&driver["verdict"], &driver["advice"]),
        (&"failed".into(), &"name one of cuda, cudart, hip, maca".into())
    );
    let detail = driver["detail"].as_str().expect("a finding has a detail");
    assert!(detail.contains("ALLUVION_DRIVER: there is no driver `rocm`"), "{detail}");
}

#[test]
fn a_simulated_gpu_is_examined() {
    let page = text(&["doctor", "--driver", "sim"]);
    assert!(page.starts_with("driver  sim, CUDA 13.0\n"), "{page}");
    let json: Value =
        serde_json::from_str(&text(&["doctor", "--driver", "sim", "--json"])).expect("it is JSON");
    let device = &json["devices"][0];
    assert_eq!((&device["compute"], &device["pci"]), (&"9.0".into(), &"0000:01:00.0".into()));
    assert_eq!(device["total_bytes"], 256 << 20);
    for (name, verdict) in [
        ("memory pools", "ok"),
        ("virtual memory", "ok"),
        ("export as a file descriptor", "ok"),
        ("export as a fabric handle", "missing"),
        ("allocation while capturing", "ok"),
        ("auto", "ok"),
    ] {
        let finding = finding(&device["findings"], name);
        assert_eq!(finding["verdict"], verdict, "{finding}");
        assert_eq!(finding.get("advice").is_some(), verdict == "missing", "{finding}");
        if name == "virtual memory" {
            let detail = finding["detail"].as_str().expect("a finding has a detail");
            assert!(detail.contains("2048 KiB") && detail.contains("`Mapped` can be used"), "{finding}");
        }
        if name == "auto" {
            assert_eq!(finding["detail"], "pool | mapped: a page of it can be mapped");
        }
        let line = format!("  {verdict:<7}  {name}");
        assert!(page.lines().any(|printed| printed.starts_with(&line)), "{page}");
    }
}

#[test]
fn a_machine_without_a_driver_is_told_what_to_install() {
    let (page, json) = without_gpu(&NOTHING, &[]);
    let driver = finding(&json["driver"]["findings"], "driver");
    assert_eq!(driver["verdict"], "missing");
    assert!(
        page.contains("libcuda is not installed") && page.contains("install the NVIDIA driver"),
        "{page}"
    );
    assert!(json["driver"].get("name").is_none() && json["devices"] == Value::Array(Vec::new()));
}

#[test]
fn the_other_drivers_are_listed() {
    let (page, json) = without_gpu(&NOTHING, &[]);
    assert!(page.contains("other drivers\n"), "{page}");
    for name in ["cudart", "hip", "maca"] {
        let other = finding(&json["other_drivers"], name);
        assert_eq!(other["verdict"], "note", "{other}");
        let line = format!("  note     {name}");
        assert!(page.lines().any(|printed| printed.starts_with(&line)), "{page}");
    }
    // A simulated machine is the same everywhere.
    let page = text(&["doctor", "--driver", "sim"]);
    assert!(!page.contains("other drivers"), "{page}");
}

#[test]
fn a_runtime_library_that_is_not_there_is_told_so() {
    // Where the libraries are installed, this says nothing: the page is another one.
    for (name, library) in [("hip", "libamdhip64"), ("maca", "libmcruntime")] {
        let output = Command::new(env!("CARGO_BIN_EXE_alluvion"))
            .args(["doctor", "--driver", name])
            .output()
            .expect("the program starts");
        let page = String::from_utf8(output.stdout).expect("it prints text");
        if page.starts_with("driver  none that works") {
            assert!(page.contains(library) && page.contains("install"), "{page}");
            assert!(!page.contains("nvidia module"), "{page}");
        }
    }
}

#[test]
fn a_stub_and_an_old_driver_are_called_so() {
    let (page, _) = without_gpu(&STUB, &[("STUB_CODE", "34")]);
    assert!(page.contains("is a stub") && page.contains("off the library path"), "{page}");
    let (page, _) = without_gpu(&STUB, &[("STUB_VERSION", "11080")]);
    assert!(page.contains("older than CUDA 12.0") && page.contains("525 or later"), "{page}");
}

#[test]
fn a_driver_without_a_device_says_where_it_may_be() {
    let (page, json) = without_gpu(&STUB, &[("STUB_CODE", "100")]);
    assert_eq!(finding(&json["driver"]["findings"], "device")["verdict"], "missing");
    assert!(page.contains("nvidia-smi"), "{page}");
    let (page, _) = without_gpu(&STUB, &[("STUB_CODE", "100"), ("CUDA_VISIBLE_DEVICES", "7")]);
    assert!(page.contains("CUDA_VISIBLE_DEVICES is `7`"), "{page}");
}

#[test]
fn a_driver_that_does_not_fit_its_module_is_told_so() {
    for (code, words) in [("999", "nvidia-uvm"), ("803", "differ in version")] {
        let (page, _) = without_gpu(&STUB, &[("STUB_CODE", code)]);
        assert!(page.contains(words), "{page}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_part_of_a_gpu_is_told_what_it_lacks() {
    let every = [
        "device memory",
        "memory pools",
        "virtual memory",
        "managed memory",
        "plain memory, exported",
        "a pool, exported",
        "export as a file descriptor",
        "graph capture",
        "allocation while capturing",
    ];
    for (machine, has) in [
        (
            "mig",
            &[
                "memory pools",
                "virtual memory",
                "managed memory",
                "export as a file descriptor",
                "allocation while capturing",
            ][..],
        ),
        ("vgpu", &[]),
    ] {
        let (page, json) = with_library(&PART, &[("STUB_MACHINE", machine)]);
        let findings = &json["devices"][0]["findings"];
        for name in every {
            let finding = finding(findings, name);
            let can = has.contains(&name) || ["device memory", "graph capture"].contains(&name);
            let verdict = if can { "ok" } else { "missing" };
            assert_eq!(finding["verdict"], verdict, "{machine}: {finding}");
            assert_eq!(finding.get("advice").is_some(), !can, "{machine}: {finding}");
        }
        assert!(!page.contains("failed"), "{page}");
    }
}
