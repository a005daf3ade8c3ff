# distutils: language = c++
# cython: language_level=3
"""A resource of RMM over a stack of Alluvion: for RMM up to 26.04, whose resources derive from a class and are held by pointers."""

from rmm.librmm.memory_resource cimport device_memory_resource
from rmm.pylibrmm.memory_resource cimport DeviceMemoryResource


cdef extern from *:
    """
    #include "door.hpp"
    #include <rmm/version_config.hpp>
    static int alluvion_rapids_begin() {
        alluvion_rapids::table() = alv_door_import();
        return alluvion_rapids::table() != nullptr ? 0 : -1;
    }
    static void *alluvion_rapids_handle(PyObject *stack) {
        return alv_door_handle_of(alluvion_rapids::table(), stack);
    }
    static void alluvion_rapids_release(void *handle) {
        alluvion_rapids::table()->release(static_cast<alv_door_handle *>(handle));
    }
    """
    int RMM_VERSION_MAJOR
    int RMM_VERSION_MINOR
    cdef cppclass resource "alluvion_rapids::resource"(device_memory_resource):
        resource(void *) except +
    int alluvion_rapids_begin() except -1
    void *alluvion_rapids_handle(object) except NULL
    void alluvion_rapids_release(void *) noexcept


alluvion_rapids_begin()

#: The version of RMM that this was compiled for.
built_for = (RMM_VERSION_MAJOR, RMM_VERSION_MINOR)


cdef class Resource(DeviceMemoryResource):
    """A resource over the stack that is the first argument."""

    def __cinit__(self, stack, *_args, **_kwargs):
        cdef void *handle = alluvion_rapids_handle(stack)
        try:
            self.c_obj.reset(<device_memory_resource *>new resource(handle))
        finally:
            alluvion_rapids_release(handle)
