// What happened?
#ifndef ALLUVION_COMPAT_RMM_MR_LOGGING_RESOURCE_ADAPTOR_HPP
#define ALLUVION_COMPAT_RMM_MR_LOGGING_RESOURCE_ADAPTOR_HPP

#include "../detail/factory.hpp"

#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <utility>

ALLUVION_COMPAT_RMM_BEGIN
namespace ALLUVION_COMPAT_RMM_MR {

/// Writes every allocation and free to a file, in RMM's format.
class logging_resource_adaptor : public ::rmm::detail::adaptor {
public:
    /// A thread of the log writes it, which no allocation waits for: `auto_flush` changes nothing. `flush` waits.
    logging_resource_adaptor(::rmm::detail::any_resource upstream, std::string const &filename = get_default_filename(),
                             [[maybe_unused]] bool auto_flush = false)
        : adaptor("logging(file=" + ::rmm::detail::quoted(in_its_folder(filename)) + ")", std::move(upstream), ::rmm::detail::blocks::handed_on) {}

    /// Writes what has happened so far.
    void flush() { flush_log(); }

    /// The first row of the file.
    [[nodiscard]] std::string header() const { return "Thread,Time,Action,Pointer,Size,Stream"; }

    /// What `RMM_LOG_FILE` in the environment names; a `logic_error` without it, and in a program that runs with the rights of others.
    static std::string get_default_filename() {
        char const *const named = ::secure_getenv("RMM_LOG_FILE");
        if (named == nullptr) {
            throw logic_error("a log without a name, and no RMM_LOG_FILE in the environment");
        }
        return named;
    }

private:
    /// Makes the folders of a file that are missing, as RMM's log does. Where that fails, opening the file says why.
    static std::string const &in_its_folder(std::string const &filename) {
        for (std::size_t end = filename.find('/', 1); end != std::string::npos; end = filename.find('/', end + 1)) {
            static_cast<void>(::mkdir(filename.substr(0, end).c_str(), 0777));
        }
        return filename;
    }
};

ALLUVION_COMPAT_RMM_RECOGNISE(logging_resource_adaptor)

} // namespace ALLUVION_COMPAT_RMM_MR
ALLUVION_COMPAT_RMM_END

#endif
