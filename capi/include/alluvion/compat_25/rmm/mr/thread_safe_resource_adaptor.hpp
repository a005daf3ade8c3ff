// The same as `device/thread_safe_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/thread_safe_resource_adaptor.hpp"
