//! `Attachments`: values that the rooms above keep for a device.

use core::any::Any;
use std::sync::OnceLock;

/// A value that a room above keeps for a device, one of each type.
pub(crate) trait Attachment: Any + Send + Sync {
    /// Drops the values that keep the machine alive.
    fn release(&self);
}

/// The attachments of one device: a list that only grows, so that a reference to a value is valid as long as the list. It has one
/// value for each type, of which there is a handful.
#[derive(Default)]
pub(super) struct Attachments(OnceLock<Box<Attached>>);

struct Attached {
    value: Box<dyn Attachment>,
    next: Attachments,
}

impl Attachments {
    /// The value of type `T`, made if there is none yet. If two threads make one at once, both get the first one.
    pub(super) fn get<T: Attachment + Default>(&self) -> &T {
        let mut at = self;
        loop {
            let attached = at
                .0
                .get_or_init(|| Box::new(Attached { value: Box::new(T::default()), next: Self::default() }));
            let value: &dyn Any = &*attached.value;
            match value.downcast_ref() {
                Some(found) => return found,
                None => at = &attached.next,
            }
        }
    }

    pub(super) fn release(&self) {
        let mut at = self;
        while let Some(attached) = at.0.get() {
            attached.value.release();
            at = &attached.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct One(AtomicU32);
    #[derive(Default)]
    struct Other(AtomicU32);

    impl Attachment for One {
        fn release(&self) {
            self.0.store(1, Ordering::Relaxed);
        }
    }

    impl Attachment for Other {
        fn release(&self) {
            self.0.store(2, Ordering::Relaxed);
        }
    }

    #[test]
    fn there_is_one_of_each_type_and_each_is_told() {
        let attachments = Attachments::default();
        let (one, other) = (attachments.get::<One>(), attachments.get::<Other>());
        assert!(core::ptr::eq(one, attachments.get()) && core::ptr::eq(other, attachments.get()));
        attachments.release();
        assert_eq!((one.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 2));
    }
}
