"""What the keys of a `gemma4` file say, layer by layer where layers differ. Keys and defaults: those of llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ModelFileError
from engine.models.config import MAX_EXPERTS, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, Config
from engine.models.gemma2 import MAX_SOFTCAP
from engine.models.metadata import Metadata
from engine.models.moe import Mixture
from engine.models.scaling import MAX_CONTEXT


@dataclass(frozen=True)
class Numbers:
    """What the keys say. `config` holds what all layers share, and the head of the layers that see all positions.

    `local`, `n_kv_heads` and `ffn_widths` are told layer by layer. The last `borrowing` layers store no keys and
    values: each reads those of the last layer before them that sees as far. `input_width` is that of a layer's own
    input, 0 where layers have none.
    """

    config: Config
    local: list[bool]
    n_kv_heads: list[int]
    ffn_widths: list[int]
    local_dim: int
    local_rotary: int
    local_theta: float
    window: int
    borrowing: int
    input_width: int
    logit_softcap: float | None
    mixture: Mixture | None

    @staticmethod
    def read(metadata: Metadata) -> Numbers:
        """Raises ModelFileError for what cannot be true, UnsupportedModelError for what is not run."""
        keys = metadata.under("gemma4")
        n_layers = keys.integer("block_count", high=MAX_LAYERS)
        n_heads = keys.integer("attention.head_count", high=MAX_HEADS)
        n_kv_heads = keys.integers("attention.head_count_kv", n_layers, high=n_heads, default=n_heads)
        ffn_widths = keys.integers("feed_forward_length", n_layers, high=MAX_WIDTH)
        shared = metadata
        for key, values in (("attention.head_count_kv", n_kv_heads), ("feed_forward_length", ffn_widths)):
            shared = shared.replaced(keys.whole(key), values[0])
        config = Config.read(shared, "gemma4", mixture=True)
        local_dim = keys.integer("attention.key_length_swa", high=MAX_HEAD_DIM)
        local_values = keys.integer("attention.value_length_swa", high=MAX_HEAD_DIM)
        for key, width, own in (
            ("attention.value_length", config.value_dim, config.key_dim),
            ("attention.value_length_swa", local_values, local_dim),
        ):
            if width != own:
                raise _wrong(keys.whole(key), f"{width}, but its keys are {own} wide")
        for heads in n_kv_heads:
            if n_heads % heads:
                raise _wrong(
                    keys.whole("attention.head_count_kv"), f"{heads}, which {n_heads} query heads cannot share"
                )
        local_rotary = keys.integer("rope.dimension_count_swa", low=2, high=local_dim, default=local_dim)
        if local_rotary % 2:
            raise _wrong(keys.whole("rope.dimension_count_swa"), f"{local_rotary}, but elements turn in pairs")
        local = keys.flags("attention.sliding_window_pattern", n_layers)
        borrowing = keys.integer("attention.shared_kv_layers", low=0, high=n_layers, default=0)
        if set(local[: n_layers - borrowing]) != set(local):
            raise _wrong(keys.whole("attention.shared_kv_layers"), f"{borrowing}, which leaves nothing to be shared")
        capped = "final_logit_softcapping" in keys
        return Numbers(
            config=config,
            local=local,
            n_kv_heads=n_kv_heads,
            ffn_widths=ffn_widths,
            local_dim=local_dim,
            local_rotary=local_rotary,
            local_theta=keys.number("rope.freq_base_swa", low=1.001, high=1e15, default=config.rope_theta),
            window=keys.integer("attention.sliding_window", high=MAX_CONTEXT),
            borrowing=borrowing,
            input_width=keys.integer("embedding_length_per_layer_input", low=0, high=MAX_WIDTH),
            logit_softcap=keys.number("final_logit_softcapping", low=1e-3, high=MAX_SOFTCAP) if capped else None,
            mixture=Mixture.read(keys) if keys.integer("expert_count", low=0, high=MAX_EXPERTS, default=0) else None,
        )

    def lender(self, index: int) -> int:
        """The layer whose keys and values layer `index` reads: its own, or another's."""
        first = self.config.n_layers - self.borrowing
        return index if index < first else max(at for at in range(first) if self.local[at] == self.local[index])


def _wrong(key: str, problem: str) -> ModelFileError:
    return ModelFileError(f"The model file's {key} is {problem}; the file is damaged, fetch it again.")
