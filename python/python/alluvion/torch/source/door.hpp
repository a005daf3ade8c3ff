// What the door calls of the package `alluvion` of this process.
#ifndef ALLUVION_TORCH_DOOR_HPP
#define ALLUVION_TORCH_DOOR_HPP

#include <alluvion/door.h>

#include <c10/util/Exception.h>

#include <exception>
#include <optional>
#include <utility>

namespace alluvion_torch {

// The functions of the package, which the module sets when it is imported.
inline alv_door_table const *&table() noexcept {
    static alv_door_table const *functions = nullptr;
    return functions;
}

// What a body answers that runs without the interpreter. PyTorch holds its own lock while it asks for segments and gives them back,
// where our functions let go of the interpreter and take it again: meanwhile another thread could have it, and wait for that lock.
template <typename Body> auto detached(Body body) {
    struct state {
        Body &body;
        std::optional<decltype(body())> answer;
        std::exception_ptr thrown;
    } call{body, std::nullopt, nullptr};
    (void)table()->detached(
        [](void *context) {
            auto &call = *static_cast<state *>(context);
            try {
                call.answer.emplace(call.body());
            } catch (...) {
                call.thrown = std::current_exception();
            }
        },
        &call);
    if (call.thrown) std::rethrow_exception(call.thrown);
    TORCH_CHECK(call.answer.has_value(), "alluvion: ", table()->last_error_message());
    return std::move(*call.answer);
}

} // namespace alluvion_torch

#endif
