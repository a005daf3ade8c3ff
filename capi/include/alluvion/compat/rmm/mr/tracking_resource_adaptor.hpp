// Which blocks are out?
#ifndef ALLUVION_COMPAT_RMM_MR_TRACKING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_TRACKING_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"

#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
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
namespace ALLUVION_COMPAT_RMM_MR {

/// Records every block that is out, and refuses to free a block that is not.
class tracking_resource_adaptor : public ::rmm::detail::adaptor {
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

    tracking_resource_adaptor(::rmm::detail::any_resource upstream, bool capture_stacks = false)
        : adaptor(capture_stacks ? "tracking(stacks=all)" : "tracking", std::move(upstream), ::rmm::detail::blocks::handed_on) {}

    /// The blocks that are out now, by their addresses.
    [[nodiscard]] std::map<void *, allocation_info> get_outstanding_allocations() const {
        std::map<void *, allocation_info> blocks;
        outstanding([&blocks](alv_block const &block) {
            std::string const line = block.call_site;
            auto trace = line.empty() ? nullptr : std::make_shared<::rmm::detail::stack_trace const>(line);
            blocks.emplace(block.address, allocation_info{std::move(trace), block.bytes, line});
        });
        return blocks;
    }

    /// The bytes of the blocks that are out.
    [[nodiscard]] std::size_t get_allocated_bytes() const {
        std::size_t bytes = 0;
        outstanding([&bytes](alv_block const &block) { bytes += block.bytes; });
        return bytes;
    }

    /// A line for each block that is out, oldest first; empty without one.
    [[nodiscard]] std::string get_outstanding_allocations_str() const {
        std::ostringstream text;
        outstanding([&text](alv_block const &block) {
            text << block.address << ": " << block.bytes << " B";
            if (*block.call_site != '\0') {
                text << " : " << block.call_site;
            }
            text << '\n';
        });
        return text.str();
    }

    /// Writes these lines to the standard error stream.
    void log_outstanding_allocations() const { std::cerr << get_outstanding_allocations_str(); }
};

ALLUVION_COMPAT_RMM_RECOGNISE(tracking_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
