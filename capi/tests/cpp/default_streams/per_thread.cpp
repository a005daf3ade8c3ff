#undef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "look.hpp"

seen in_a_per_thread_file() { return look(); }
