// The same as `device/polymorphic_allocator.hpp`, where RMM 25.12 has it.
#include "device/polymorphic_allocator.hpp"
