//! `DeviceView`: the bytes of a buffer as elements of another type and shape.

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, intern};

use super::{DeviceBuffer, Snapshot};
use crate::dlpack;
use crate::error::{During, raise};

/// The type of the elements: as NumPy writes it, and as DLPack numbers it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ElementType {
    name: &'static str,
    type_string: &'static str,
    pub(crate) code: u8,
    bytes: usize,
}

const fn element(name: &'static str, type_string: &'static str, code: u8, bytes: usize) -> ElementType {
    ElementType { name, type_string, code, bytes }
}

/// The codes of DLPack: 0 int, 1 unsigned int, 2 float, 4 bfloat, 5 complex, 6 bool.
const ELEMENT_TYPES: [ElementType; 15] = [
    element("uint8", "|u1", 1, 1),
    element("int8", "|i1", 0, 1),
    element("bool", "|b1", 6, 1),
    element("uint16", "<u2", 1, 2),
    element("int16", "<i2", 0, 2),
    element("float16", "<f2", 2, 2),
    element("bfloat16", "<V2", 4, 2),
    element("uint32", "<u4", 1, 4),
    element("int32", "<i4", 0, 4),
    element("float32", "<f4", 2, 4),
    element("uint64", "<u8", 1, 8),
    element("int64", "<i8", 0, 8),
    element("float64", "<f8", 2, 8),
    element("complex64", "<c8", 5, 8),
    element("complex128", "<c16", 5, 16),
];

impl ElementType {
    pub(crate) const fn bits(self) -> u8 {
        // At most 16 bytes.
        (8 * self.bytes) as u8
    }

    /// The type that a name, a type string of NumPy, a `dtype` or a class such as `numpy.float32` or `float` stands for.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let name: String = if let Ok(text) = object.cast::<PyString>() {
            text.to_cow()?.into_owned()
        } else if let Ok(class) = object.cast::<PyType>() {
            match class.name()?.to_cow()?.as_ref() {
                "float" => "float64".into(),
                "int" => "int64".into(),
                "complex" => "complex128".into(),
                "bool_" => "bool".into(),
                name => name.into(),
            }
        } else if let Some(text) = object.getattr_opt(intern!(py, "str"))? {
            text.extract()?
        } else {
            return Err(PyTypeError::new_err(format!(
                "Argument 'dtype' has incorrect type (expected str or numpy.dtype, got {})",
                object.get_type().name()?
            )));
        };
        let bare = name.trim_start_matches(['<', '|', '=']);
        let found = ELEMENT_TYPES.iter().find(|known| known.name == name || &known.type_string[1..] == bare);
        found.copied().ok_or_else(|| {
            PyValueError::new_err(format!(
                "'{name}' is no type of elements: pass one such as 'float32' or '<f4'"
            ))
        })
    }
}

/// A compact array: the type of its elements, and its shape.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<i64>,
}

impl Form {
    /// `bytes` unsigned bytes in one dimension.
    pub(crate) fn bytes(bytes: usize) -> Self {
        Self { element: ELEMENT_TYPES[0], shape: vec![bytes as i64] }
    }

    /// How many bytes it takes. `None` if no address can name them.
    pub(crate) fn total_bytes(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape
            .iter()
            .try_fold(self.element.bytes, |bytes, &length| bytes.checked_mul(usize::try_from(length).ok()?))
    }

    /// The strides in elements, in the order of C.
    pub(crate) fn strides(&self) -> Vec<i64> {
        let mut strides = vec![1_i64; self.shape.len()];
        for place in (1..self.shape.len()).rev() {
            // An array without elements may have lengths whose product is no number, and steps that nobody takes.
            strides[place - 1] = strides[place].saturating_mul(self.shape[place].max(1));
        }
        strides
    }

    fn of(bytes: usize, dtype: &Bound<'_, PyAny>, shape: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let element = ElementType::of(dtype)?;
        let count = bytes / element.bytes;
        let Some(shape) = shape else {
            if !bytes.is_multiple_of(element.bytes) {
                return Err(PyValueError::new_err(format!(
                    "{bytes} bytes are no whole number of elements of {} bytes",
                    element.bytes
                )));
            }
            return Ok(Self { element, shape: vec![count as i64] });
        };
        let mut shape = match shape.extract::<i64>() {
            Ok(length) => vec![length],
            Err(_) => shape.extract::<Vec<i64>>()?,
        };
        let unknown: Vec<usize> =
            shape.iter().enumerate().filter(|(_, length)| **length == -1).map(|(place, _)| place).collect();
        let known = shape
            .iter()
            .filter(|length| **length != -1)
            .try_fold(1_usize, |product, &length| product.checked_mul(usize::try_from(length).ok()?));
        let does_not_fit = || {
            PyValueError::new_err(format!(
                "a view of shape {shape:?} with elements of {} bytes does not fit into {bytes} bytes",
                element.bytes
            ))
        };
        let is_empty = unknown.is_empty() && shape.contains(&0) && shape.iter().all(|length| *length >= 0);
        let known = if is_empty { 0 } else { known.ok_or_else(does_not_fit)? };
        match unknown[..] {
            [] => {
                let wanted = known.checked_mul(element.bytes);
                if wanted.is_none_or(|wanted| wanted > bytes) {
                    return Err(does_not_fit());
                }
            }
            [place] if known > 0 && count.is_multiple_of(known) && bytes.is_multiple_of(element.bytes) => {
                shape[place] = (count / known) as i64;
            }
            _ => return Err(does_not_fit()),
        }
        Ok(Self { element, shape })
    }
}

/// The bytes of a buffer as elements of another type and shape, without a copy. It keeps the buffer.
///
/// >>> import alluvion
/// >>> with alluvion.simulated():
/// ...     view = alluvion.DeviceBuffer(size=24).view("float32", (2, 3))
/// ...     view.shape, view.dtype
/// ((2, 3), '<f4')
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct DeviceView {
    buffer: Py<DeviceBuffer>,
    form: Form,
}

impl DeviceView {
    /// A view of `buffer`.
    pub(super) fn of(
        buffer: &Bound<'_, DeviceBuffer>,
        dtype: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let form = Form::of(buffer.get().snapshot(buffer.py())?.size, dtype, shape)?;
        Ok(Self { buffer: buffer.clone().unbind(), form })
    }

    fn bytes(&self) -> usize {
        self.form.total_bytes().unwrap_or(0)
    }

    /// What the buffer has now, if that is enough still.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let of = self.buffer.get().snapshot(py)?;
        if self.bytes() > of.size {
            return Err(PyBufferError::new_err(format!(
                "the view has {} bytes, and its buffer was resized to {}",
                self.bytes(),
                of.size
            )));
        }
        Ok(of)
    }
}

#[pymethods]
impl DeviceView {
    /// The buffer.
    #[getter]
    fn base(&self, py: Python<'_>) -> Py<DeviceBuffer> {
        self.buffer.clone_ref(py)
    }

    /// The address of the first element.
    #[getter]
    fn ptr(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.snapshot(py)?.address())
    }

    /// How many bytes the elements take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes()
    }

    /// The type of the elements, as NumPy writes it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.form.element.type_string
    }

    /// The shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.form.shape)
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.form.shape.first() {
            Some(length) => Ok(*length as usize),
            None => Err(PyTypeError::new_err("len() of a view without dimensions")),
        }
    }

    /// The CUDA array interface.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.snapshot(py)?;
        if let Some(memory) = &of.memory {
            raise(py, memory.device().require(memory.device()), During::Other)?;
        }
        let is_read_only = of.memory.as_ref().is_some_and(|memory| memory.is_read_only());
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "data"), (of.address(), is_read_only))?;
        interface.set_item(intern!(py, "shape"), self.shape(py)?)?;
        interface.set_item(intern!(py, "strides"), py.None())?;
        interface.set_item(intern!(py, "typestr"), self.form.element.type_string)?;
        interface.set_item(intern!(py, "version"), 3)?;
        let stream = of.stream.number();
        interface.set_item(intern!(py, "stream"), if stream == 0 { 1 } else { stream })?;
        Ok(interface)
    }

    /// The DLPack device: its type and its number.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        dlpack::device_of(py, &self.snapshot(py)?)
    }

    /// A DLPack capsule of the elements, which are safe to use on `stream`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drop(self.snapshot(py)?);
        let wish = dlpack::Wish { stream, max_version, dl_device, copy };
        dlpack::export(self.buffer.bind(py), &self.form, &wish)
    }

    fn __repr__(&self) -> String {
        format!("DeviceView(shape={:?}, dtype='{}')", self.form.shape, self.form.element.name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.buffer)
    }
}
