"""The seam that a device joins: the operations that a model is written in.

A model never sees bytes, devices or encodings. It holds weight handles that an `Ops` prepared, passes opaque
activation tensors from one operation to the next, and names positions. All activations are float32, row-major,
[n, width] with one row per token. Results follow `CONTRACT.md` bit by bit in every implementation but `reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from engine.kernels.lending import Lent
from engine.kernels.state import StateSpec

Activation = Literal["silu", "gelu_tanh", "gelu_erf", "sigmoid", "relu_squared", "swiglu_clamped"]
"""The function of a gate, by its name in CONTRACT.md, whose value multiplies what is gated.

The clamped SwiGLU alone, with the numbers of GPT-OSS, is a function of both.
"""

Tensor = Any
"""An activation, owned by the `Ops` that made it: float32 [n, width]."""

Handle = Any
"""A weight as its `Ops` wants it. Made by `matrix` or `vector`, used by that `Ops` alone."""


InputRounding = Literal["blocks", "token"]
"""How a linear rounds its input: by blocks of 32 for packed encodings (CONTRACT.md, section 4), or each row to int8
with one scale, as BitNet is trained (section 6)."""


@dataclass(frozen=True)
class Weight:
    """A weight's bytes as they lie on disk: `data` is uint8 [rows, row_bytes], C-contiguous.

    Of a linear, `activations` says how the input is rounded; `scale` multiplies what bias and residual are added to.
    Where `lent` is given it lends the rows, and `data` is [0, row_bytes].
    """

    name: str
    encoding: str
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]
    activations: InputRounding = "blocks"
    scale: float | None = None
    lent: Lent | None = None


Routing = Any
"""Which experts each token goes to, and with which weights. Made by `route`, used by that `Ops` alone."""


@dataclass(frozen=True)
class Stack:
    """The matrices of a mixture's experts, or of heads: `data` is uint8 [n_experts, rows, row_bytes].

    Each expert's bytes are C-contiguous, but those of two experts may lie apart. Of a mixture, `scales`, float32
    [n_experts] and C-contiguous, multiply what biases are added to. Where `lent` is given it lends the experts or
    heads, and `data` is [0, rows, row_bytes].
    """

    name: str
    encoding: str
    n_experts: int
    rows: int
    columns: int
    data: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.float32] | None = None
    lent: Lent | None = None


@dataclass(frozen=True)
class Router:
    """How a mixture chooses its experts (CONTRACT.md, section 11): the best `k` by `scores` of the router's logits.

    With `groups`, only the best `groups_kept` take part, by the sum of their `marks` best choices. The weights are the
    scores of those chosen, with `normalise` divided by their sum, times `scale`.
    """

    k: int
    scores: Literal["softmax", "sigmoid"] = "softmax"
    groups: int = 1
    groups_kept: int = 1
    marks: int = 2
    normalise: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class Rotary:
    """Rotary position tables, made once in float64: `cos` and `sin` float32 [context, dims/2].

    The first `dims` elements of each head turn. "interleaved" pairs elements (2i, 2i+1), "halves" pairs (i, i+dims/2).
    """

    cos: npt.NDArray[np.float32]
    sin: npt.NDArray[np.float32]
    style: Literal["interleaved", "halves"]


@dataclass(frozen=True)
class CacheSpec:
    """The key-value cache that one layer needs: heads, and the widths of one key and one value.

    `latent`: the first `value_dim` elements of a key are its value, so that keys alone are stored.
    """

    n_kv_heads: int
    key_dim: int
    value_dim: int
    latent: bool = False

    def __post_init__(self) -> None:
        assert not self.latent or self.value_dim <= self.key_dim


@dataclass(frozen=True)
class AttentionSpec:
    """How a layer attends. `window` is the number of positions seen (the token's own included), `None` for all."""

    n_heads: int
    scale: float
    window: int | None = None
    softcap: float | None = None


LayerSpec = CacheSpec | StateSpec
"""What one layer keeps of the positions before."""


class LayerCache(Protocol):
    """One layer's keys and values, owned by the `Ops` that made it; rows past the current length are garbage. Or its
    recurrent state, which stands after the last position that was computed; it is float32, whatever `kind` was asked
    for, and takes the same memory for any `capacity`."""

    @property
    def spec(self) -> LayerSpec: ...

    @property
    def capacity(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def nbytes(self) -> int: ...


Pass = Callable[[Sequence[int], int], Tensor]
"""A forward pass: the tokens and the position of the first → hidden [n, hidden_size]."""


class Ops(Protocol):
    """A device. Shapes: n tokens; `h` is a layer's width; positions `start … start+n-1` are those of the n rows."""

    name: str
    threads: int
    """Threads that compute on the host."""

    @property
    def nbytes(self) -> int:
        """Bytes held for activations."""
        ...

    def matrix(self, weight: Weight) -> Handle:
        """A handle for `linear` and `embed`, which keeps `weight` under that name.

        Raises UnsupportedModelError for an encoding without a kernel.
        """
        ...

    def stack(self, weight: Stack) -> Handle:
        """A handle for `experts` and `head_linears`, which keeps it as `weight`. Raises as `matrix` does."""
        ...

    def vector(self, values: npt.NDArray[np.float32]) -> Handle:
        """A handle for norm weights, biases and sinks, float32 [width], and a convolution's taps [channels, taps]."""
        ...

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> LayerCache:
        """Room for `capacity` positions; `kind` is one of `engine.types.CACHE_KINDS`.

        Raises SettingsError where the kind cannot hold keys or values of these widths.
        """
        ...

    def recorded(self, forward: Pass) -> Pass:
        """A pass with the results of `forward`, which may repeat the operations of an earlier run without calling it.

        So `forward` must use the same operations in the same order whatever the tokens and the position, as long as
        their number is the same. A result may be overwritten by the next run of the same length.
        """
        ...

    def embed(self, table: Handle, tokens: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Rows of the table, decoded, times `scale`: [n, columns]."""
        ...

    def rms_norm(self, x: Tensor, weight: Handle, eps: float, *, residual: Tensor | None = None) -> Tensor:
        """x · (1 ÷ √(mean(x²) + eps)) · weight (+ residual) over each run of `len(weight)` elements: a row, or each
        head of it."""
        ...

    def linear(
        self,
        x: Tensor,
        weight: Handle,
        *,
        bias: Handle | None = None,
        residual: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """x @ weightᵀ (+ bias) (+ residual): [n, columns] → [n, rows]; of that the softcap where there is one."""
        ...

    def linears(self, x: Tensor, weights: Sequence[Handle]) -> list[Tensor]:
        """Several `linear` of the same x in one call."""
        ...

    def head_linears(self, x: Tensor, weight: Handle, *, transposed: bool = False) -> Tensor:
        """Each run of a row by the matrix of its own head: [n, heads · a], a stack [heads, b, a] → [n, heads · b].

        With `transposed` the stack is [heads, a, b], as a file has it that keeps these matrices the other way round.
        """
        ...

    def gated(self, x: Tensor, gate: Handle, up: Handle, activation: Activation = "silu") -> Tensor:
        """activation(x @ gateᵀ) · (x @ upᵀ)."""
        ...

    def route(self, logits: Tensor, router: Router, bias: Handle | None = None) -> Routing:
        """The experts of each row of logits [n, n_experts]; `bias` [n_experts] counts for the choice alone.

        k experts are always chosen; of a row with NaN any, with NaN for their weights.
        """
        ...

    def experts(
        self,
        x: Tensor,
        routing: Routing,
        gate: Handle,
        up: Handle,
        down: Handle,
        activation: Activation = "silu",
        gate_bias: Handle | None = None,
        up_bias: Handle | None = None,
        down_bias: Handle | None = None,
    ) -> Tensor:
        """Σ weight · ((activation(x @ gateᵀ) · (x @ upᵀ)) @ downᵀ) over each row's experts: → [n, rows of down].

        The handles are stacks; biases are vectors [n_experts · rows], added to what their matrices give.
        """
        ...

    def layer_norm(self, x: Tensor, weight: Handle, bias: Handle, eps: float) -> Tensor:
        """(x − mean(x)) · (1 ÷ √(mean((x − mean(x))²) + eps)) · weight + bias over each row."""
        ...

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y, of the same shape."""
        ...

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        """x · factor."""
        ...

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        """activation(x), any but the clamped SwiGLU."""
        ...

    def gate(self, x: Tensor, y: Tensor, activation: Activation) -> Tensor:
        """activation(x) · y: [n, w], [n, w · r] → [n, w · r], each element of x for a run of r elements of y."""
        ...

    def pick(self, x: Tensor, groups: int, start: int, stop: int) -> Tensor:
        """Elements `start … stop - 1` of each of `groups` equal runs of a row: → [n, groups · (stop − start)]."""
        ...

    def spliced(self, x: Tensor, y: Tensor, groups: int) -> Tensor:
        """Each of `groups` equal runs of a row of x followed by that of y: → [n, width of x + width of y]."""
        ...

    def folded(self, x: Tensor, rows: int) -> Tensor:
        """So many consecutive rows as one: [n, w] → [n ÷ rows, w · rows]."""
        ...

    def rotary(self, x: Tensor, n_heads: int, table: Rotary, start: int) -> Tensor:
        """x [n, n_heads · head_dim] with each head turned by its row's position."""
        ...

    def attention(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: Handle | None = None,
        until: Sequence[int] | None = None,
    ) -> Tensor:
        """Store k and v at positions `start …`, then attend causally: → [n, n_heads · value_dim].

        q [n, n_heads · key_dim], k [n, n_kv_heads · key_dim], v [n, n_kv_heads · value_dim], or `None` where the cache
        is latent; without both, the cache holds these positions already, from another layer. `sinks` [n_heads] is a
        logit for each query head that takes its share of the weight but has no value. With `until`, row i sees the
        positions before `until[i]`, at least its own and at most those stored. Raises NumericsError where a key or a
        value does not fit into the cache's number format.
        """
        ...

    def convolved(self, x: Tensor, taps: Handle, state: LayerCache, start: int, activation: Activation) -> Tensor:
        """activation of the causal depthwise convolution over the rows before and x's own: [n, channels] of the same.

        `taps` [channels, taps], the oldest first. The state stands at position `start`, at 0 for zeros whatever it
        holds, and after the call at `start + n`.
        """
        ...

    def delta_rule(
        self, x: Tensor, a: Tensor, b: Tensor, rate: Handle, bias: Handle, state: LayerCache, start: int
    ) -> Tensor:
        """The gated delta rule over x [n, (2 · n_key_heads · key_dim) + n_heads · value_dim], the queries, keys and
        values of a row, neither normed nor scaled: → [n, n_heads · value_dim].

        a, b [n, n_heads]: a row's state decays by exp(rate · softplus(a + bias)), with `rate` and `bias` [n_heads], and
        learns by sigmoid(b). The state stands as for `convolved`, which does not move what this moves.
        """
        ...

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        """Make `target` the same as `source`, both recurrent states of the same spec."""
        ...

    def last(self, x: Tensor, rows: int) -> Tensor:
        """The last `rows` rows of x."""
        ...

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Rows `start … stop - 1` of x."""
        ...

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The rows of all parts, one part after the other. Not to be used in a pass that is recorded."""
        ...

    def tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        """float32 [n, width] from the host. Not to be used in a pass that is recorded."""
        ...

    def host(self, x: Tensor) -> npt.NDArray[np.float32]:
        """x as a numpy array [n, width], which later calls may overwrite."""
        ...

    def close(self) -> None:
        """Release threads and buffers. A second call does nothing."""
        ...
