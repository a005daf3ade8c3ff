// What happened?
#ifndef ALLUVION_COMPAT_25_RMM_MR_DEVICE_LOGGING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_25_RMM_MR_DEVICE_LOGGING_RESOURCE_ADAPTOR_HPP

#include "../../detail/age.hpp"
#include "../../../../compat/rmm/mr/logging_resource_adaptor.hpp"
#include "../../detail/layer.hpp"

#include <string>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace mr {

/// Writes every allocation and free to a file, in RMM's format.
template <class Upstream>
class logging_resource_adaptor final : public ::rmm::detail::layer<Upstream, handles::logging_resource_adaptor> {
    using base = ::rmm::detail::layer<Upstream, handles::logging_resource_adaptor>;

public:
    /// A thread of the log writes it, which no allocation waits for: `auto_flush` changes nothing. `flush` waits. Without a name it is that
    /// of `RMM_LOG_FILE` in the environment.
    explicit logging_resource_adaptor(Upstream *upstream, std::string const &filename = get_default_filename(), bool auto_flush = false)
        : base(upstream, filename, auto_flush) {}
    explicit logging_resource_adaptor(device_async_resource_ref upstream, std::string const &filename = get_default_filename(),
                                      bool auto_flush = false)
        : base(std::move(upstream), filename, auto_flush) {}

    /// Writes what has happened so far.
    void flush() { this->handle_.flush(); }

    /// The first row of the file.
    [[nodiscard]] std::string header() const { return this->handle_.header(); }

    static std::string get_default_filename() { return handles::logging_resource_adaptor::get_default_filename(); }
};

template <class Upstream, class... Rest>
logging_resource_adaptor(Upstream *, Rest...) -> logging_resource_adaptor<Upstream>;
template <class Upstream, class... Rest, ::rmm::detail::if_object<Upstream> = 0>
logging_resource_adaptor(Upstream &, Rest...) -> logging_resource_adaptor<Upstream>;
template <class... Rest>
logging_resource_adaptor(device_async_resource_ref, Rest...) -> logging_resource_adaptor<device_memory_resource>;

template <class Upstream>
logging_resource_adaptor<Upstream> make_logging_adaptor(
    Upstream *upstream, std::string const &filename = logging_resource_adaptor<Upstream>::get_default_filename(),
    bool auto_flush = false) {
    return logging_resource_adaptor<Upstream>{upstream, filename, auto_flush};
}

} // namespace mr
ALLUVION_COMPAT_RMM_END

#include "../../detail/usual.hpp"

#endif
