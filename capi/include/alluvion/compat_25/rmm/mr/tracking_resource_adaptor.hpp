// The same as `device/tracking_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/tracking_resource_adaptor.hpp"
