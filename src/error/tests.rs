use super::*;
use crate::driver::{Call, Code, DevicePtr, DriverError};

fn report(upstream_error: Option<Error>) -> OutOfMemory {
    OutOfMemory {
        live_bytes: 8 << 20,
        reserved_bytes: 8 << 20,
        upstream_error,
        is_of_suballocator: true,
        ..OutOfMemory::new("Pool", 4 << 20)
    }
}

#[test]
fn a_report_is_told_and_said() {
    let driver = Error::of_driver(DriverError::new(Call::AllocateDevice, Code::OUT_OF_MEMORY), 4 << 20);
    let error = Error::from(report(Some(driver)));
    assert!(error.is_out_of_memory() && error.requested_bytes() == Some(4 << 20) && error.limit().is_none());
    assert_eq!((error.call(), error.code()), (Some(Call::AllocateDevice), Some(Code::OUT_OF_MEMORY)));
    assert_eq!(error.out_of_memory_report().map(|report| report.live_bytes), Some(8 << 20));
    let said = error.to_string();
    assert!(said.starts_with("out of memory: Pool refused 4 MiB: all is in use here"), "{said}");
    assert_eq!(said.matches("cuMemAlloc").count(), 1, "{said}");
    assert!(error.unsupported_detail().is_none() && error.misuse().is_none());
    // A suballocator over that one.
    let over_it = Error::from(report(Some(error)));
    let upstream = over_it.out_of_memory_report().and_then(|report| report.upstream_error.as_ref());
    assert!(upstream.is_some_and(|upstream| upstream.out_of_memory_report().is_some()));
    assert_eq!(over_it.call(), Some(Call::AllocateDevice));
}

#[test]
fn a_report_tells_its_limit() {
    let error = Error::from(OutOfMemory { maximum_bytes: Some(8 << 20), ..report(None) });
    assert_eq!((error.limit(), error.call()), (Some(8 << 20), None));
    assert!(error.to_string().ends_with("limit 8 MiB"), "{error}");
    assert!(Error::out_of_memory(1).out_of_memory_report().is_none());
}

#[test]
fn a_limit_has_a_name() {
    let report = OutOfMemory {
        name: Some("jobs".into()),
        live_bytes: 768,
        maximum_bytes: Some(1024),
        ..OutOfMemory::new("Budget", 512)
    };
    let error = Error::from(report.explained());
    assert!(error.is_out_of_memory() && error.out_of_memory_report().is_some());
    assert_eq!((error.requested_bytes(), error.limit()), (Some(512), Some(1024)));
    assert_eq!(error.limit_name(), Some("jobs"));
    let said =
        "out of memory: Budget `jobs` refused 512 B: more than the limit leaves; live 768 B, limit 1 KiB";
    assert_eq!(error.to_string(), said);
    assert_eq!(Error::over_limit(512, 1024).limit_name(), None);
}

#[test]
fn sizes_are_said_in_one_style() {
    let cases = [
        (Error::out_of_memory(9 << 20), "out of memory: 9 MiB wanted"),
        (Error::over_limit(9 << 20, 1000), "out of memory: 9 MiB wanted, the limit is 1000 B"),
        (
            Error::over_limit((9 << 20) + 1, 9 << 20),
            "out of memory: 9.0 MiB (9437185 B) wanted, the limit is 9 MiB",
        ),
    ];
    for (error, said) in cases {
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn misuse_is_told_and_said() {
    let block = DevicePtr::new(0x1000).expect("it is not null");
    let cases = [
        (MisuseKind::DoubleFree, "and are free already"),
        (MisuseKind::WrongSize { allocated_bytes: 512 }, "where 512 B were allocated"),
        (MisuseKind::ForeignPointer, "and did not come from here"),
        (MisuseKind::InteriorPointer { block }, "from the middle of the block at 0x1000"),
    ];
    for (what, said) in cases {
        let misuse = Misuse { block: block.offset(256), bytes: 300, what };
        let error = Error::of_misuse(misuse);
        assert_eq!((error.kind(), error.misuse()), (ErrorKind::Misuse, Some(&misuse)));
        assert_eq!(error.to_string(), format!("misuse: 300 B at 0x1100 were given back, {said}"));
        assert!(error.out_of_memory_report().is_none() && error.requested_bytes().is_none());
    }
}

/// An error of others, which counts how often it is dropped, and panics then.
#[derive(Debug)]
struct Theirs {
    _alive: std::sync::Arc<()>,
}

impl core::fmt::Display for Theirs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("theirs")
    }
}

impl core::error::Error for Theirs {}

impl Drop for Theirs {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

#[test]
fn a_foreign_error_is_found_whatever_lies_around_it() {
    use core::error::Error as _;

    let alive = std::sync::Arc::new(());
    let error = Error::foreign(Theirs { _alive: std::sync::Arc::clone(&alive) });
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Foreign, "foreign error: theirs".to_owned()));
    assert!(error.is_foreign() && error.is_final() && !error.is_out_of_memory());
    // A lack of memory with it behind, of a suballocator over that, at a place of a text.
    let lack = Error::from(report(Some(error.clone())));
    let over_it = Error::from(report(Some(lack.clone())));
    let pointing = Error::pointing("pool | cuda", 0..4, over_it.to_string(), Some(over_it.clone()));
    for error in [&error, &lack, &over_it, &pointing] {
        assert!(error.foreign_error().is_some_and(|error| error.is::<Theirs>()), "{error}");
        assert!(error.source().is_some_and(|error| error.is::<Theirs>()), "{error}");
        assert!(error.to_string().contains("theirs"), "{error}");
    }
    assert!(lack.is_out_of_memory() && !lack.is_foreign() && !lack.is_final());
    drop((error, lack, over_it, pointing));
    assert_eq!(std::sync::Arc::strong_count(&alive), 1, "it went, and its panic went nowhere");
    assert!(Error::out_of_memory(1).foreign_error().is_none() && Error::out_of_memory(1).source().is_none());
}

#[test]
fn a_driver_that_is_not_there_is_named_once() {
    let error = Error::no_driver("libcuda is not installed", "simulate a machine");
    assert_eq!(error.to_string(), "no driver: libcuda is not installed; simulate a machine");
    assert_eq!(error.unsupported_detail().map(|said| said.instead), Some("simulate a machine"));
}
