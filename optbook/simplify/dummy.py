"""Data made up after one real output: the same structure, shapes, data types and devices, other values.

Numbers are the sample's own in another order, so that they keep their range (indices stay valid) and their
distribution. What can't be made up (objects of other classes, texts) is the sample's own.
"""

from __future__ import annotations

import random
from typing import Any

from optbook.simplify import trees

_SEED = 20
_PLAIN_MODES = frozenset(("L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I;16", "LA"))


def dummy(sample: Any) -> Any:
    """A value like ``sample``.

    Containers (tuples, named tuples, lists, sets, dictionaries, dataclasses) keep their form. Tensors keep
    shape, dtype, device, strides, layout, pinning and requires_grad, but are leaves of no graph; arrays keep
    shape, dtype and strides; pictures size and mode. Random state is left alone.
    """
    return trees.mapped(sample, _leaf)


def _leaf(value: Any) -> Any:
    if trees.is_tensor(value):
        return _tensor(value)
    if trees.is_array(value):
        return _array(value)
    if trees.is_picture(value):
        return _picture(value)
    if isinstance(value, (bytes, bytearray)):
        return type(value)(random.Random(_SEED).randbytes(len(value)))
    return value


def _tensor(tensor: Any) -> Any:
    import torch

    with torch.no_grad():
        made = _made_up(tensor.detach())
        if tensor.device.type == "cpu" and tensor.is_pinned():
            made = made.pin_memory()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def _made_up(tensor: Any) -> Any:
    import torch

    if tensor.is_meta:
        return torch.empty_like(tensor)
    if type(tensor) is not torch.Tensor or tensor.is_quantized or tensor.is_nested:
        return tensor.clone()
    if tensor.layout is torch.sparse_coo:
        coalesced = tensor.is_coalesced()
        values = _shuffled(tensor._values())
        return torch.sparse_coo_tensor(
            tensor._indices().clone(), values, tensor.shape, is_coalesced=coalesced, check_invariants=False
        )
    if tensor.layout is not torch.strided:
        return tensor.clone()
    distinct = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    made = torch.empty_strided(distinct.shape, distinct.stride(), dtype=tensor.dtype, device=tensor.device)
    try:
        made.copy_(_shuffled(distinct.reshape(-1)).reshape(distinct.shape))
    except RuntimeError:  # windows that overlap can't be written to
        return tensor.clone()
    return made.as_strided(tensor.shape, tensor.stride())


def _shuffled(flat: Any) -> Any:
    import torch

    order = torch.randperm(flat.shape[0], generator=torch.Generator().manual_seed(_SEED))
    return flat[order.to(flat.device)]


def _array(array: Any) -> Any:
    import numpy

    made = numpy.empty_like(array)
    if array.dtype.hasobject:
        made[...] = array
    else:
        made[...] = numpy.random.default_rng(_SEED).permutation(array.reshape(-1)).reshape(array.shape)
    made.flags.writeable = array.flags.writeable
    return made


def _picture(picture: Any) -> Any:
    from PIL import Image

    if picture.mode not in _PLAIN_MODES:
        return picture.copy()
    size = len(picture.tobytes())
    return Image.frombytes(picture.mode, picture.size, random.Random(_SEED).randbytes(size))
