//! What a register has to say.

use crate::adaptor::{Holdings, Register};
use crate::metrics::{Kind, Metrics};

/// What is out now, and under which tags.
pub(super) fn add(to: &mut Metrics, labels: &[(&str, &str)], register: &Register) {
    let held: Holdings = register.outstanding();
    let help = "Bytes in blocks that are out.";
    to.add("alluvion_live_bytes", Kind::Gauge, help, labels, held.bytes());
    to.add("alluvion_live_blocks", Kind::Gauge, "Blocks that are out.", labels, held.blocks.len());
    let help = "Frees that were wrong, and not passed on.";
    to.add("alluvion_misuses_total", Kind::Counter, help, labels, held.misuse_count);
    for share in held.by_tag() {
        let labels = [labels, &[("tag", &*share.label)]].concat();
        let help = "Bytes of the blocks which are out.";
        to.add("alluvion_tag_live_bytes", Kind::Gauge, help, &labels, share.bytes);
        let help = "How many blocks of a tag are out.";
        to.add("alluvion_tag_live_blocks", Kind::Gauge, help, &labels, share.blocks);
    }
}
