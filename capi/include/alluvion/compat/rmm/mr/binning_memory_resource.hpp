// Who serves which size?
#ifndef ALLUVION_COMPAT_RMM_MR_BINNING_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_RMM_MR_BINNING_MEMORY_RESOURCE_HPP

#include "../aligned.hpp"
#include "../detail/factory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {
namespace detail {

/// The bins of one resource.
class bins {
public:
    bins(any_resource const &upstream, std::optional<std::pair<int, int>> exponents)
        : program_upstream_(upstream),
          upstream_(::rmm::detail::handle_of(upstream, exponents ? ::rmm::detail::blocks::carved : ::rmm::detail::blocks::handed_on)), others_(exponents ? resource::over(layer(*exponents), upstream_) : upstream_),
          exponents_(exponents) {}

    void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
        used_ = true;
        return of(bytes).allocate(stream, bytes, align);
    }

    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        of(bytes).deallocate(stream, block, bytes, align);
    }

    /// No bytes are a request of the smallest bin, as any others: a resource of the program's gets it, and its free.
    void *allocate_nothing(::alluvion::stream_view stream, std::size_t align) {
        any_resource *const to = for_nothing();
        return to == nullptr ? nullptr : to->allocate(stream, 0, align);
    }

    void deallocate_nothing(::alluvion::stream_view stream, void *block, std::size_t align) noexcept {
        if (any_resource *const to = for_nothing()) {
            to->deallocate(stream, block, 0, align);
        }
    }

    void add(std::size_t bytes, std::optional<any_resource> bin) {
        bytes = align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
        if (bytes == 0) {
            throw logic_error("a bin serves sizes from 1 on");
        }
        resource const served_by =
            bin ? ::rmm::detail::handle_of(*bin, ::rmm::detail::blocks::handed_on)
                : resource::over("fixed-size(block=" + ::rmm::detail::number(bytes) + ")", upstream_);
        std::unique_lock<std::shared_mutex> const held(lock_);
        if (used_) {
            throw logic_error("a bin after the first request: blocks that are out would go back to the wrong one");
        }
        given_.emplace(bytes, bin_of_program{served_by, std::move(bin)});
    }

private:
    static std::string layer(std::pair<int, int> exponents) {
        auto const [least, most] = exponents;
        if (least < 0 || most > 62 || least > most) {
            throw logic_error("the exponents of bins rise from 0 to 62");
        }
        return "binning(from=" + ::rmm::detail::number(std::size_t{1} << least) +
               ", to=" + ::rmm::detail::number(std::size_t{1} << most) + ")";
    }

    /// The smallest bin that serves a size; of two of one size the power of two, which was there first. A handle of its own: a bin
    /// is used while nothing is locked, and may ask functions of the program.
    resource of(std::size_t bytes) const {
        std::shared_lock<std::shared_mutex> const held(lock_);
        auto const found = given_.lower_bound(bytes);
        if (found == given_.end()) {
            return others_;
        }
        if (exponents_ && bytes <= std::size_t{1} << exponents_->second) {
            std::size_t power = std::size_t{1} << exponents_->first;
            while (power < bytes) {
                power <<= 1;
            }
            if (power <= found->first) {
                return others_;
            }
        }
        return found->second.handle;
    }

    /// The resource that the program has given for the smallest sizes; null if that is one of ours, which has nothing for no bytes.
    /// A bin is never taken away.
    any_resource *for_nothing() {
        used_ = true;
        std::shared_lock<std::shared_mutex> const held(lock_);
        if (given_.empty()) {
            return exponents_ ? nullptr : &program_upstream_;
        }
        auto &[bytes, smallest] = *given_.begin();
        bool const is_power = exponents_ && std::size_t{1} << exponents_->first <= bytes;
        return is_power || !smallest.given ? nullptr : &*smallest.given;
    }

    struct bin_of_program {
        resource handle;
        std::optional<any_resource> given;
    };

    any_resource program_upstream_;
    resource upstream_;
    // The powers of two, and the upstream for what is larger.
    resource others_;
    std::optional<std::pair<int, int>> exponents_;
    mutable std::shared_mutex lock_;
    std::map<std::size_t, bin_of_program> given_;
    std::atomic<bool> used_{false};
};

/// The bins as a source of memory.
struct bins_source {
    std::shared_ptr<bins> of;

    void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align) {
        return ::rmm::detail::as_the_program_says([&] { return of->allocate(stream, bytes, align); });
    }
    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes, std::size_t align) noexcept {
        of->deallocate(stream, block, bytes, align);
    }
};

} // namespace detail

/// Serves requests from bins of one size each, and passes those on to its upstream that are larger than every bin.
class binning_memory_resource : public ::rmm::detail::adaptor {
public:
    /// Without bins: add some before the first request.
    explicit binning_memory_resource(::rmm::detail::any_resource upstream)
        : binning_memory_resource(std::move(upstream), std::optional<std::pair<int, int>>{}) {}

    /// A bin for each power of two between.
    binning_memory_resource(::rmm::detail::any_resource upstream, std::int8_t min_size_exponent, std::int8_t max_size_exponent)
        : binning_memory_resource(std::move(upstream),
                                  std::optional<std::pair<int, int>>{{min_size_exponent, max_size_exponent}}) {}

    /// Has a bin serve requests of up to that size: a resource, or one of fixed size over the upstream. A `logic_error` after the
    /// first request. Where there is a bin of that size, it goes on to serve.
    void add_bin(std::size_t allocation_size, std::optional<device_async_resource_ref> bin_resource = std::nullopt) {
        std::optional<::rmm::detail::any_resource> bin;
        if (bin_resource) {
            bin.emplace(*bin_resource);
        }
        bins_->add(allocation_size, std::move(bin));
    }

    using adaptor::allocate;
    using adaptor::allocate_sync;
    using adaptor::deallocate;
    using adaptor::deallocate_sync;

    [[nodiscard]] void *allocate(::alluvion::stream_view stream, std::size_t bytes, std::size_t align = default_alignment) const {
        return bytes == 0 ? bins_->allocate_nothing(stream, align) : adaptor::allocate(stream, bytes, align);
    }
    void deallocate(::alluvion::stream_view stream, void *block, std::size_t bytes,
                    std::size_t align = default_alignment) const noexcept {
        bytes == 0 ? bins_->deallocate_nothing(stream, block, align) : adaptor::deallocate(stream, block, bytes, align);
    }
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = default_alignment) const {
        return bytes == 0 ? bins_->allocate_nothing(cuda_stream_view{}, align) : adaptor::allocate_sync(bytes, align);
    }
    void deallocate_sync(void *block, std::size_t bytes, std::size_t align = default_alignment) const noexcept {
        bytes == 0 ? bins_->deallocate_nothing(cuda_stream_view{}, block, align) : adaptor::deallocate_sync(block, bytes, align);
    }

private:
    binning_memory_resource(::rmm::detail::any_resource upstream, std::optional<std::pair<int, int>> exponents)
        : binning_memory_resource(std::make_shared<detail::bins>(upstream, exponents),
                                  std::move(upstream)) {}

    binning_memory_resource(std::shared_ptr<detail::bins> bins, ::rmm::detail::any_resource &&upstream)
        : adaptor(::rmm::detail::from_program(detail::bins_source{bins}, ::rmm::detail::blocks::handed_on), std::move(upstream)),
          bins_(std::move(bins)) {}

    std::shared_ptr<detail::bins> bins_;
};

ALLUVION_COMPAT_RMM_RECOGNISE(binning_memory_resource)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
