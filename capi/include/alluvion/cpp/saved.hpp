// What outlives its process?
#ifndef ALLUVION_CPP_SAVED_HPP
#define ALLUVION_CPP_SAVED_HPP

#include "resource.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

ALLUVION_BEGIN

/// A file that blocks are written to, each under a name. It has its name when `finish` has returned, and not before: until then, and if the
/// process dies, a file that had the name is there as it was. A `saver` moves, and is empty then; one that ends before leaves nothing.
class saver {
public:
    /// Begins a file that will be at `path`.
    explicit saver(std::string_view path) {
        auto const text = ::alluvion::detail::c_text<default_errors>(path);
        ::alluvion::detail::check(alv_saver_create(text.c_str(), &handle_));
    }

    saver(saver &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    saver &operator=(saver &&other) noexcept {
        saver taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    saver(saver const &) = delete;
    saver &operator=(saver const &) = delete;
    ~saver() { alv_saver_release(handle_); }

    /// Writes `bytes` bytes of memory of the device of `stack`, behind what `stream` does. Waits until they are written. After an
    /// exception the blocks before are kept, and the name can be written again.
    void save(std::string_view name, resource const &stack, void const *block, std::size_t bytes, stream_view stream) {
        auto const text = ::alluvion::detail::c_text<default_errors>(name);
        ::alluvion::detail::check(
            alv_saver_save_raw(handle_, stack.native_handle(), text.c_str(), block, bytes, stream.resolved()));
    }

    /// Completes the file, and gives it its name; says how long it is. A file that had the name is replaced.
    std::uint64_t finish() {
        std::uint64_t bytes = 0;
        ::alluvion::detail::check(alv_saver_finish(handle_, &bytes));
        return bytes;
    }

    [[nodiscard]] alv_saver *native_handle() const noexcept { return handle_; }

private:
    alv_saver *handle_ = nullptr;
};

/// A file of blocks that a `saver` has written, on this machine or another one. It moves, and is empty then.
class saved_file {
public:
    /// Opens a file. Throws `error` for one that was cut short, is damaged, or is no such file, and says which.
    explicit saved_file(std::string_view path) {
        auto const text = ::alluvion::detail::c_text<default_errors>(path);
        ::alluvion::detail::check(alv_saved_open(text.c_str(), &handle_));
    }

    saved_file(saved_file &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    saved_file &operator=(saved_file &&other) noexcept {
        saved_file taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    saved_file(saved_file const &) = delete;
    saved_file &operator=(saved_file const &) = delete;
    ~saved_file() { alv_saved_release(handle_); }

    /// The names of the blocks, in the order in which they were saved.
    [[nodiscard]] std::vector<std::string> names() const {
        std::size_t count = 0;
        ::alluvion::detail::check(alv_saved_count(handle_, &count));
        std::vector<std::string> found;
        for (std::size_t place = 0; place < count; ++place) {
            std::size_t needed = 0;
            ::alluvion::detail::check(alv_saved_name(handle_, place, nullptr, 0, &needed));
            std::string name(needed + 1, '\0');
            ::alluvion::detail::check(alv_saved_name(handle_, place, name.data(), name.size(), nullptr));
            name.pop_back();
            found.push_back(std::move(name));
        }
        return found;
    }

    /// The bytes of a block.
    [[nodiscard]] std::uint64_t bytes(std::string_view name) const {
        auto const text = ::alluvion::detail::c_text<default_errors>(name);
        std::uint64_t found = 0;
        ::alluvion::detail::check(alv_saved_bytes(handle_, text.c_str(), &found));
        return found;
    }

    /// Reads a block into memory of the device of `stack` that is as long. Waits until it is there. After an exception about what is read
    /// the memory has arbitrary bytes, and it can be called again.
    void restore(std::string_view name, resource const &stack, void *block, std::size_t bytes, stream_view stream) {
        auto const text = ::alluvion::detail::c_text<default_errors>(name);
        ::alluvion::detail::check(
            alv_saved_restore_raw(handle_, stack.native_handle(), text.c_str(), block, bytes, stream.resolved()));
    }

    [[nodiscard]] alv_saved *native_handle() const noexcept { return handle_; }

private:
    alv_saved *handle_ = nullptr;
};

ALLUVION_END

#endif
