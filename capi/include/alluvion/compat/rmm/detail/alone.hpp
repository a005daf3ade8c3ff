// Is RMM itself in this file? These headers stand in its place, and never beside it.
#ifndef ALLUVION_COMPAT_RMM_DETAIL_ALONE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_ALONE_HPP

#if defined(RMM_VERSION_MAJOR) && !defined(ALLUVION_COMPAT_RMM)
#error "alluvion/compat/rmm stands in the place of RMM, which this file has included: include alluvion/rmm.hpp beside it"
#endif
#define ALLUVION_COMPAT_RMM 1

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

// Around every type that knows streams: what 0 means is in its name, as in alluvion.hpp.
#define ALLUVION_COMPAT_RMM_BEGIN \
    namespace rmm { \
    inline namespace ALLUVION_STREAMS_NAMESPACE {
#define ALLUVION_COMPAT_RMM_END \
    } \
    }

// Whether `cuda::mr` has the types that RMM's functions take since 26.06: from CCCL 3.2 on. Without them a handle of ours is in
// their place, and a reference is a count of it.
#if ALLUVION_CCCL >= 3002000
#define ALLUVION_COMPAT_RMM_CCCL 1
#else
#define ALLUVION_COMPAT_RMM_CCCL 0
#endif

#endif
