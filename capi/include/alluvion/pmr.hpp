// Memory of the host and the device for the containers of `std::pmr`.
#ifndef ALLUVION_PMR_HPP
#define ALLUVION_PMR_HPP

#include "../alluvion.hpp"

#include <cstddef>
#include <memory_resource>
#include <utility>

ALLUVION_BEGIN

/// A resource of memory that the host may use, as a `std::pmr::memory_resource`. Its blocks are for every stream at once.
class pmr_resource : public std::pmr::memory_resource {
public:
    explicit pmr_resource(host_device_resource upstream) noexcept : upstream_(std::move(upstream)) {}

    [[nodiscard]] host_device_resource const &upstream() const noexcept { return upstream_; }

private:
    // A block of no bytes has an address here, which no other block has meanwhile.
    static std::size_t at_least_one(std::size_t bytes) noexcept { return bytes == 0 ? 1 : bytes; }

    void *do_allocate(std::size_t bytes, std::size_t align) override {
        return upstream_.allocate_sync(at_least_one(bytes), align);
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
        upstream_.deallocate_sync(block, at_least_one(bytes), align);
    }

    [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const &other) const noexcept override {
        auto const *same = dynamic_cast<pmr_resource const *>(&other);
        return same != nullptr && same->upstream_ == upstream_;
    }

    host_device_resource upstream_;
};

ALLUVION_END

#endif
