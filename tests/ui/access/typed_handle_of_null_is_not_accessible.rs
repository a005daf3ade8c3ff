//! Access is forwarded, not invented: a handle of `Null` is as inaccessible as `Null`.

use alluvion::source::Null;
use alluvion::{DeviceAccessible, ResourceRef};

fn needs_access<R: DeviceAccessible>() {}

fn main() {
    needs_access::<ResourceRef<'static, Null>>();
}
