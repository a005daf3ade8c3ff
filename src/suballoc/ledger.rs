//! `Ledger`.
use crate::resource::{DevicePtr, Layout};
use crate::sync::Mutex;
use hashbrown::HashMap;

#[derive(Debug)]
pub(crate) struct Ledger(Mutex<HashMap<DevicePtr, usize>>);
pub(crate) enum Entered {
    Same,
    Otherwise { bytes: usize },
    Not,
}
impl Ledger {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
    pub(crate) fn enter(&self, block: DevicePtr, layout: Layout) {
        self.0.lock().insert(block, layout.bytes());
    }
    pub(crate) fn leave(&self, block: DevicePtr, layout: Layout) -> Entered {
        let mut map = self.0.lock();
        match map.get(&block) {
            Some(&bytes) if bytes == layout.bytes() => {
                map.remove(&block);
                Entered::Same
            }
            Some(&bytes) => Entered::Otherwise { bytes },
            None => Entered::Not,
        }
    }
}
