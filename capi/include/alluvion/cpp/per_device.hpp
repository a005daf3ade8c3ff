// How does every device get a stack?
#ifndef ALLUVION_CPP_PER_DEVICE_HPP
#define ALLUVION_CPP_PER_DEVICE_HPP

#include "resource.hpp"

#include <cstddef>
#include <string_view>
#include <vector>

ALLUVION_BEGIN

/// The stack of a recipe on every device, by the number of the device. If a device has none, there is none, and the message names the
/// device.
[[nodiscard]] inline std::vector<resource> per_device(std::string_view recipe) {
    auto const text = ::alluvion::detail::c_text<default_errors>(recipe);
    std::size_t count = 0;
    ::alluvion::detail::check(alv_resource_per_device(nullptr, text.c_str(), nullptr, 0, &count));
    std::vector<alv_resource *> handles(count);
    std::vector<resource> stacks;
    // Nothing throws once there are handles.
    stacks.reserve(count);
    ::alluvion::detail::check(alv_resource_per_device(nullptr, text.c_str(), handles.data(), count, nullptr));
    for (alv_resource *const handle : handles) {
        stacks.push_back(resource::adopt(handle));
    }
    return stacks;
}

ALLUVION_END

#endif
