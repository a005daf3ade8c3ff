//! `GuardConfig`: the redzones, the quarantine and the handler of `Guard`.

use core::fmt;

use super::Trespass;
use crate::resource::Layout;
use crate::sync::Arc;

pub(super) type TrespassHandler = Arc<dyn Fn(&Trespass) + Send + Sync>;

/// The redzones, the quarantine and the handler of a [`Guard`](super::Guard).
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
    /// The bytes of the redzone on each side of a block, rounded up to units of 256. Default: 256, as many as a warp
    /// writes with 8 bytes a thread.
    pub fn redzone(mut self, bytes: usize) -> Self {
        self.redzone_bytes = bytes;
        self
    }

    /// The most bytes of freed blocks in quarantine, so that later writes to them are found. 0 for no quarantine.
    /// Default: 16 MiB.
    pub fn quarantine(mut self, bytes: usize) -> Self {
        self.quarantine_bytes = bytes;
        self
    }

    /// The bytes of a block that are checked when it leaves the quarantine: half at its beginning, half at its end.
    /// Each such check takes as much pinned memory. Default: 64 KiB.
    pub fn verify(mut self, bytes: usize) -> Self {
        self.verify_bytes = bytes;
        self
    }

    /// Calls `handler` with each finding, on the thread that finds it and with no lock held. A panic of it is caught. Default: a line on
    /// the standard error stream for each.
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
