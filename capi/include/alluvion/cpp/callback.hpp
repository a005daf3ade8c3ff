// What if the memory, or the help in need, comes from C++?
//
// The library is no C++ code: an exception that reached it would end the process. So each function that it is given catches what
// the callable of the program throws, and answers a status.
#ifndef ALLUVION_CPP_CALLBACK_HPP
#define ALLUVION_CPP_CALLBACK_HPP

#include "stream.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

ALLUVION_BEGIN

/// A source of two functions: `void *(stream_view, std::size_t bytes, std::size_t align)` and
/// `void (stream_view, void *, std::size_t bytes, std::size_t align)`.
template <class Allocate, class Deallocate>
struct source_functions {
    Allocate allocate_function;
    Deallocate deallocate_function;

    void *allocate(stream_view stream, std::size_t bytes, std::size_t align) {
        return std::invoke(allocate_function, stream, bytes, align);
    }
    void deallocate(stream_view stream, void *block, std::size_t bytes, std::size_t align) {
        std::invoke(deallocate_function, stream, block, bytes, align);
    }
};

template <class Allocate, class Deallocate>
source_functions(Allocate, Deallocate) -> source_functions<Allocate, Deallocate>;

namespace callback {

/// The status of the exception that is being handled.
inline alv_status status_of_exception() noexcept {
    alv_status known = ALV_OK;
    try {
        throw;
    } catch (::alluvion::detail::not_for_want_of_memory const &failure) {
        return ::alluvion::detail::thrown::keep(failure.exception);
    } catch (bad_alloc const &failure) {
        known = failure.status();
    } catch (std::bad_alloc const &) {
        return ALV_OUT_OF_MEMORY;
    } catch (error const &failure) {
        known = failure.status();
    } catch (...) {
    }
    // What is foreign already may have its exception from a request below, whose number is this thread's last.
    bool const says_nothing = known == ALV_OK || known == ALV_FOREIGN;
    return says_nothing ? ::alluvion::detail::thrown::keep(std::current_exception()) : known;
}

template <class Callable>
void drop(void *user) noexcept {
    delete static_cast<Callable *>(user);
}

/// Whether an object allocates as a resource of CCCL 3.1 and later does: the stream first.
template <class Source, class = void>
inline constexpr bool takes_stream_first = false;
template <class Source>
inline constexpr bool takes_stream_first<Source, std::void_t<decltype(std::declval<Source &>().allocate(
                                                     stream_view{}, std::size_t{}, std::size_t{}))>> = true;

template <class Source>
alv_status allocate(void *user, std::size_t bytes, std::size_t align, alv_cuda_stream stream, void **out) noexcept {
    try {
        Source &source = *static_cast<Source *>(user);
        if constexpr (takes_stream_first<Source>) {
            *out = source.allocate(stream_view::as_written(stream), bytes, align);
        } else {
            *out = source.allocate_async(bytes, align, stream_view::as_written(stream));
        }
        return ALV_OK;
    } catch (...) {
        return status_of_exception();
    }
}

template <class Source>
void deallocate(void *user, void *block, std::size_t bytes, std::size_t align, alv_cuda_stream stream) noexcept {
    try {
        Source &source = *static_cast<Source *>(user);
        if constexpr (takes_stream_first<Source>) {
            source.deallocate(stream_view::as_written(stream), block, bytes, align);
        } else {
            source.deallocate_async(block, bytes, align, stream_view::as_written(stream));
        }
    } catch (...) {
        // The block is the source's again, whatever it did with it: there is nobody to tell.
    }
}

/// A handler that throws has freed nothing: the request fails as it would have without it.
template <class Ask>
int32_t ask(void *user, alv_oom_report const *report) noexcept {
    try {
        return std::invoke(*static_cast<Ask *>(user), *report) ? 1 : 0;
    } catch (...) {
        return 0;
    }
}

/// An exception of an observer is dropped: there is nobody to tell.
template <class Observer, class Seen>
int observe(void *user, Seen const *seen) noexcept {
    try {
        static_cast<void>(std::invoke(*static_cast<Observer *>(user), *seen));
    } catch (...) {
    }
    return 0;
}

/// A callable for one call of the library, which stops at an exception; `finish` throws it on.
template <class Callable>
class guarded {
public:
    explicit guarded(Callable &callable) noexcept : callable_(callable) {}

    /// Whether to go on.
    template <class... Arguments>
    bool call(Arguments const &...arguments) noexcept {
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<Callable &, Arguments const &...>>) {
                std::invoke(callable_, arguments...);
                return true;
            } else {
                return static_cast<bool>(std::invoke(callable_, arguments...));
            }
        } catch (...) {
            thrown_ = std::current_exception();
            return false;
        }
    }

    void finish() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
    }

private:
    Callable &callable_;
    std::exception_ptr thrown_;
};

} // namespace callback

ALLUVION_END

#endif
