// The same as `device/failure_callback_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/failure_callback_resource_adaptor.hpp"
