//! The CUDA array interface of other libraries' arrays.

use alluvion::{Error, StreamRef};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::stream::StreamHandle;

/// A one-dimensional contiguous array, as its `__cuda_array_interface__` describes it.
pub(super) struct ArrayInterface {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// The stream that the array is safe to use on.
    stream: Option<StreamHandle>,
}

impl ArrayInterface {
    /// What `object` says of itself.
    pub(super) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let Some(interface) = object.getattr_opt(intern!(py, "__cuda_array_interface__"))? else {
            return Err(PyValueError::new_err(format!(
                "Expected object with the protocol `__cuda_array_interface__`, got {}",
                object.get_type().name()?
            )));
        };
        let Ok(interface) = interface.cast_into::<PyDict>() else {
            return Err(PyValueError::new_err("`__cuda_array_interface__` must be a dict"));
        };
        let entry = |key: &str| {
            interface
                .get_item(key)?
                .filter(|value| !value.is_none())
                .ok_or_else(|| PyValueError::new_err(format!("`__cuda_array_interface__` has no '{key}'")))
        };
        let (address, _): (Option<u64>, bool) = entry("data")?.extract()?;
        let shape = entry("shape")?.cast_into::<PyTuple>()?;
        let type_string: String = entry("typestr")?.extract()?;
        let item_bytes = type_string
            .get(2..)
            .filter(|_| type_string.is_ascii())
            .and_then(|digits| digits.parse::<usize>().ok())
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| PyValueError::new_err(format!("'{type_string}' is no type of elements")))?;
        if let Some(mask) = interface.get_item("mask")?
            && !mask.is_none()
        {
            return Err(PyValueError::new_err("Masked arrays are not supported: `mask` must be None"));
        }
        let of_form = || PyValueError::new_err("Only 1-D contiguous arrays are supported");
        if shape.len() != 1 {
            return Err(of_form());
        }
        let count: usize = shape.get_item(0)?.extract()?;
        if let Some(strides) = interface.get_item("strides")?
            && !strides.is_none()
        {
            let strides = strides.cast_into::<PyTuple>()?;
            let is_contiguous = strides.len() == 1
                && strides.get_item(0)?.extract::<i64>().is_ok_and(|stride| stride == item_bytes as i64);
            if !is_contiguous {
                return Err(of_form());
            }
        }
        let bytes = count.checked_mul(item_bytes).ok_or_else(|| {
            PyValueError::new_err(format!("{count} elements of {item_bytes} bytes are too large"))
        })?;
        if bytes > 0 && address.is_none_or(|address| address == 0) {
            return Err(PyValueError::new_err(format!(
                "{bytes} bytes are at no address: `data` of the interface is 0"
            )));
        }
        let stream = match interface.get_item("stream")? {
            Some(stream) if !stream.is_none() => {
                let number: u64 = stream.extract()?;
                if number == 0 {
                    return Err(PyValueError::new_err(
                        "`stream` 0 is ambiguous in `__cuda_array_interface__`: pass 1 for the legacy stream, 2 for the \
                         thread's own",
                    ));
                }
                // The interface says nothing of who keeps the stream: it lives during this call, as the array does.
                Some(StreamHandle::from_number(number, None))
            }
            _ => None,
        };
        Ok(Self { address: address.unwrap_or(0), bytes, stream })
    }

    /// Makes the work that is submitted to `stream` next come after what the array's own stream has now.
    pub(super) fn order(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        match &self.stream {
            Some(own) => own.with(stream.device(), |own| stream.wait_for_stream(own)),
            None => Ok(()),
        }
    }
}
