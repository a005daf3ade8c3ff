// `door.hpp` over a table of functions that counts: copies, equality, and which exception of RMM is which status.
#include "door.hpp"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

// Named by headers of CCCL in a build that optimises nothing, and called by nobody here.
extern "C" char const *cudaGetErrorString(cudaError_t) { return ""; }

namespace {

long counts[2];
int32_t answer = ALV_DOOR_OK;
char blocks[2];

long *of(alv_door_handle const *handle) { return reinterpret_cast<long *>(const_cast<alv_door_handle *>(handle)); }

void retain(alv_door_handle const *handle) {
    if (handle != nullptr) ++*of(handle);
}
void release(alv_door_handle const *handle) {
    if (handle != nullptr) --*of(handle);
}
int32_t allocate(alv_door_handle const *, size_t, size_t, alv_door_stream, void **block) {
    *block = answer == ALV_DOOR_OK ? blocks : nullptr;
    return answer;
}
void deallocate(alv_door_handle const *, void *, size_t, size_t, alv_door_stream) {}
char const *message() { return "said by the table"; }
int32_t equal(alv_door_handle const *one, alv_door_handle const *other) { return one == other; }

void require(bool holds, char const *what) {
    if (!holds) {
        std::fprintf(stderr, "copies.cpp: %s\n", what);
        std::exit(1);
    }
}

template <class Exception, class Call>
void expect(int32_t status, Call call) {
    answer = status;
    bool caught = false;
    try {
        call();
    } catch (Exception const &error) {
        caught = std::string(error.what()).find("said by the table") != std::string::npos;
    } catch (std::exception const &) {
    }
    answer = ALV_DOOR_OK;
    require(caught, ("another exception for status " + std::to_string(status)).c_str());
}

} // namespace

int main() {
    alv_door_table functions{};
    functions.retain = retain;
    functions.release = release;
    functions.allocate = allocate;
    functions.deallocate = deallocate;
    functions.last_error_message = message;
    functions.equal = equal;
    alluvion_rapids::table() = &functions;

    {
        alluvion_rapids::stack one(&counts[0]), other(&counts[1]);
        require(counts[0] == 1 && counts[1] == 1, "a handle has one count");
        alluvion_rapids::stack copy(one);
        require(counts[0] == 2 && copy == one && !(copy == other), "a copy is one more count, and equal");
        alluvion_rapids::stack moved(std::move(copy));
        require(counts[0] == 2 && moved == one, "a move takes the count");
        moved = other;
        require(counts[0] == 1 && counts[1] == 2 && moved == other, "an assignment counts");
        auto &same = moved;
        moved = same;
        require(counts[1] == 2, "an assignment to itself changes nothing");
    }
    require(counts[0] == 0 && counts[1] == 0, "all counts go back");

    alluvion_rapids::stack stack(&counts[0]);
    auto const request = [&] { stack.take(100, 0, nullptr); };
    request();
    expect<rmm::out_of_memory>(ALV_DOOR_OUT_OF_MEMORY, request);
    for (int32_t status : {ALV_DOOR_SIZE_OVERFLOW, ALV_DOOR_INVALID_ALIGNMENT, ALV_DOOR_UNSUPPORTED_ALIGNMENT})
        expect<rmm::bad_alloc>(status, request);
    expect<rmm::out_of_range>(ALV_DOOR_OUT_OF_RANGE, request);
    for (int32_t status :
         {ALV_DOOR_NO_DEVICE, ALV_DOOR_NO_DRIVER, ALV_DOOR_CAPTURE, ALV_DOOR_CONTEXT_LOST, ALV_DOOR_SHUT_DOWN, ALV_DOOR_DRIVER})
        expect<rmm::cuda_error>(status, request);
    // What is not known yet, too.
    for (int32_t status : {int32_t{ALV_DOOR_DEVICE_MISMATCH}, int32_t{ALV_DOOR_ASLEEP}, int32_t{ALV_DOOR_PANIC}, int32_t{999}})
        expect<rmm::logic_error>(status, request);

#if !defined(ALLUVION_RAPIDS_BASE_CLASS)
    {
        alluvion_rapids::resource resource(&counts[1]);
        require(counts[1] == 1, "a resource has one count");
        cuda::mr::any_resource<cuda::mr::device_accessible> erased{resource};
        require(counts[1] == 2, "an erased one has one more");
        auto copy = erased;
        require(counts[1] == 3 && copy == erased, "and so has its copy, which is equal");
        auto moved = std::move(copy);
        require(counts[1] == 3, "a move takes it");
        rmm::device_async_resource_ref borrowed{resource};
        require(counts[1] == 3, "a reference has none");
        alluvion_rapids::resource other(&counts[0]);
        cuda::mr::any_resource<cuda::mr::device_accessible> of_other{other};
        require(!(of_other == erased), "another stack is another resource");
    }
    require(counts[1] == 0, "all counts of resources go back");
#endif
    return 0;
}
