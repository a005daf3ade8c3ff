// The same as `device/statistics_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/statistics_resource_adaptor.hpp"
