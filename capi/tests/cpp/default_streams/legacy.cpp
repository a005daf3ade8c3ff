#undef CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "look.hpp"

seen in_a_legacy_file() { return look(); }
