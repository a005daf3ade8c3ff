// The same as `device/owning_wrapper.hpp`, where RMM 25.12 has it.
#include "device/owning_wrapper.hpp"
