// The same as `device/prefetch_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/prefetch_resource_adaptor.hpp"
