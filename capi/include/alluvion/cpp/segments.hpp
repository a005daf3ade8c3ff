// Which memory stays what it is, and who hears of it?
#ifndef ALLUVION_CPP_SEGMENTS_HPP
#define ALLUVION_CPP_SEGMENTS_HPP

#include "resource.hpp"

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace alluvion {

/// A segment: memory that a suballocator has of its upstream in one piece.
using segment = ::alv_segment;

} // namespace alluvion

ALLUVION_BEGIN

namespace callback {

template <class Added, class Dropped>
struct segment_hooks {
    Added added_function;
    Dropped dropped_function;

    static alv_status added(void *user, segment const *of) noexcept {
        return call(static_cast<segment_hooks *>(user)->added_function, *of);
    }
    static alv_status dropped(void *user, segment const *of) noexcept {
        return call(static_cast<segment_hooks *>(user)->dropped_function, *of);
    }

private:
    template <class Hook>
    static alv_status call(Hook &hook, segment const &of) noexcept {
        try {
            std::invoke(hook, of);
            return ALV_OK;
        } catch (...) {
            return status_of_exception();
        }
    }
};

} // namespace callback

/// Has the outermost suballocator of a stack tell of its segments: `added(segment const &)` before the first block of one goes out, and for
/// every segment that is there already, before this returns; `dropped(segment const &)` before one goes. Hooks that were set before hear of
/// nothing any more. Both may be called from any thread, several at once, with no lock held, and may use the stack; a request of theirs
/// that takes another segment is refused.
///
/// If `added` throws, the segment goes back, and the request fails, with the status `ALV_FOREIGN`; if it throws for a segment that was there,
/// this does. If `dropped` throws, the segment stays, and is leaked at the end of the stack. Throws `error` without a suballocator, and over
/// pages that move: name `pool(registered=64MiB) | mapped` then.
template <class Added, class Dropped>
void on_segment(resource const &stack, Added &&added, Dropped &&dropped) {
    using hooks = callback::segment_hooks<std::decay_t<Added>, std::decay_t<Dropped>>;
    // The library lets go of it, whatever it answers.
    auto kept = std::unique_ptr<hooks>(new hooks{std::forward<Added>(added), std::forward<Dropped>(dropped)});
    ::alluvion::detail::check(alv_set_segment_hooks(stack.native_handle(), hooks::added, hooks::dropped,
                                                    callback::drop<hooks>, kept.release()));
}

/// The segments that the outermost suballocator of a stack has, in the order of addresses.
[[nodiscard]] inline std::vector<segment> segments(resource const &stack) {
    std::vector<segment> found;
    auto add = [&](segment const &of) { found.push_back(of); };
    callback::guarded guarded(add);
    auto const see = [](void *user, segment const *of) noexcept {
        return static_cast<decltype(guarded) *>(user)->call(*of) ? 0 : 1;
    };
    ::alluvion::detail::check(alv_segments(stack.native_handle(), see, &guarded));
    guarded.finish();
    return found;
}

/// The outermost suballocator of a stack takes no more memory of its upstream and gives none back, until it ends. A request that does not fit
/// throws, and a trim does nothing.
inline void freeze(resource const &stack) { ::alluvion::detail::check(alv_freeze(stack.native_handle())); }

ALLUVION_END

#endif
