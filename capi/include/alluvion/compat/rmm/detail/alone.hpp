// Is RMM itself in this file, or are headers of two of its ages? These headers stand in its place, and never beside it.
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ALONE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ALONE_HPP

#if defined(RMM_VERSION_MAJOR) && !defined(ALLUVION_COMPAT_RMM)
#error "alluvion/compat/rmm stands in the place of RMM, which this file has included: include alluvion/rmm.hpp beside it"
#endif
#if defined(ALLUVION_COMPAT_0)
#error "this file has headers of alluvion/compat_0, which follow the first RMM: a program takes one folder"
#endif
#define ALLUVION_COMPAT_RMM 1

// Whether the headers follow RMM 25.12 and before, where a resource is an object that others point to: the folder compat_25 says so
// before it comes here. Those of compat are of RMM 26.06 and later, where it is a value.
#ifndef ALLUVION_COMPAT_RMM_BY_POINTER
#define ALLUVION_COMPAT_RMM_BY_POINTER 0
#endif

#include "../../../../alluvion.hpp"

// RMM's headers after ours in one file do not compile either. Those before 26.10 define the same classes again. Later ones are in
// an inline namespace, whose name is taken here.
namespace rmm {
struct _RMM_26_10;
struct _RMM_26_12;
struct _RMM_27_02;
struct _RMM_27_04;
struct _RMM_27_06;
struct _RMM_27_08;
struct _RMM_27_10;
struct _RMM_27_12;
} // namespace rmm

// Whether `cuda::mr` has the types that RMM's functions take since 26.06: from CCCL 3.2 on. Without them a handle of ours is in
// their place, and a reference is a count of it: a container is half as large then.
#if ALLUVION_COMPAT_RMM_BY_POINTER
#define ALLUVION_COMPAT_RMM_CCCL 0
#define ALLUVION_COMPAT_RMM_RESOURCES with_resources_by_pointer
#elif ALLUVION_CCCL >= 3002000
#define ALLUVION_COMPAT_RMM_CCCL 1
#define ALLUVION_COMPAT_RMM_RESOURCES with_resources_of_cccl
#else
#define ALLUVION_COMPAT_RMM_CCCL 0
#define ALLUVION_COMPAT_RMM_RESOURCES without_resources_of_cccl
#endif

// Where the classes are that hold a handle each: by value they are RMM's own, by pointer those of RMM have one of them.
#if ALLUVION_COMPAT_RMM_BY_POINTER
#define ALLUVION_COMPAT_RMM_MR handles
#else
#define ALLUVION_COMPAT_RMM_MR mr
#endif

// Around every type that knows streams and resources. What 0 means is in its name, as in alluvion.hpp, and what its resource is: two
// files of a program that disagree do not link where one hands such a type to the other.
#define ALLUVION_COMPAT_RMM_BEGIN \
    namespace rmm { \
    inline namespace ALLUVION_STREAMS_NAMESPACE { \
    inline namespace ALLUVION_COMPAT_RMM_RESOURCES {
#define ALLUVION_COMPAT_RMM_END \
    } \
    } \
    }

#endif
