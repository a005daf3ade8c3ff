// What is thrown? The exceptions of RMM, under their names.
#ifndef ALLUVION_COMPAT_RMM_ERROR_HPP
#define ALLUVION_COMPAT_RMM_ERROR_HPP

#include "detail/alone.hpp"

#include <new>
#include <stdexcept>
#include <string>

namespace rmm {

/// A precondition that does not hold.
struct ALLUVION_VISIBLE logic_error : public std::logic_error {
    using std::logic_error::logic_error;
};

/// A failure of CUDA.
struct ALLUVION_VISIBLE cuda_error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A request that fails. `what()` begins with `std::bad_alloc: `.
class ALLUVION_VISIBLE bad_alloc : public std::bad_alloc {
public:
    bad_alloc(char const *message) : bad_alloc(std::string(message)) {}
    bad_alloc(std::string const &message) : text_("std::bad_alloc: " + message) {}

    [[nodiscard]] char const *what() const noexcept override { return text_.what(); }

private:
    // A text whose copies cannot throw, as those of an exception must not.
    std::runtime_error text_;
};

/// There is not enough memory.
class ALLUVION_VISIBLE out_of_memory : public bad_alloc {
public:
    out_of_memory(char const *message) : out_of_memory(std::string(message)) {}
    out_of_memory(std::string const &message) : bad_alloc("out_of_memory: " + message) {}
};

/// An index beyond the end.
class ALLUVION_VISIBLE out_of_range : public std::out_of_range {
    using std::out_of_range::out_of_range;
};

/// An argument that no call accepts.
class ALLUVION_VISIBLE invalid_argument : public std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

} // namespace rmm

#endif
