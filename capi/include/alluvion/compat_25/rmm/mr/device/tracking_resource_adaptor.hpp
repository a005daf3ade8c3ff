// Which blocks are out?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_TRACKING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_TRACKING_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/tracking_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace detail {

/// Where a block was asked for, as text.
class stack_trace {
public:
    explicit stack_trace(std::string line) : line_(std::move(line)) {}

    friend std::ostream &operator<<(std::ostream &out, stack_trace const &trace) { return out << trace.line_; }

private:
    std::string line_;
};

} // namespace detail
namespace mr {

/// Records every block that is out, and refuses to free a block that is not.
template <class Upstream>
class tracking_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::tracking_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::tracking_resource_adaptor>;

public:
    /// What is known of a block.
    struct allocation_info {
        /// Where the program asked for it; null if call stacks are not captured.
        std::shared_ptr<::rmm::detail::stack_trace const> strace;
        /// The bytes that were asked for.
        std::size_t allocation_size;
        /// The line of the program that asked; empty if call stacks are not captured.
        std::string call_site;
    };

    explicit tracking_resource_adaptor(Upstream *upstream, bool capture_stacks = false) : base(upstream, capture_stacks), captures_(capture_stacks) {}
    explicit tracking_resource_adaptor(device_async_resource_ref upstream, bool capture_stacks = false) : base(std::move(upstream), capture_stacks), captures_(capture_stacks) {}

    /// The blocks that are out now, by their addresses.
    [[nodiscard]] std::map<void *, allocation_info> get_outstanding_allocations() const {
        std::map<void *, allocation_info> blocks;
        for (auto const &block : this->handle_.get_outstanding_allocations()) {
            std::string const &line = block.second.call_site;
            auto trace = captures_ ? std::make_shared<::rmm::detail::stack_trace const>(line) : nullptr;
            blocks.emplace(block.first, allocation_info{std::move(trace), block.second.allocation_size, line});
        }
        return blocks;
    }
    /// The bytes of the blocks that are out.
    [[nodiscard]] std::size_t get_allocated_bytes() const { return this->handle_.get_allocated_bytes(); }
    /// A line for each block that is out, oldest first; empty without one.
    [[nodiscard]] std::string get_outstanding_allocations_str() const { return this->handle_.get_outstanding_allocations_str(); }
    /// Writes these lines to the standard error stream.
    void log_outstanding_allocations() const { this->handle_.log_outstanding_allocations(); }

private:
    bool captures_;
};

template <class Upstream, class... Rest>
tracking_resource_adaptor(Upstream *, Rest...) -> tracking_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
tracking_resource_adaptor(Upstream &, Rest...) -> tracking_resource_adaptor<Upstream>;
template <class... Rest>
tracking_resource_adaptor(device_async_resource_ref, Rest...) -> tracking_resource_adaptor<device_memory_resource>;

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
