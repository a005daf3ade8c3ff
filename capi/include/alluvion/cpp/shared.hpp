// What do other processes use?
#ifndef ALLUVION_CPP_SHARED_HPP
#define ALLUVION_CPP_SHARED_HPP

#include "buffer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace alluvion {

/// The bytes by which other processes open a block, to be sent by whatever means.
using message = std::vector<unsigned char>;

/// The figures that a message has of the block.
using message_info = ::alv_message;

/// The memory of other processes that a device has open, and the memory of its own that waits for others.
using sharing_figures = ::alv_sharing;

/// How a block is shared: to be read, unless it says otherwise. An empty directory is `/dev/shm`.
struct share_options {
    bool writable = false;
    std::string directory = {};
};

/// How memory of another process is opened: to be read, on its own device. An empty directory is `/dev/shm`.
struct open_options {
    bool writable = false;
    bool peer = false;
    std::string directory = {};
};

/// Reads what a message says, and opens nothing.
[[nodiscard]] inline message_info read_message(message const &sent) {
    message_info info = ALV_INIT(message_info);
    // Null is no message, and an empty vector may have it.
    unsigned char const none = 0;
    detail::check(alv_message_read(sent.empty() ? &none : sent.data(), sent.size(), &info));
    return info;
}

[[nodiscard]] inline sharing_figures sharing_of(device_id device = current_device) {
    sharing_figures figures = ALV_INIT(sharing_figures);
    detail::check(alv_sharing_of(nullptr, device.value(), &figures));
    return figures;
}

/// Frees the blocks whose `shared` went while other processes had them, and that no process has any more. Answers how many.
inline std::size_t sweep_shared(device_id device = current_device) {
    std::size_t freed = 0;
    detail::check(alv_sharing_sweep(nullptr, device.value(), &freed));
    return freed;
}

} // namespace alluvion

ALLUVION_BEGIN

/// A buffer that other processes can open, until it is ended.
///
/// A `shared` moves, and is empty then. If one goes while another process has the buffer, the library keeps the block, and frees it
/// when no process has it any more: at a later share, or by `sweep_shared`. The destructor waits for the stream of the buffer.
class shared {
public:
    /// Shares a buffer, and takes it over. What others do follows what the stream of the buffer has been given until now. If this
    /// throws, the buffer is what it was.
    explicit shared(buffer &&block, share_options const &how = {}) {
        auto const directory = ::alluvion::detail::c_text<default_errors>(how.directory);
        alv_share_options options = ALV_INIT(alv_share_options);
        options.flags = how.writable ? ALV_SHARE_WRITABLE : 0;
        options.directory = directory.empty() ? nullptr : directory.c_str();
        ::alluvion::detail::check(alv_share_raw(block.memory_resource().native_handle(), block.data(), block.size(),
                                                block.alignment(), &options, block.stream().resolved(), &handle_));
        block_ = std::move(block);
    }

    shared(shared &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)), block_(std::move(other.block_)) {}
    shared &operator=(shared &&other) noexcept {
        shared taken(std::move(other));
        std::swap(handle_, taken.handle_);
        block_.swap(taken.block_);
        return *this;
    }
    shared(shared const &) = delete;
    shared &operator=(shared const &) = delete;
    ~shared() { let_go(); }

    /// The bytes by which other processes open the buffer.
    [[nodiscard]] ::alluvion::message message() const {
        ::alluvion::message sent(ALV_MESSAGE_BYTES);
        std::size_t length = 0;
        ::alluvion::detail::check(alv_shared_message(handle_, sent.data(), sent.size(), &length));
        sent.resize(length);
        return sent;
    }

    /// The descriptor to send beside the message, over a Unix socket; -1 for memory that needs none. It stays the library's.
    [[nodiscard]] int descriptor() const noexcept { return alv_shared_descriptor(handle_); }

    /// How many processes have it open.
    [[nodiscard]] std::size_t importers() const {
        std::size_t count = 0;
        ::alluvion::detail::check(alv_shared_importers(handle_, &count));
        return count;
    }

    /// The buffer, whose bytes others may see.
    [[nodiscard]] buffer const &block() const noexcept { return block_; }
    [[nodiscard]] buffer &block() noexcept { return block_; }

    /// Waits until no process has it open, and gives the buffer back. One that lives has it until it lets go.
    [[nodiscard]] buffer end() {
        ::alluvion::detail::check(alv_shared_end(handle_, -1));
        return give_back();
    }

    /// As `end`, but waits no longer than that: nothing, and it is shared as before, if a process still has it.
    [[nodiscard]] std::optional<buffer> try_end(std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
        auto const limit = patience.count() < 0 ? 0 : static_cast<std::int64_t>(patience.count());
        alv_status const status = alv_shared_end(handle_, limit);
        if (status == ALV_IN_USE) {
            return std::nullopt;
        }
        ::alluvion::detail::check(status);
        return give_back();
    }

    [[nodiscard]] alv_shared *native_handle() const noexcept { return handle_; }

private:
    buffer give_back() noexcept {
        alv_shared_release(std::exchange(handle_, nullptr));
        return std::move(block_);
    }

    void let_go() noexcept {
        if (handle_ == nullptr) {
            return;
        }
        // A block that nobody else has goes back with the buffer. One that cannot be parked either leaks: others may be at work on it.
        if (alv_shared_end(handle_, 0) != ALV_OK) {
            static_cast<void>(alv_shared_park_raw(handle_, block_.stream().resolved()));
            static_cast<void>(block_.release());
        }
        alv_shared_release(std::exchange(handle_, nullptr));
    }

    alv_shared *handle_ = nullptr;
    buffer block_;
};

/// Memory that another process shares, open in this one.
///
/// An `imported` moves, and is empty then. Its destructor waits, on the host, for the work on the stream that it was opened on, behind
/// which the caller has ordered all uses; the exporter may free the memory then.
class imported {
public:
    /// Opens what a message describes, which came with a descriptor or without, on the device of a stream. The descriptor stays the
    /// caller's. Waits for what the exporter had done with the memory when it shared it.
    explicit imported(::alluvion::message const &sent, int descriptor, stream const &home, open_options const &how = {}) {
        open(how, [&](alv_open_options const &options) {
            return alv_open_shared_on(home.native_handle(), bytes_of(sent), sent.size(), descriptor, &options, &handle_);
        });
    }

    /// On a stream of somebody else's, which stays valid until this goes.
    explicit imported(::alluvion::message const &sent, int descriptor, stream_view home, open_options const &how = {},
                      device_id device = current_device) {
        open(how, [&](alv_open_options const &options) {
            return alv_open_shared_raw(device.value(), bytes_of(sent), sent.size(), descriptor, &options, home.resolved(),
                                       &handle_);
        });
    }

    imported(imported &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), range_(std::exchange(other.range_, ALV_INIT(alv_range))) {}
    imported &operator=(imported &&other) noexcept {
        imported taken(std::move(other));
        std::swap(handle_, taken.handle_);
        std::swap(range_, taken.range_);
        return *this;
    }
    imported(imported const &) = delete;
    imported &operator=(imported const &) = delete;
    ~imported() { alv_imported_release(handle_); }

    [[nodiscard]] void const *data() const noexcept { return range_.data; }

    /// To be written; null if it was opened to be read.
    [[nodiscard]] void *writable_data() noexcept { return is_writable() ? range_.data : nullptr; }

    [[nodiscard]] std::size_t size() const noexcept { return range_.bytes; }
    [[nodiscard]] bool is_empty() const noexcept { return range_.bytes == 0; }
    [[nodiscard]] bool is_writable() const noexcept { return (range_.flags & ALV_OPEN_WRITABLE) != 0; }

    /// The bytes of the allocation or the pages that they lie in: what lies beside them is the exporter's.
    [[nodiscard]] std::size_t visible_bytes() const noexcept { return range_.visible_bytes; }

    /// The device that opened it.
    [[nodiscard]] device_id device() const noexcept { return device_id(range_.device); }

    [[nodiscard]] alv_imported *native_handle() const noexcept { return handle_; }

private:
    template <class Call>
    void open(open_options const &how, Call const &call) {
        auto const directory = ::alluvion::detail::c_text<default_errors>(how.directory);
        alv_open_options options = ALV_INIT(alv_open_options);
        options.flags = (how.writable ? ALV_OPEN_WRITABLE : 0) | (how.peer ? ALV_OPEN_PEER : 0);
        options.directory = directory.empty() ? nullptr : directory.c_str();
        ::alluvion::detail::check(call(options));
        // It cannot fail: the handle was made just now.
        static_cast<void>(alv_imported_range(handle_, &range_));
    }

    /// Null is no message, and an empty vector may have it.
    static void const *bytes_of(::alluvion::message const &sent) noexcept {
        static unsigned char const none = 0;
        return sent.empty() ? &none : sent.data();
    }

    alv_imported *handle_ = nullptr;
    alv_range range_ = ALV_INIT(alv_range);
};

ALLUVION_END

#endif
