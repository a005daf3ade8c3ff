//! What a debugger finds in a core.

use core::mem::offset_of;

use super::node::BlockNode;
use super::nodes::CHUNK;
use super::owner::OwnerPlace;
use super::{Cache, Core, Owner, UNIT};
use crate::stream::StreamId;
use crate::suballoc::debugger::{Plan, Record};

static PLAN: Plan = Cache::plan(Plan {
    unit: UNIT as u32,
    chunk_nodes: CHUNK as u32,
    node_bytes: size_of::<BlockNode>() as u32,
    node_address: offset_of!(BlockNode, address) as u32,
    node_epoch: offset_of!(BlockNode, epoch) as u32,
    node_units: offset_of!(BlockNode, units) as u32,
    node_before: offset_of!(BlockNode, before) as u32,
    node_after: offset_of!(BlockNode, after) as u32,
    node_holder: offset_of!(BlockNode, holder) as u32,
    holder_out: Owner::OUT.place() as u32,
    holder_vacant: Owner::VACANT.place() as u32,
    holder_absent: Owner::ABSENT.place() as u32,
    holder_moving: Owner::MOVING.place() as u32,
    holder_asleep: Owner::ASLEEP.place() as u32,
    holder_hollow: Owner::HOLLOW.place() as u32,
    owner_bytes: size_of::<OwnerPlace>() as u32,
    owner_stream: offset_of!(OwnerPlace, shown) as u32,
    stream_place_bits: StreamId::BITS[0],
    stream_generation_bits: StreamId::BITS[1],
    ..Plan::BLANK
});

impl Core {
    /// Has a debugger find its blocks. It stays where it is from now on.
    pub(in crate::suballoc) fn show(&self, record: &mut Record) {
        record.lead_to(&PLAN, [self.nodes.shown(), self.owners.shown()]);
    }
}
