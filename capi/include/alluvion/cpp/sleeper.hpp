// What of a stack sleeps, and until when?
#ifndef ALLUVION_CPP_SLEEPER_HPP
#define ALLUVION_CPP_SLEEPER_HPP

#include "resource.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace alluvion {

/// The figures of the blocks that sleep together.
using sleep_figures = ::alv_sleep_figures;

} // namespace alluvion

ALLUVION_BEGIN

/// Blocks of a stack that have given their memory back, and keep their addresses.
///
/// Whoever puts blocks to sleep promises that no work uses them until they are awake, neither work that is submitted meanwhile nor a
/// graph that is launched, and that no thread frees one while the constructor runs. The constructor waits for all work on the device.
///
/// A `sleeper` moves, and is empty then. Its destructor wakes nothing: blocks that sleep on have no memory until they are freed.
class sleeper {
public:
    /// Puts all of a stack to sleep, which refuses requests until it is awake; or what carries a tag, where scopes within each other have
    /// semicolons between them. The contents are arbitrary afterwards. The stack is a pool over pages, `pool | mapped`, under any
    /// layers that pass blocks on.
    explicit sleeper(resource const &stack, std::string_view tag = {}) : sleeper(stack, nullptr, tag) {}

    /// The same. The contents are kept in memory of `host`, such as `pool | pinned`, and restored.
    sleeper(resource const &stack, host_device_resource const &host, std::string_view tag = {})
        : sleeper(stack, host.native_handle(), tag) {}

    /// Puts one block to sleep, which keeps its address. All that uses it comes before what is on `stream` now. The contents are arbitrary
    /// afterwards.
    sleeper(resource const &stack, void *block, stream_view stream) : sleeper(stack, block, stream, nullptr) {}

    /// The same. The contents are kept in memory of `host`, and restored.
    sleeper(resource const &stack, void *block, stream_view stream, host_device_resource const &host)
        : sleeper(stack, block, stream, host.native_handle()) {}

    /// As the first. The contents are kept in a file of `folder`, and restored: for more than the host has room for. The file goes when they
    /// are back, or with the sleeper; a process that is killed leaves it. Throws `error` with `ALV_UNWRITABLE` where it cannot be written:
    /// nothing sleeps then.
    [[nodiscard]] static sleeper on_disk(resource const &stack, std::string_view folder, std::string_view tag = {}) {
        sleeper made;
        auto const place = ::alluvion::detail::c_text<default_errors>(folder);
        auto const text = ::alluvion::detail::c_text<default_errors>(tag);
        ::alluvion::detail::check(
            alv_sleep_on_disk(stack.native_handle(), tag.empty() ? nullptr : text.c_str(), place.c_str(), &made.handle_));
        return made;
    }

    /// The same for one block, which keeps its address. All that uses it comes before what is on `stream` now.
    [[nodiscard]] static sleeper on_disk(resource const &stack, void *block, stream_view stream, std::string_view folder) {
        sleeper made;
        auto const place = ::alluvion::detail::c_text<default_errors>(folder);
        ::alluvion::detail::check(
            alv_sleep_block_on_disk_raw(stack.native_handle(), block, stream.resolved(), place.c_str(), &made.handle_));
        return made;
    }

    sleeper(sleeper &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    sleeper &operator=(sleeper &&other) noexcept {
        sleeper taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    sleeper(sleeper const &) = delete;
    sleeper &operator=(sleeper const &) = delete;
    ~sleeper() { alv_sleeper_release(handle_); }

    /// Gives the blocks memory again, at the addresses that they had, and restores what was kept. Waits until that is over. Nothing if they
    /// are awake. Throws `out_of_memory` if memory is short: everything sleeps on then, nothing is lost, and it can be called again.
    void wake() { ::alluvion::detail::check(alv_wake(handle_)); }

    /// Reads `bytes` bytes of what is kept in memory of the host, from an address of a block on, while the block sleeps: into `into`, which has as
    /// many. Throws `error` with `ALV_INVALID_ARGUMENT`, with nothing written, where not all of them lie in one block of the sleeper, nothing was
    /// kept, a file has it, or the blocks are awake; and with `ALV_IN_USE` while another thread wakes them.
    void read_kept(void const *from, void *into, std::size_t bytes) const {
        ::alluvion::detail::check(alv_sleeper_read_kept(handle_, from, into, bytes));
    }

    [[nodiscard]] sleep_figures figures() const {
        sleep_figures found = ALV_INIT(sleep_figures);
        ::alluvion::detail::check(alv_sleeper_figures(handle_, &found));
        return found;
    }

    [[nodiscard]] bool is_asleep() const { return figures().asleep != 0; }

    [[nodiscard]] alv_sleeper *native_handle() const noexcept { return handle_; }

private:
    sleeper() noexcept = default;

    sleeper(resource const &stack, alv_resource *host, std::string_view tag) {
        auto const text = ::alluvion::detail::c_text<default_errors>(tag);
        ::alluvion::detail::check(alv_sleep(stack.native_handle(), tag.empty() ? nullptr : text.c_str(), host, &handle_));
    }

    sleeper(resource const &stack, void *block, stream_view stream, alv_resource *host) {
        ::alluvion::detail::check(alv_sleep_block_raw(stack.native_handle(), block, stream.resolved(), host, &handle_));
    }

    alv_sleeper *handle_ = nullptr;
};

ALLUVION_END

#endif
