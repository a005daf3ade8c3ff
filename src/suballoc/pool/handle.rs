//! `PoolHandle`: a pool, borrowed or counted.

use core::ops::Deref;

use super::Pool;
use crate::resource::Resource;
use crate::sync::Arc;

/// The pool, borrowed or by a count of it.
pub(super) enum PoolHandle<'p, U: Resource> {
    Borrowed(&'p Pool<U>),
    Counted(Arc<Pool<U>>),
}

impl<U: Resource> Clone for PoolHandle<'_, U> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(pool) => Self::Borrowed(pool),
            Self::Counted(pool) => Self::Counted(Arc::clone(pool)),
        }
    }
}

impl<U: Resource> Deref for PoolHandle<'_, U> {
    type Target = Pool<U>;

    fn deref(&self) -> &Pool<U> {
        match self {
            Self::Borrowed(pool) => pool,
            Self::Counted(pool) => pool,
        }
    }
}
