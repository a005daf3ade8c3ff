// The module `alluvion.torch._compiled`.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "allocator.hpp"

namespace {

using alluvion_torch::allocator;
using alluvion_torch::table;

// Calls a body that may throw; null, with an exception of Python's, if it does.
template <typename Body> PyObject *call(Body body) {
    try {
        return body();
    } catch (std::exception const &error) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
}

void release(std::vector<std::pair<c10::DeviceIndex, alv_door_handle *>> const &stacks) {
    for (auto const &[index, stack] : stacks) table()->release(stack);
}

PyObject *install(PyObject *, PyObject *stacks) {
    return call([stacks]() -> PyObject * {
        if (!PyDict_Check(stacks)) {
            PyErr_SetString(PyExc_TypeError, "stacks by the numbers of their devices");
            return nullptr;
        }
        if (allocator::the().is_installed()) {
            PyErr_SetString(PyExc_RuntimeError, "it is installed already: uninstall it first");
            return nullptr;
        }
        auto *const there = c10::cuda::CUDACachingAllocator::get();
        if (there->name() != "native" || !there->isEnabled()) {
            PyErr_Format(PyExc_RuntimeError,
                         "PyTorch's allocator is %s%s in this process, and this takes the place of its native one alone: leave out "
                         "`backend:` in PYTORCH_CUDA_ALLOC_CONF, `torch.cuda.memory.change_current_allocator` and "
                         "`torch.cuda.caching_allocator_enable(False)`",
                         there->name().c_str(), there->isEnabled() ? "" : ", disabled,");
            return nullptr;
        }
        std::vector<std::pair<c10::DeviceIndex, alv_door_handle *>> counted;
        Py_ssize_t at = 0;
        PyObject *index = nullptr, *stack = nullptr;
        while (PyDict_Next(stacks, &at, &index, &stack)) {
            long const number = PyLong_AsLong(index);
            alv_door_handle *const handle = PyErr_Occurred() ? nullptr : alv_door_handle_of(table(), stack);
            bool const is_known = number >= 0 && number < 128;
            if (handle != nullptr && is_known && table()->device_of(handle) == number) {
                counted.emplace_back(static_cast<c10::DeviceIndex>(number), handle);
                continue;
            }
            if (handle != nullptr) table()->release(handle);
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "the stack of device %ld is of another device", number);
            release(counted);
            return nullptr;
        }
        allocator::the().install(counted);
        Py_RETURN_NONE;
    });
}

// While it lives, this thread is without the interpreter, whatever is thrown.
class without_interpreter {
public:
    without_interpreter() : state_(PyEval_SaveThread()) {}
    ~without_interpreter() { PyEval_RestoreThread(state_); }
    without_interpreter(without_interpreter const &) = delete;
    without_interpreter &operator=(without_interpreter const &) = delete;

private:
    PyThreadState *state_;
};

PyObject *uninstall(PyObject *, PyObject *) {
    return call([]() -> PyObject * {
        if (!allocator::the().is_installed()) {
            PyErr_SetString(PyExc_RuntimeError, "it is not installed");
            return nullptr;
        }
        allocator::in_use used;
        {
            without_interpreter const guard;
            std::vector<alv_door_handle *> stacks;
            used = allocator::the().uninstall(stacks);
            for (alv_door_handle *const stack : stacks) table()->release(stack);
        }
        if (used.any()) {
            PyErr_Format(PyExc_RuntimeError,
                         "it stays installed, because memory of it is in use: %zu blocks, %zu segments of graphs and pools of PyTorch's, and "
                         "%zu pools that are open",
                         used.blocks, used.segments, used.pools);
            return nullptr;
        }
        Py_RETURN_NONE;
    });
}

PyObject *is_installed(PyObject *, PyObject *) { return PyBool_FromLong(allocator::the().is_installed()); }

PyMethodDef functions[] = {
    {"install", install, METH_O, "Makes tensors come from stacks, which a dict has by the numbers of their devices."},
    {"uninstall", uninstall, METH_NOARGS, "Makes tensors come from PyTorch's own memory again."},
    {"is_installed", is_installed, METH_NOARGS, "Whether tensors come from stacks."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_compiled", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__compiled() {
    alv_door_table const *const functions_of_package = alv_door_import();
    if (functions_of_package == nullptr) return nullptr;
    if (!ALV_DOOR_HAS(functions_of_package, detached)) {
        PyErr_SetString(PyExc_ImportError, "this alluvion has version 1 of its table of functions without `detached`: it is too old");
        return nullptr;
    }
    table() = functions_of_package;
    PyObject *const made = PyModule_Create(&module);
    if (made != nullptr && PyModule_AddIntConstant(made, "built_for", ALLUVION_TORCH) < 0) {
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
