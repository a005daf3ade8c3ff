#include "shared.hpp"

std::size_t size_of(rmm::device_buffer &buffer) { return buffer.size(); }
