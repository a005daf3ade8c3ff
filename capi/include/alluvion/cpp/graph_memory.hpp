// What of a stack belongs to a captured graph?
#ifndef ALLUVION_CPP_GRAPH_MEMORY_HPP
#define ALLUVION_CPP_GRAPH_MEMORY_HPP

#include "resource.hpp"

#include <cstddef>
#include <utility>

ALLUVION_BEGIN

/// Memory of a stack that belongs to the graph that a stream captures: made right after the capture has begun, and kept beside the graph.
///
/// Until `end`, what is allocated from the stack on the stream comes from it. It moves, and is empty then. Its destructor gives nothing back:
/// a graph has its memory for ever, unless `release` has said that the graph is gone.
class graph_memory {
public:
    graph_memory(resource const &stack, stream_view stream) {
        ::alluvion::detail::check(alv_capture_raw(stack.native_handle(), stream.resolved(), &handle_));
    }

    graph_memory(graph_memory &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    graph_memory &operator=(graph_memory &&other) noexcept {
        graph_memory taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    graph_memory(graph_memory const &) = delete;
    graph_memory &operator=(graph_memory const &) = delete;
    ~graph_memory() { alv_graph_memory_release(handle_); }

    /// Ends the allocations for this graph: when the capture has ended, or is given up.
    void end() { ::alluvion::detail::check(alv_graph_memory_end(handle_)); }

    /// The bytes that the graph has of the pool.
    [[nodiscard]] std::size_t bytes() const noexcept { return alv_graph_memory_bytes(handle_); }

    /// Gives the memory back to the pool; says how much. The graph is gone, with all that can be launched of it, and its launches are over:
    /// that is the caller's promise. Throws, and changes nothing, while a block of it is out.
    std::size_t release() {
        std::size_t given_back = 0;
        ::alluvion::detail::check(alv_graph_memory_give_back(handle_, &given_back));
        return given_back;
    }

    [[nodiscard]] alv_graph_memory *native_handle() const noexcept { return handle_; }

private:
    alv_graph_memory *handle_ = nullptr;
};

ALLUVION_END

#endif
