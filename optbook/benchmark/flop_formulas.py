"""How many FLOPs an operator does, from its arguments: PyTorch's own formulas, and corrections to them.

Convention: a multiply-add is two FLOPs; only contractions are counted (matrix products, convolutions,
attention, recurrent layers), as executed: attention that recomputes its scores in the backward pass does that
work again, padding is work, and causal attention counts as full, although a kernel may skip half of it.
Bias, activations, normalisation, pooling, optimizers and other pointwise work count as nothing; how much of
the time they take is the coverage's business. A complex multiply-add is eight FLOPs. Integers (quantised
layers among them) and sparse layouts are not counted.

Source of what is not corrected: `torch.utils.flop_counter`, whose registry is read, so that operators which
others registered there count here too. Wrong or missing in torch 2.13, and given here:

- attention on the CPU, recurrent layers by oneDNN, cuDNN, MIOpen and MPS, the fused inference kernels of
  `MultiheadAttention` and `TransformerEncoderLayer`, `Bilinear`, matrix-vector and dot products, and in-place
  and batch-reducing matrix products: all count as 0 there;
- the weight gradient of a grouped convolution: counted as often as there are groups;
- complex products: counted as if they were real; integer and sparse ones: counted as if they were not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

Formula = Callable[[Sequence[Any], Any], int]
"""(positional arguments, result) → FLOPs."""


def matrix_product(a: Sequence[int], b: Sequence[int]) -> int:
    """(…, m, k) × (…, k, n), with equal leading dimensions."""
    return 2 * prod(a) * b[-1]


def convolution(x: Sequence[int], w: Sequence[int], out: Sequence[int], transposed: bool) -> int:
    """Each place of the output (transposed: of the input) meets every weight once, whatever the groups.

    Shapes: ``x`` (n, channels, …); ``w`` (out channels, in channels ÷ groups, …) or, transposed,
    (in channels, out channels ÷ groups, …). Each of the two gradients is as much work as the forward pass.
    """
    places = (x if transposed else out)[2:]
    return 2 * x[0] * prod(places) * prod(w)


def attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], products: int = 2) -> int:
    """Shapes (…, heads, length, width). Scores and their product with the values; key heads may be shared.

    ``products``: 2 forward, 5 backward: the scores again, and the gradients of values, scores, query, key.
    """
    scores = prod(query[:-1]) * key[-2]
    of_keys, of_values = (products + 1) // 2, products // 2
    return 2 * scores * (of_keys * query[-1] + of_values * value[-1])


def recurrent(x: Sequence[int], weights: Sequence[Sequence[int]]) -> int:
    """``x`` (…, features): each matrix in ``weights``, of all layers and directions, acts at every place."""
    return 2 * prod(x[:-1]) * sum(prod(w) for w in weights if len(w) == 2)


def self_attention(query: Sequence[int], key: Sequence[int]) -> int:
    """A whole attention layer, batch first: four projections of the width and the attention between them."""
    batch, of_query, width = query
    of_key = key[1]
    projections = 2 * width**2 * batch * 2 * (of_query + of_key)
    return projections + 4 * batch * of_query * of_key * width


def trilinear(
    shapes: Sequence[Sequence[int]], expanded: Sequence[Sequence[int]], summed: Sequence[int]
) -> int:
    """The sum over ``summed`` of a product of three tensors that lack the dimensions in ``expanded``.

    The first two are contracted first, over the summed dimensions that the third lacks; then the third.
    """
    sizes: dict[int, int] = {}
    has: list[set[int]] = []
    total = len(shapes[0]) + len(expanded[0])
    for shape, lacking in zip(shapes, expanded, strict=True):
        own = [dim for dim in range(total) if dim not in lacking]
        sizes |= dict(zip(own, shape, strict=True))
        has.append(set(own))
    pair = has[0] | has[1]
    left = pair - (set(summed) - has[2])
    return 2 * prod(sizes[dim] for dim in pair) + 2 * prod(sizes[dim] for dim in left | has[2])


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _matrix_product(first: int) -> Formula:
    """Of the arguments from ``first`` on."""
    return lambda args, out: matrix_product(_shape(args[first]), _shape(args[first + 1]))


def _dot(args: Sequence[Any], out: Any) -> int:
    return 2 * int(args[0].numel())


def _matrix_vector(first: int) -> Formula:
    return lambda args, out: 2 * int(args[first].numel())


def _convolution(args: Sequence[Any], out: Any) -> int:
    return convolution(_shape(args[0]), _shape(args[1]), _shape(out), bool(args[6]))


def _plain_convolution(args: Sequence[Any], out: Any) -> int:
    return convolution(_shape(args[0]), _shape(args[1]), _shape(out), transposed=False)


def _convolution_backward(args: Sequence[Any], out: Any) -> int:
    gradient, x, w, transposed, mask = args[0], args[1], args[2], bool(args[7]), args[10]
    return (bool(mask[0]) + bool(mask[1])) * convolution(_shape(x), _shape(w), _shape(gradient), transposed)


def _linear(args: Sequence[Any], out: Any) -> int:
    return 2 * int(args[0].numel()) * int(args[1].shape[0])


def _linear_backward(args: Sequence[Any], out: Any) -> int:
    x, w, mask = args[0], args[2], args[3]
    return (bool(mask[0]) + bool(mask[1])) * 2 * int(x.numel()) * int(w.shape[0])


def _attention(args: Sequence[Any], out: Any) -> int:
    return attention(_shape(args[0]), _shape(args[1]), _shape(args[2]))


def _attention_backward(args: Sequence[Any], out: Any) -> int:
    return attention(_shape(args[1]), _shape(args[2]), _shape(args[3]), products=5)


def _one_recurrent_layer(args: Sequence[Any], out: Any) -> int:
    return recurrent(_shape(args[0]), [_shape(args[1]), _shape(args[2])])


def _one_recurrent_layer_backward(args: Sequence[Any], out: Any) -> int:
    return 2 * _one_recurrent_layer(args, out)


def _recurrent(weights: int) -> Formula:
    """Of all layers at once, whose weights are a list at this place of the arguments."""
    return lambda args, out: recurrent(_shape(args[0]), [_shape(w) for w in args[weights]])


def _recurrent_backward(mask: int) -> Formula:
    """Gradients of the inputs, always, and of the weights where the mask's last entry asks for them."""
    return lambda args, out: (1 + bool(args[mask][3])) * _recurrent(1)(args, out)


def _mps_recurrent_backward(args: Sequence[Any], out: Any) -> int:
    return 2 * recurrent(_shape(args[5]), [_shape(w) for w in args[8]])


def _self_attention(args: Sequence[Any], out: Any) -> int:
    return self_attention(_shape(args[0]), _shape(args[1]))


def _encoder_layer(args: Sequence[Any], out: Any) -> int:
    source = _shape(args[0])
    feed_forward = 2 * prod(source[:-1]) * (int(args[14].numel()) + int(args[16].numel()))
    return self_attention(source, source) + feed_forward


def _trilinear(args: Sequence[Any], out: Any) -> int:
    return trilinear([_shape(tensor) for tensor in args[:3]], args[3:6], args[6])


_OURS: Mapping[str, Formula] = {
    "addmm_": _matrix_product(1),
    "_addmm_activation": _matrix_product(1),
    "baddbmm_": _matrix_product(1),
    "addbmm": _matrix_product(1),
    "addbmm_": _matrix_product(1),
    "mv": _matrix_vector(0),
    "addmv": _matrix_vector(1),
    "addmv_": _matrix_vector(1),
    "dot": _dot,
    "vdot": _dot,
    "linear": _linear,
    "linear_backward": _linear_backward,
    "mkldnn_linear": _linear,
    "convolution": _convolution,
    "mkldnn_convolution": _plain_convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_attention_math_for_mps": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
    "mkldnn_rnn_layer": _one_recurrent_layer,
    "mkldnn_rnn_layer_backward": _one_recurrent_layer_backward,
    "_cudnn_rnn": _recurrent(1),
    "_cudnn_rnn_backward": _recurrent_backward(21),
    "miopen_rnn": _recurrent(1),
    "miopen_rnn_backward": _recurrent_backward(20),
    "_lstm_mps": _recurrent(2),
    "lstm_mps_backward": _mps_recurrent_backward,
    "_native_multi_head_attention": _self_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_trilinear": _trilinear,
}
"""Name of an aten operator → its formula."""


class Formulas:
    """The formulas of torch's registry and ours, by operator."""

    def __init__(self) -> None:
        import torch
        from torch.utils.flop_counter import flop_registry

        self._theirs: Mapping[Any, Any] = flop_registry
        self._ours = {
            getattr(torch.ops.aten, name): formula
            for name, formula in _OURS.items()
            if hasattr(torch.ops.aten, name)
        }
        self._strided = (torch.strided, getattr(torch, "_mkldnn", torch.strided))
        self._tensor = torch.Tensor

    def known(self, operator: Any) -> bool:
        """Whether there is a formula for an operator (an overload packet, or a higher-order operator)."""
        return operator in self._ours or operator in self._theirs

    def count(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int | None:
        """FLOPs of one call, or None where they can't be counted (see the module's convention)."""
        leading = next((arg for arg in args if isinstance(arg, self._tensor)), None)
        if leading is None or not (leading.is_floating_point() or leading.is_complex()):
            return None
        if any(isinstance(arg, self._tensor) and arg.layout not in self._strided for arg in args):
            return None
        try:
            if operator in self._ours:
                counted = self._ours[operator](args, out)
            else:
                counted = int(self._theirs[operator](*args, **kwargs, out_val=out))
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError):
            return None  # arguments that the formula was not written for
        return 4 * counted if leading.is_complex() else counted


@functools.cache
def formulas() -> Formulas:
    """The formulas, looked up once; imports torch."""
    return Formulas()
