use super::*;
use crate::driver::{Call, Code, DevicePtr, DriverError};

fn report(upstream_error: Option<Error>) -> OutOfMemory {
    OutOfMemory {
        requested_bytes: 4 << 20,
        align: 256,
        stream: None,
        attempt: 1,
        live_bytes: 8 << 20,
        free_bytes: 0,
        pending_bytes: 0,
        reserved_bytes: 8 << 20,
        largest_bytes: 0,
        maximum_bytes: None,
        upstream_memory: None,
        upstream_error,
        snapshot_file: None,
        cause: Cause::Full,
    }
}

#[test]
fn a_report_is_told_and_said() {
    let driver = Error::of_driver(DriverError::new(Call::AllocateDevice, Code::OUT_OF_MEMORY), 4 << 20);
    let error = Error::with_report(report(Some(driver)));
    assert!(error.is_out_of_memory() && error.requested_bytes() == Some(4 << 20) && error.limit().is_none());
    assert_eq!((error.call(), error.code()), (Some(Call::AllocateDevice), Some(Code::OUT_OF_MEMORY)));
    assert_eq!(error.out_of_memory_report().map(|report| report.live_bytes), Some(8 << 20));
    let said = error.to_string();
    assert!(said.starts_with("out of memory: 4 MiB wanted: all is in use here"), "{said}");
    assert_eq!(said.matches("cuMemAlloc").count(), 1, "{said}");
    assert!(error.unsupported_detail().is_none() && error.misuse().is_none());
    // A suballocator over that one.
    let over_it = Error::with_report(report(Some(error)));
    let upstream = over_it.out_of_memory_report().and_then(|report| report.upstream_error.as_ref());
    assert!(upstream.is_some_and(|upstream| upstream.out_of_memory_report().is_some()));
    assert_eq!(over_it.call(), Some(Call::AllocateDevice));
}

#[test]
fn a_report_tells_its_limit() {
    let error = Error::with_report(OutOfMemory { maximum_bytes: Some(8 << 20), ..report(None) });
    assert_eq!((error.limit(), error.call()), (Some(8 << 20), None));
    assert!(error.to_string().ends_with("limit 8 MiB"), "{error}");
    assert!(Error::out_of_memory(1).out_of_memory_report().is_none());
}

#[test]
fn a_limit_has_a_name() {
    let error = Error::over_limit_of("jobs", 512, 1024, 768);
    assert!(error.is_out_of_memory() && error.out_of_memory_report().is_none());
    assert_eq!((error.requested_bytes(), error.limit()), (Some(512), Some(1024)));
    assert_eq!((error.limit_name(), error.limit_used_bytes()), (Some("jobs"), Some(768)));
    let said = "out of memory: 512 bytes wanted, the limit is 1024: `jobs` has 768 out";
    assert_eq!(error.to_string(), said);
    assert_eq!(Error::over_limit(512, 1024).limit_name(), None);
}

#[test]
fn misuse_is_told_and_said() {
    let block = DevicePtr::new(0x1000).expect("it is not null");
    let cases = [
        (MisuseKind::DoubleFree, "and are free already"),
        (MisuseKind::WrongSize { allocated_bytes: 512 }, "where 512 were allocated"),
        (MisuseKind::ForeignPointer, "and did not come from here"),
        (MisuseKind::InteriorPointer { block }, "from the middle of the block at 0x1000"),
    ];
    for (what, said) in cases {
        let misuse = Misuse { block: block.offset(256), bytes: 300, what };
        let error = Error::of_misuse(misuse);
        assert_eq!((error.kind(), error.misuse()), (ErrorKind::Misuse, Some(&misuse)));
        assert_eq!(error.to_string(), format!("misuse: 300 bytes at 0x1100 were given back, {said}"));
        assert!(error.out_of_memory_report().is_none() && error.requested_bytes().is_none());
    }
}
