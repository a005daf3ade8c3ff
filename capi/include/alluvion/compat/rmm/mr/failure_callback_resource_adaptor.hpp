// What if the program can free memory when it runs out?
#ifndef ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_FAILURE_CALLBACK_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"
#include "failure_callback_t.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Asks a function of the program when its upstream is out of memory, and tries again while that answers true.
///
/// The function runs on the thread whose request failed, with no lock held, and may free, trim and allocate; its own requests ask
/// nobody. An exception of it is an answer of false: the request fails as it would have without it. `ExceptionType` is one that
/// is caught where memory runs out. A base of `rmm::out_of_memory` is caught whatever it is about, as in `rmm::bad_alloc`: by this
/// object, and not by a handle that is sliced off it.
template <class ExceptionType = ::rmm::out_of_memory>
class failure_callback_resource_adaptor : public ::rmm::detail::adaptor {
    static_assert(std::is_base_of_v<ExceptionType, ::rmm::out_of_memory>,
                  "the function is asked when memory runs out: name rmm::out_of_memory, or a base of it");

public:
    using exception_type = ExceptionType;

    failure_callback_resource_adaptor(::rmm::detail::any_resource upstream, mr::failure_callback_t callback, void *callback_arg)
        : failure_callback_resource_adaptor(std::move(upstream), shared_callback(std::move(callback)), callback_arg) {}

    using adaptor::allocate;
    using adaptor::allocate_sync;

    [[nodiscard]] void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align = default_alignment) const {
        return asking(bytes, [&] { return adaptor::allocate(stream, bytes, align); });
    }
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = default_alignment) const {
        return asking(bytes, [&] { return adaptor::allocate_sync(bytes, align); });
    }

private:
    using shared_callback_t = std::shared_ptr<mr::failure_callback_t>;

    static shared_callback_t shared_callback(mr::failure_callback_t callback) {
        return std::make_shared<mr::failure_callback_t>(std::move(callback));
    }

    failure_callback_resource_adaptor(::rmm::detail::any_resource upstream, shared_callback_t callback, void *argument)
        : adaptor(over(::rmm::detail::handle_of(upstream, ::rmm::detail::blocks::handed_on), callback, argument),
                  std::move(upstream)),
          callback_(std::move(callback)), argument_(argument) {}

    /// Where memory runs out, the library asks: it knows best when.
    static ::rmm::detail::resource over(::rmm::detail::resource const &upstream, shared_callback_t callback, void *argument) {
        return upstream.with_oom_handler([callback = std::move(callback), argument](alv_oom_report const &report) {
            return (*callback)(report.requested_bytes, argument);
        });
    }

    /// Other exceptions of that type are asked about here.
    template <class Allocate>
    void *asking(std::size_t bytes, Allocate const &allocate) const {
        if constexpr (std::is_same_v<ExceptionType, ::rmm::out_of_memory>) {
            return allocate();
        } else {
            for (int hopeless = 0;;) {
                try {
                    return allocate();
                } catch (::rmm::out_of_memory const &) {
                    // The library asks nobody about a request that alone is too large. A function may answer true for ever.
                    if (!is_too_large() || hopeless++ == most_hopeless || !frees(bytes)) {
                        throw;
                    }
                } catch (ExceptionType const &) {
                    if (!frees(bytes)) {
                        throw;
                    }
                }
            }
        }
    }

    /// Whether the function says that it has freed memory. Where it throws, it has not.
    [[nodiscard]] bool frees(std::size_t bytes) const noexcept {
        try {
            return (*callback_)(bytes, argument_);
        } catch (...) {
            return false;
        }
    }

    /// Whether the last request of this thread that failed is more than can ever be had.
    static bool is_too_large() noexcept {
        alv_oom_report report = ALV_INIT(alv_oom_report);
        return alv_last_out_of_memory(&report) == ALV_OK && report.cause == ALV_CAUSE_TOO_LARGE;
    }

    static constexpr int most_hopeless = 2;

    shared_callback_t callback_;
    void *argument_;
};

#if ALLUVION_COMPAT_RMM_CCCL
namespace detail {
inline bool const failure_callback_resource_adaptor_is_recognised =
    ::rmm::detail::recognise_type<failure_callback_resource_adaptor<>>();
} // namespace detail
#endif

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
