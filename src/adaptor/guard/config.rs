//! `GuardConfig`: how closely `Guard` looks.

use core::fmt;

use super::Trespass;
use crate::resource::Layout;
use crate::sync::Arc;

pub(super) type TrespassHandler = Arc<dyn Fn(&Trespass) + Send + Sync>;

/// How closely a [`Guard`](super::Guard) looks, and whom it tells.
///
/// ```
/// use alluvion::adaptor::GuardConfig;
///
/// let config = GuardConfig::default()
///     .redzone(1024)
///     .quarantine(256 << 20)
///     .verify(1 << 20)
///     .on_violation(|trespass| eprintln!("{trespass}"));
/// assert!(format!("{config:?}").contains("redzone_bytes: 1024"));
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a layer is made with it"]
pub struct GuardConfig {
    pub(super) redzone_bytes: usize,
    pub(super) quarantine_bytes: usize,
    pub(super) verify_bytes: usize,
    pub(super) handler: Option<TrespassHandler>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            redzone_bytes: Layout::MIN_ALIGN,
            quarantine_bytes: 16 << 20,
            verify_bytes: 64 << 10,
            handler: None,
        }
    }
}

impl GuardConfig {
    /// How many bytes are watched on each side of a block, rounded up to units of 256. Default: 256, what a warp writes with
    /// 8 bytes a thread.
    pub fn redzone(mut self, bytes: usize) -> Self {
        self.redzone_bytes = bytes;
        self
    }

    /// How many bytes of freed blocks are kept back, so that who still writes to them is seen. None are for 0. Default: 16 MiB.
    pub fn quarantine(mut self, bytes: usize) -> Self {
        self.quarantine_bytes = bytes;
        self
    }

    /// How much of a block is looked at when it leaves the quarantine: half at its beginning, half at its end. That much pinned
    /// memory of the host is taken for each that is looked at. Default: 64 KiB.
    pub fn verify(mut self, bytes: usize) -> Self {
        self.verify_bytes = bytes;
        self
    }

    /// Tells `handler` what is found, on the thread that comes across it and with no lock held. If it panics nothing follows.
    pub fn on_violation(mut self, handler: impl Fn(&Trespass) + Send + Sync + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }
}

impl fmt::Debug for GuardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardConfig")
            .field("redzone_bytes", &self.redzone_bytes)
            .field("quarantine_bytes", &self.quarantine_bytes)
            .field("verify_bytes", &self.verify_bytes)
            .field("tells", &self.handler.is_some())
            .finish()
    }
}
