//! Who frees without a size?
//!
//! A free of [`Resource`](crate::Resource) names the layout of the block. Half of the interfaces that programs plug an allocator into
//! do not know it: `cudaFree`, CuPy, ONNX Runtime, TensorRT and NCCL hand back an address alone. A ledger stands in front of a
//! resource for them and keeps the layout of each block under its address. It also answers which block an address lies in, and holds
//! the free of a block back behind streams that were [recorded](Ledger::record_stream) for it.
//!
//! | Ledger | For |
//! |---|---|
//! | [`Ledger`] | the blocks of one resource |
//! | [`DeviceLedger`] | the blocks of one device, each with the resource that it came from |
//!
//! A pair of calls costs two locks of one of 64 shards, each held for one step of an ordered table. What frees with a size needs no
//! ledger, and pays for none.

mod device_ledger;
#[expect(clippy::module_inception, reason = "file = type")]
mod ledger;
mod live_blocks;

pub use device_ledger::DeviceLedger;
pub use ledger::Ledger;
pub use live_blocks::LedgerBlock;
