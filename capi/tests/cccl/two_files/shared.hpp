// What two files of a program have between them.
#include <rmm/device_buffer.hpp>

std::size_t size_of(rmm::device_buffer &buffer);
