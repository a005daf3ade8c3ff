// Which exception of the program's own does a failure stand for?
//
// The library carries no exception of C++. A function of the program's that throws answers a number, which the error of the request
// has; the exception waits on the thread, where the request runs from its beginning to its end.
#ifndef ALLUVION_CPP_THROWN_HPP
#define ALLUVION_CPP_THROWN_HPP

#include "configuration.hpp"

#include <exception>
#include <limits>
#include <utility>

namespace alluvion::detail {

/// The last exception of a function of the program's on this thread, and its number.
class ALLUVION_VISIBLE thrown {
public:
    /// Keeps an exception, and answers the number that the function answers in its place.
    static alv_status keep(std::exception_ptr exception) noexcept {
        thrown &last = of_thread();
        last.exception_ = std::move(exception);
        // The next one, so that the error of an earlier request does not mean this exception.
        last.number_ = last.number_ == std::numeric_limits<alv_status>::max() ? ALV_OF_PROGRAM : last.number_ + 1;
        return last.number_;
    }

    /// Throws the exception with that number on, if it is the last one.
    static void again(alv_status number) {
        thrown &last = of_thread();
        if (number == last.number_ && last.exception_) {
            std::rethrow_exception(std::exchange(last.exception_, nullptr));
        }
    }

private:
    static thrown &of_thread() noexcept {
        static thread_local thrown last;
        return last;
    }

    std::exception_ptr exception_;
    alv_status number_ = ALV_OF_PROGRAM;
};

/// In the place of an exception that frees of memory would not help against, whatever its type says.
struct not_for_want_of_memory {
    std::exception_ptr exception;
};

} // namespace alluvion::detail

#endif
