//! `Layer`: the name that a layer is found by in a stack.

use core::any::Any;
use core::fmt;

use crate::resource::{Figures, Resource};

/// A layer that [`ResourceExt::find`](crate::ResourceExt::find) finds in a stack, and the type of its book.
///
/// The upstream in the type does not matter: `find::<Stats>()` finds a `Stats<Pool<CudaAsync>>`, and so does
/// `find::<Stats<Cuda>>()`. The result is the layer's *book*, the data that the layer keeps. Its type names no upstream, so it is
/// found in an erased stack too. A source, which has no upstream, is its own book.
///
/// # Layers of your own
///
/// A layer implements this trait, and returns its book from [`Resource::layer`]:
///
/// ```
/// use alluvion::resource::{Layer, LayerBook};
///
/// /// Counts the requests for more than a page. `Calls` is its book.
/// pub struct Pages<U = alluvion::AnyResource> {
///     upstream: U,
///     calls: Calls,
/// }
///
/// #[derive(Default)]
/// pub struct Calls(std::sync::atomic::AtomicU64);
///
/// impl<U> Layer for Pages<U> {
///     type Book = Calls;
/// }
///
/// impl<U> Pages<U> {
///     // The method of `Resource` looks like this:
///     fn layer(&self) -> Option<LayerBook<'_>> {
///         Some(LayerBook::of::<Self>(&self.calls))
///     }
/// }
/// # let pages = Pages { upstream: (), calls: Calls::default() };
/// # assert!(pages.layer().is_some_and(|book| book.is::<Calls>()));
/// # let () = pages.upstream;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no layer that can be found in a stack of resources",
    label = "not a layer",
    note = "name the layer, over any upstream: `find::<Stats>()`, `find::<Pool>()`, `find::<Cuda>()`; the answer is its book",
    note = "`find::<SuballocBook>()` finds any suballocator, and `find::<Allowance>()` any limit",
    note = "a layer of your own implements `alluvion::resource::Layer`, and returns its book from `Resource::layer`"
)]
pub trait Layer {
    /// The type of the book.
    type Book: Any;

    /// Distinguishes layers that have the same type of book: with a name, only layers of this name are found. Without one, every
    /// layer with such a book is found.
    const NAME: Option<&'static str> = None;

    /// Adds the figures of the book to `to`, for [`Metrics`](crate::metrics::Metrics) and other exporters. By default there are
    /// none.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # use alluvion::resource::{Figures, Layer};
    /// # struct Pages;
    /// # #[derive(Default)]
    /// # struct Calls(AtomicU64);
    /// impl Layer for Pages {
    ///     type Book = Calls;
    ///
    ///     fn figures(book: &Calls, to: &mut Figures<'_>) {
    ///         let calls = book.0.load(Ordering::Relaxed);
    ///         to.counter("pages_calls_total", "Requests for more than a page.", calls);
    ///     }
    /// }
    /// # Pages::figures(&Calls::default(), &mut Figures::new(&[], &mut |figure| assert_eq!(figure.value, 0_u64.into())));
    /// ```
    fn figures(book: &Self::Book, to: &mut Figures<'_>) {
        let _ = (book, to);
    }
}

/// The book of a layer, and the name of the layer: the result of [`Resource::layer`].
///
/// ```
/// use alluvion::source::{Cuda, Managed};
/// use alluvion::{Resource, Sim};
///
/// let cuda = Cuda::new(&Sim::new().device(0));
/// let book = cuda.layer().expect("a source is its own book");
/// assert!(book.is::<Cuda>() && book.downcast::<Managed>().is_none());
/// ```
#[derive(Clone, Copy)]
pub struct LayerBook<'a> {
    name: Option<&'static str>,
    book: &'a dyn Any,
    figures: fn(&dyn Any, &mut Figures<'_>),
}

impl<'a> LayerBook<'a> {
    /// The book of a layer of type `L`.
    #[must_use]
    pub fn of<L: Layer>(book: &'a L::Book) -> Self {
        let figures: fn(&dyn Any, &mut Figures<'_>) = |book, to| {
            if let Some(book) = book.downcast_ref() {
                L::figures(book, to);
            }
        };
        Self { name: L::NAME, book, figures }
    }

    /// The book of what is no layer that can be found: for what this crate asks of its own resources.
    pub(crate) fn unlisted(book: &'a dyn Any) -> Self {
        Self { name: None, book, figures: |_, _| () }
    }

    /// Adds the figures of the book to `to`: see [`Layer::figures`].
    pub fn figures(self, to: &mut Figures<'_>) {
        (self.figures)(self.book, to);
    }

    /// Returns `true` if the book has the type `B`.
    #[must_use]
    pub fn is<B: Any>(self) -> bool {
        self.book.is::<B>()
    }

    /// The book, if it has the type `B`.
    #[must_use]
    pub fn downcast<B: Any>(self) -> Option<&'a B> {
        self.book.downcast_ref()
    }

    pub(crate) fn of_layer<L: Layer>(self) -> Option<&'a L::Book> {
        if L::NAME.is_some() && L::NAME != self.name {
            return None;
        }
        self.downcast()
    }
}

impl fmt::Debug for LayerBook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBook").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The book of the outermost layer of type `L`, in `resource` or under it.
pub(crate) fn find<L: Layer>(resource: &dyn Resource) -> Option<&L::Book> {
    let mut at = Some(resource);
    while let Some(resource) = at {
        if let Some(found) = resource.layer().and_then(LayerBook::of_layer::<L>) {
            return Some(found);
        }
        at = resource.upstream();
    }
    None
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use crate::adaptor::{Allowance, Budget, Limiting, Stats, Tracking};
    use crate::compose::ResourceExt;
    use crate::device::Sim;
    use crate::resource::{AnyResource, Resource};
    use crate::resource::{Figures, Layer, LayerBook};
    use crate::source::{Cuda, CudaAsync, Null};
    use crate::suballoc::{Arena, ArenaConfig, FixedSize, Pool, PoolConfig, SuballocBook};

    const MIB: usize = 1 << 20;

    #[test]
    fn the_upstream_in_a_question_does_not_matter() {
        let sim = Sim::new();
        let pool = CudaAsync::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap();
        let resource = AnyResource::new(pool.stats());
        assert!(resource.find::<Stats>().is_some());
        assert!(resource.find::<Stats<Pool<CudaAsync>>>().is_some());
        assert!(resource.find::<Stats<u8>>().is_some());
        assert!(resource.find::<Pool>().is_some() && resource.find::<Pool<Cuda>>().is_some());
        assert!(resource.find::<CudaAsync>().is_some());
        assert!(resource.find::<Cuda>().is_none() && resource.find::<Tracking>().is_none());
    }

    /// A layer of a user.
    struct Pages;

    impl Layer for Pages {
        type Book = u64;

        fn figures(book: &u64, to: &mut Figures<'_>) {
            to.labelled(&[("kind", "huge")], |to| to.gauge("pages", "Pages that are out.", *book));
        }
    }

    #[test]
    fn a_book_says_its_figures_through_any_handle() {
        let said = |book: LayerBook<'_>| {
            let mut said = Vec::new();
            book.figures(&mut Figures::new(&[("gpu", "0")], &mut |figure| {
                said.push(format!("{} {:?} {}", figure.name, figure.labels, figure.value));
            }));
            said
        };
        assert_eq!(said(LayerBook::of::<Pages>(&7)), [r#"pages [("gpu", "0"), ("kind", "huge")] 7"#]);
        let sim = Sim::new();
        let resource = AnyResource::new(Cuda::new(&sim.device(0)).limiting(7).stats());
        let limits = said(resource.upstream().and_then(Resource::layer).unwrap());
        assert!(
            limits[0].starts_with("alluvion_allowance_limit_bytes") && limits[0].ends_with(" 7"),
            "{limits:?}"
        );
        assert!(said(LayerBook::of::<Cuda>(&Cuda::new(&sim.device(0)))).is_empty());
    }

    #[test]
    fn layers_with_one_type_of_book_are_told_apart() {
        let sim = Sim::new();
        let arena = Cuda::new(&sim.device(0)).arena(ArenaConfig::default().bytes(8 * MIB)).unwrap();
        let both = arena.pool(PoolConfig::default().initial(2 * MIB)).unwrap();
        let reserved = |stock: Option<&SuballocBook>| stock.map(SuballocBook::reserved_bytes);
        assert_eq!(reserved(both.find::<Pool>()), Some(2 * MIB));
        assert_eq!(reserved(both.find::<Arena>()), Some(8 * MIB));
        assert_eq!(reserved(both.find::<SuballocBook>()), Some(2 * MIB), "the outermost");
        assert_eq!(reserved(both.upstream().find::<SuballocBook>()), Some(8 * MIB));
        assert!(both.find::<FixedSize>().is_none() && both.upstream().find::<Pool>().is_none());

        let jobs = Allowance::new("jobs", 10);
        let limits = Null::new(&sim.device(0)).budget(jobs.clone()).limiting(5).budget(jobs.child("job", 7));
        let limit = |allowance: Option<&Allowance>| allowance.map(Allowance::limit_bytes);
        assert_eq!(limit(limits.find::<Limiting>()), Some(5));
        assert_eq!(limit(limits.find::<Budget>()), Some(7));
        assert_eq!(limit(limits.upstream().find::<Allowance>()), Some(5));
        assert_eq!(limit(limits.upstream().find::<Budget>()), Some(10));
    }
}
