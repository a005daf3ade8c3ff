//! Handles and descriptors that are none.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use alluvion::driver::Code;

use super::hand_over::{BYTES, Way, end, offer};
use super::process::{CRASHED, HANGS, Handle, Lent};
use super::worker::Op;
use super::{Stage, refused_as};

/// 64 bytes that nobody made.
fn made_up() -> [(&'static str, Handle); 4] {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let random = std::array::from_fn(|_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as u8
    });
    [
        ("64 zeros", [0; 64]),
        ("64 ones", [0xFF; 64]),
        ("64 random bytes", random),
        ("64 bytes in order", std::array::from_fn(|at| at as u8)),
    ]
}

pub(crate) fn bytes_of_elsewhere_are_refused(stage: &Stage<'_>) {
    let borrower = stage.process();
    for (what, handle) in made_up() {
        let opened = borrower.open(Op::MemoryOpen, 0, &handle);
        refused_as(&format!("{what} as plain memory"), opened, Code::INVALID_VALUE);
        let opened = borrower.open(Op::EventOpen, 0, &handle);
        refused_as(&format!("{what} as an event"), opened, Code::MAP_FAILED);
    }
    // It is as good as before.
    let address = borrower.must(Op::Allocate, [BYTES, 0, 0]);
    borrower.write(address, 7, BYTES);
    assert_eq!(borrower.read(address, BYTES), 7);
}

/// A handle of plain memory with one byte changed may be another that is right. It opens something or nothing, and does the lender no
/// harm. That of a block of a pool is not tried: the driver crashes with five of its bytes.
pub(crate) fn handles_with_a_wrong_byte_do_no_harm(stage: &Stage<'_>) {
    let (lender, mut borrower) = stage.two();
    let offered = offer(&lender, Way::Legacy, 0x5C);
    let (mut opened, mut ended, mut codes) = (vec![], vec![], vec![]);
    for at in 0..64 {
        let mut handle = offered.handle;
        handle[at] ^= 0x10;
        match borrower.open(Op::MemoryOpen, 0, &handle) {
            // What it is, nobody knows. This process is not needed any more.
            Ok(_) => opened.push(at),
            Err(CRASHED | HANGS) => ended.push(at),
            Err(code) => {
                if !codes.contains(&code) {
                    codes.push(code);
                }
                continue;
            }
        }
        borrower = stage.process();
    }
    println!("fact: one byte of the handle changed: {codes:?}; opened with bytes {opened:?}");
    assert!(ended.is_empty(), "a process ended or hung with bytes {ended:?}");
    assert_eq!(lender.read(offered.address, BYTES), 0x5C);
    drop(borrower);
    end(&lender, &offered);
}

/// Descriptors of this process that lend no memory.
fn foreign() -> Vec<(&'static str, OwnedFd)> {
    let (socket, _) = UnixStream::pair().expect("there are sockets");
    let (pipe, _) = std::io::pipe().expect("there are pipes");
    let mut all = vec![
        ("/dev/null", File::open("/dev/null").expect("it is there").into()),
        ("a file", File::open("/proc/self/exe").expect("it is there").into()),
        ("a socket", socket.into()),
        ("a pipe", pipe.into()),
    ];
    // What libcuda's own descriptors are of, opened by somebody else.
    for device in ["/dev/nvidiactl", "/dev/nvidia0"] {
        all.extend(File::options().read(true).write(true).open(device).map(|file| (device, file.into())));
    }
    all
}

pub(crate) fn descriptors_of_elsewhere_are_refused(stage: &Stage<'_>) {
    let (lender, borrower) = stage.two();
    let lends_pools = stage.ways().any(|way| way == Way::Pool);
    let no_pool = if lends_pools { Code::UNKNOWN } else { Code::NOT_SUPPORTED };
    for (what, descriptor) in foreign() {
        let lent = Lent::Descriptor(descriptor);
        let imported = borrower.import(Op::MemoryImport, &lent);
        refused_as(&format!("{what} as pages"), imported, Code::UNKNOWN);
        let imported = borrower.import(Op::PoolImport, &lent);
        refused_as(&format!("{what} as a pool"), imported, no_pool);
    }
    for way in stage.ways() {
        let (op, what) = match way {
            Way::Legacy => continue,
            Way::Pool => (Op::MemoryImport, "a pool as pages"),
            Way::Pages => (Op::PoolImport, "pages as a pool"),
        };
        let offered = offer(&lender, way, 0);
        let lent = offered.lent.as_ref().expect("it is lent");
        refused_as(what, borrower.import(op, lent), Code::NOT_SUPPORTED);
        end(&lender, &offered);
    }
    // The process is as good as before.
    let address = borrower.must(Op::Allocate, [BYTES, 0, 0]);
    borrower.write(address, 7, BYTES);
    assert_eq!(borrower.read(address, BYTES), 7);
}
