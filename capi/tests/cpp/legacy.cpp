// The macros of the first RMM with pointers of every type, as C++ programs call them.
#include "expect.hpp"

#include <alluvion/rmm_legacy.h>

namespace {

struct point {
    double x, y;
};

template <class T>
void by_type() {
    T *block = nullptr;
    EXPECT(RMM_ALLOC(&block, 100 * sizeof(T), 0) == RMM_SUCCESS);
    EXPECT(block != nullptr);
    EXPECT(RMM_REALLOC(&block, 200 * sizeof(T), nullptr) == RMM_SUCCESS);
    EXPECT(block != nullptr);
    T *const freed = block;
    EXPECT(RMM_REALLOC(&block, 0, nullptr) == RMM_SUCCESS);
    EXPECT(block == nullptr);
    EXPECT(RMM_FREE(freed, nullptr) == RMM_ERROR_INVALID_ARGUMENT);
    EXPECT(RMM_ALLOC(&block, 8, nullptr) == RMM_SUCCESS);
    EXPECT(RMM_FREE(block, nullptr) == RMM_SUCCESS);
    // A failure leaves null.
    EXPECT(RMM_ALLOC(&block, std::size_t{1} << 50, nullptr) == RMM_ERROR_OUT_OF_MEMORY);
    EXPECT(block == nullptr);
    T **const nowhere = nullptr;
    EXPECT(RMM_ALLOC(nowhere, 0, nullptr) == RMM_SUCCESS);
    EXPECT(RMM_ALLOC(nowhere, 4, nullptr) == RMM_ERROR_INVALID_ARGUMENT);
    EXPECT(RMM_REALLOC(nowhere, 0, nullptr) == RMM_SUCCESS);
    EXPECT(RMM_REALLOC(nowhere, 4, nullptr) == RMM_ERROR_INVALID_ARGUMENT);
}

rmmError_t ends_at_the_first_error(bool &passed) {
    passed = false;
    RMM_TRY(rmmFinalize());
    char *block = nullptr;
    RMM_TRY(RMM_ALLOC(&block, 4, 0));
    passed = true;
    return RMM_SUCCESS;
}

// A name of another library's beside ours.
namespace rmm {
int alloc() { return 1; }
} // namespace rmm

} // namespace

int main() {
    {
        test::sim sim;
        by_type<char>();
        rmmOptions_t options = {static_cast<rmmAllocationMode_t>(PoolAllocation | CudaManagedMemory), 1 << 20, false};
        EXPECT(rmmInitialize(&options) == RMM_SUCCESS);
        by_type<char>();
        by_type<point>();
        by_type<const float>();
        by_type<volatile int>();
        by_type<int *>();
        void *block = nullptr;
        EXPECT(RMM_ALLOC(&block, 100, 0) == RMM_SUCCESS);
        EXPECT(RMM_ALLOC(NULL, 0, 0) == RMM_SUCCESS);
        EXPECT(RMM_ALLOC(nullptr, 4, 0) == RMM_ERROR_INVALID_ARGUMENT);
        EXPECT(RMM_FREE(block, 0) == RMM_SUCCESS);
        EXPECT(RMM_FREE(nullptr, 0) == RMM_SUCCESS);
        bool passed = true;
        EXPECT(ends_at_the_first_error(passed) == RMM_ERROR_NOT_INITIALIZED);
        EXPECT(!passed);
        EXPECT(rmm::alloc() == 1);
    }
    return test::failures == 0 ? 0 : 1;
}
