// What if memory comes from two functions of the program?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_CALLBACK_MEMORY_RESOURCE_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_CALLBACK_MEMORY_RESOURCE_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/callback_memory_resource.hpp"
#include "../../detail/layer.hpp"

#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

using handles::allocate_callback_t;
using handles::deallocate_callback_t;

/// Memory of the current device from two functions. See the class of that name in `alluvion/compat`.
class callback_memory_resource final : public ::rmm::detail::object_of<handles::callback_memory_resource> {
public:
    callback_memory_resource(allocate_callback_t allocate_callback, deallocate_callback_t deallocate_callback,
                             void *allocate_callback_arg = nullptr, void *deallocate_callback_arg = nullptr)
        : object_of(of{}, std::move(allocate_callback), std::move(deallocate_callback), allocate_callback_arg, deallocate_callback_arg) {}
};

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
