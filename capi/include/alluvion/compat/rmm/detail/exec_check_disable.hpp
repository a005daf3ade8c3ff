// How is a function said to be fine in code for both sides?
#ifndef ALLUVION_COMPAT_RMM_DETAIL_EXEC_CHECK_DISABLE_HPP
#define ALLUVION_COMPAT_RMM_DETAIL_EXEC_CHECK_DISABLE_HPP

#if defined(__CUDACC__) && defined(__NVCC__)
#define ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
#define ALLUVION_COMPAT_RMM_EXEC_CHECK_DISABLE
#endif

#endif
