// The same as `device/thrust_allocator_adaptor.hpp`, where RMM 25.12 has it.
#include "device/thrust_allocator_adaptor.hpp"
