// How is this file compiled? Which default stream does 0 mean, and which CCCL is there?
#ifndef ALLUVION_CPP_CONFIGURATION_HPP
#define ALLUVION_CPP_CONFIGURATION_HPP

#if !defined(__cplusplus) || (__cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L))
#error "alluvion.hpp needs C++17: compile with -std=c++17 or later, or include alluvion.h"
#endif

#if defined(__GNUC__) && !defined(__EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(__CUDACC__)
#error "alluvion.hpp throws: compile without -fno-exceptions, or include alluvion.h, whose functions answer a status"
#endif

#include "../../alluvion.h"

// A linker keeps one of several inline functions with one name. Two files of a program may mean different streams by 0, and types
// of CCCL keep functions of ours. So each type that translates a stream has the meaning of 0 in its name: a program whose files
// were compiled in both ways has two types, and one that hands the one to the other does not link. They exchange `native_handle()`.
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define ALLUVION_PER_THREAD_DEFAULT_STREAM 1
#define ALLUVION_STREAMS_NAMESPACE zero_is_the_stream_of_the_thread
#else
#define ALLUVION_PER_THREAD_DEFAULT_STREAM 0
#define ALLUVION_STREAMS_NAMESPACE zero_is_the_legacy_stream
#endif

// Around every type of ours that knows streams.
#define ALLUVION_BEGIN \
    namespace alluvion { \
    inline namespace ALLUVION_STREAMS_NAMESPACE {
#define ALLUVION_END \
    } \
    }

// Exceptions pass between shared libraries by their names, also where a library hides what it does not export.
#if defined(__GNUC__)
#define ALLUVION_VISIBLE __attribute__((visibility("default")))
#define ALLUVION_COLD __attribute__((cold, noinline))
#else
#define ALLUVION_VISIBLE
#define ALLUVION_COLD
#endif

// ALLUVION_CCCL is the version of CCCL whose `cuda::mr` this file can use, or 0. Before 3.1 the concept is there if the program
// asks for it before its first header of CCCL; without that, and with ALLUVION_NO_CCCL, nothing of CCCL is included or named here.
#define ALLUVION_CCCL 0
#if !defined(ALLUVION_NO_CCCL) && defined(__has_include)
#if __has_include(<cuda/version>) && __has_include(<cuda/memory_resource>) && __has_include(<cuda_runtime_api.h>)
#include <cuda/version>
#if defined(CCCL_VERSION)
#if CCCL_VERSION >= 3001000 || (CCCL_VERSION >= 2003000 && defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE))
#undef ALLUVION_CCCL
#define ALLUVION_CCCL CCCL_VERSION
#include <cuda/memory_resource>
#endif
#endif
#endif
#endif

#endif
