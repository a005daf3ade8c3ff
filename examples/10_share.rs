//! Memory that two processes use: one makes it, the other reads and writes it in place. No copy is made.
//!
//! Both processes are simulated, on one machine, so that this runs anywhere. Between real ones the bytes of the message go through
//! whatever there is, such as a pipe, and the descriptor through a Unix socket.

use alluvion::share::{ImportedMut, Message, ShareConfig, Shared, status, sweep};
use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceVec, Error, PoolConfig, ResourceExt, Sim};

fn main() -> Result<(), Error> {
    let exporter = Sim::new();
    let importer = exporter.process();

    // The exporter: a vector from a pool, as any other, and then a message about it.
    let (device, stream) = (exporter.device(0), exporter.device(0).stream()?);
    let pool = AnyResource::new(Cuda::new(&device).pool(PoolConfig::default())?);
    let weights = DeviceVec::from_slice_in(&[1.0_f32, 2.0, 3.0, 4.0], &stream, pool.clone())?;
    let shared = Shared::with_config(weights, ShareConfig::default().writable(), &stream)?;
    let sent = shared.message().to_bytes();
    println!("the exporter sends {} bytes: {:?}", sent.len(), shared.message());
    println!("an importer sees {} bytes around them", shared.message().visible_bytes());

    // The importer: the same memory, at an address of its own.
    let its_stream = importer.device(0).stream()?;
    let message = Message::from_bytes(&sent)?;
    let mut imported = ImportedMut::<f32>::open(&message, None, &its_stream)?;
    println!("the importer reads {:?}", imported.to_vec(&its_stream)?);
    imported.set(3, 7.0, &its_stream)?;

    // While it is open there, the exporter does not get it back.
    let shared = shared.try_end().expect_err("the importer has it open");
    println!("{} process has it open", shared.importers()?);
    drop(imported);
    let weights = shared.end()?;
    println!("the exporter reads {:?}", weights.to_vec(&stream)?);

    // A process that dies has nothing open, and what was dropped meanwhile is freed.
    let shared = weights.share(&stream)?;
    let imported = ImportedMut::<f32>::open(shared.message(), None, &its_stream);
    println!("to be written it is not: {}", imported.map(drop).expect_err("it is shared to be read"));
    let imported = alluvion::share::Imported::<f32>::open(shared.message(), None, &its_stream)?;
    drop(shared);
    println!("{} container waits for the importer", status(&device).parked);
    importer.kill();
    drop(imported);
    println!("{} container was freed", sweep(&device));
    Ok(())
}
