//! What a page of metrics says of shared memory: each figure through the whole life of a share, in both processes.

use alluvion::metrics::Metrics;
use alluvion::share::{status, sweep};
use alluvion::{AnyResource, Device, DeviceVec, Error, source::Cuda};

use crate::rig::{Rig, sent, ways};

/// Imports, their bytes, parked containers, and theirs, as the page of a device has them; it has nothing else.
#[track_caller]
fn figures(device: &Device) -> [u64; 4] {
    let mut page = Metrics::new();
    page.add_sharing(device);
    // Of one device it is there once.
    page.add_sharing(device);
    let page = page.to_string();
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples.len(), 4, "{page}");
    let names = ["imports", "imported_bytes", "parked", "parked_bytes"];
    names.map(|name| {
        let name = format!("alluvion_share_{name}");
        assert!(page.contains(&format!("# TYPE {name} gauge\n")), "{page}");
        let start = format!("{name}{{device=\"{}\"}} ", device.ordinal());
        let found = samples.iter().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("{start} in {page}")).parse().expect("a number")
    })
}

#[test]
fn a_page_follows_a_share_from_its_beginning_to_its_end() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (here, there) = (rig.first.device(0), rig.second.device(0));
        let (stream, its_stream) = (here.stream().unwrap(), there.stream().unwrap());
        let make = |bytes| DeviceVec::filled_in(bytes, 4_u8, &stream, resource(&here)).unwrap();
        let (first, second) = (rig.share(make(100), &stream), rig.share(make(300), &stream));
        assert_eq!((figures(&here), figures(&there)), ([0; 4], [0; 4]), "{name}: shared, and nobody has it");
        let opened = rig.open(&first, &its_stream).unwrap();
        let again = rig.open(&first, &its_stream).unwrap();
        let other = rig.open(&second, &its_stream).unwrap();
        assert_eq!((figures(&here), figures(&there)), ([0; 4], [3, 500, 0, 0]), "{name}: opened");
        drop(first);
        assert_eq!((figures(&here), figures(&there)), ([0, 0, 1, 100], [3, 500, 0, 0]), "{name}: parked");
        drop(opened);
        assert_eq!((figures(&here), figures(&there)), ([0, 0, 1, 100], [2, 400, 0, 0]), "{name}: one closed");
        drop((again, second));
        assert_eq!(
            (figures(&here), figures(&there)),
            ([0, 0, 2, 400], [1, 300, 0, 0]),
            "{name}: one is left"
        );
        assert_eq!(sweep(&here), 1, "{name}");
        assert_eq!((figures(&here), figures(&there)), ([0, 0, 1, 300], [1, 300, 0, 0]), "{name}: swept");
        drop(other);
        assert_eq!(sweep(&here), 1, "{name}");
        assert_eq!((figures(&here), figures(&there)), ([0; 4], [0; 4]), "{name}: over");
        drop((stream, its_stream, here, there));
        rig.assert_clean();
    }
}

#[test]
fn what_could_not_be_opened_is_no_import() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (here, there) = (rig.first.device(0), rig.second.device(0));
        let (stream, its_stream) = (here.stream().unwrap(), there.stream().unwrap());
        let shared = rig.share(DeviceVec::filled_in(100, 4_u8, &stream, resource(&here)).unwrap(), &stream);
        let (message, descriptor) = (shared.message().clone(), sent(&shared));
        drop(shared.try_end().unwrap());
        let opened = rig.import(&message, descriptor).open::<u8>(&its_stream);
        assert!(opened.as_ref().is_err_and(Error::is_stale), "{name}: {opened:?}");
        assert_eq!((figures(&here), figures(&there)), ([0; 4], [0; 4]), "{name}");
        drop((stream, its_stream, here, there));
        rig.assert_clean();
    }
}

/// The figures of each device have its label, and a stack on the same page has none of them.
#[test]
fn a_page_has_the_devices_apart_and_a_stack_beside_them() {
    let rig = Rig::with(Rig::config().devices(2));
    let (here, there) = (rig.first.device(1), rig.second.device(1));
    let (stream, its_stream) = (here.stream().unwrap(), there.stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&here));
    let shared = rig.share(DeviceVec::filled_in(100, 4_u8, &stream, resource).unwrap(), &stream);
    let imported = rig.open(&shared, &its_stream).unwrap();
    assert_eq!(figures(&rig.second.device(0)), [0; 4]);
    assert_eq!(figures(&there), [1, 100, 0, 0]);
    assert_eq!(status(&there).imports, 1);
    let mut page = Metrics::new();
    page.add_stack("scratch", &Cuda::new(&there));
    assert!(!page.to_string().contains("alluvion_share"), "{page}");
    for device in rig.second.machine().devices() {
        page.add_sharing(&device);
    }
    let page = page.to_string();
    for line in [
        "alluvion_share_imports{device=\"0\"} 0\n",
        "alluvion_share_imports{device=\"1\"} 1\n",
        "alluvion_share_imported_bytes{device=\"1\"} 100\n",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    drop(imported);
    drop((shared.try_end().unwrap(), stream, its_stream, here, there));
    rig.assert_clean();
}
