// What a file of this program says of the streams that 0 means in it. Every function that is inline is one for the linker, if its
// name is one: at the end each file must still have had its own.
#ifndef ALLUVION_TESTS_MODES_HPP
#define ALLUVION_TESTS_MODES_HPP

#include <alluvion.h>

/// The streams that a source of the file has been called with for the default stream of C++ and of each container, and what it says
/// itself.
struct seen {
    alv_cuda_stream of_a_call = nullptr;
    alv_cuda_stream of_a_buffer = nullptr;
    alv_cuda_stream of_an_erased_call = nullptr;
    bool is_per_thread = false;
    bool is_legacy = false;
    /// What a function of the program is called with, for a call of the C interface on the legacy stream, is the legacy stream for
    /// it.
    bool legacy_stays_legacy = false;
};

seen in_a_legacy_file();
seen in_a_per_thread_file();

#endif
