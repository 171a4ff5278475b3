"""config.json → the keys under which an architecture's numbers stand in a GGUF file.

Keys are those that llama.cpp's converter writes (`set_gguf_parameters`); numbers are rounded to float32 as there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.families import FAMILIES, Family
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.rotary import rotary
from engine.formats.json_text import read_object

FILE = "config.json"
MAX_BYTES = 1 << 22


@dataclass(frozen=True)
class Configuration:
    """What a checkpoint is: its folder, its family, and the values of its config.json, of its text part if it has
    others. `outer` are those that stand at the top."""

    folder: Path
    family: Family
    fields: Fields
    outer: Fields

    @staticmethod
    def read(folder: Path) -> Configuration:
        """Raises ModelFileError where config.json is missing or damaged, UnsupportedModelError for an architecture, a
        packing or a variant that is not run."""
        outer = Fields(read_object(folder / FILE, limit=MAX_BYTES), FILE)
        architectures = outer.get("architectures")
        if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
            raise ModelFileError(f"{FILE} in {folder} names no architecture: it belongs to no model that can be run.")
        if architectures[0] not in FAMILIES:
            raise UnsupportedModelError(
                f"The checkpoint's architecture {quoted(architectures[0])} is not one of those read from safetensors: "
                f"{', '.join(sorted(FAMILIES))}. Try a GGUF file of the model."
            )
        _refuse_packed(outer)
        family, inner = FAMILIES[architectures[0]], outer
        if family.text_part and "text_config" in outer:
            inner = outer.fields("text_config") or outer
            _refuse_packed(inner)
        fields = Fields({**family.defaults, **inner.values}, inner.where)
        if family.own_keys is None:
            _refuse_variants(fields, family)
        return Configuration(folder, family, fields, outer)

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.fields.flag("tie_word_embeddings", self.outer.flag("tie_word_embeddings", self.family.tied))

    @property
    def naming_ends(self) -> Fields:
        """The values that name the end tokens."""
        return self.outer if "eos_token_id" in self.outer else self.fields

    def heads(self, key: str) -> int:
        """A count of heads, of keys as many as of queries where the file does not say."""
        default = self.fields.integer("num_attention_heads") if key == "num_key_value_heads" else None
        heads = self.fields.integer(key, default)
        if heads < 1:
            raise ModelFileError(f"{key} in {FILE} is {heads}: it is damaged. Download it again.")
        return heads

    def metadata(self) -> tuple[dict[str, object], dict[str, tuple[float, ...]]]:
        """The keys, and the vectors that a GGUF file would hold beside the weights."""
        fields = self.fields
        heads = self.heads("num_attention_heads")
        keys: dict[str, object] = {
            "vocab_size": fields.integer("vocab_size"),
            "context_length": fields.integer("max_position_embeddings"),
            "embedding_length": fields.integer("hidden_size"),
            "block_count": fields.integer("num_hidden_layers"),
            **self._width(),
            "attention.head_count": heads,
            "attention.head_count_kv": self.heads("num_key_value_heads"),
            "attention.layer_norm_rms_epsilon": fields.number("rms_norm_eps", 1e-6),
        }
        head_dim = fields.integer("hidden_size") // heads
        if "head_dim" in fields:
            head_dim = keys["attention.key_length"] = keys["attention.value_length"] = fields.integer("head_dim")
        keys |= self._mixture() | self.family.sight(self.fields, self.outer)
        own_keys, vectors = (self.family.own_keys or rotary)(fields, head_dim)
        prefix = self.family.architecture
        whole = {f"{prefix}.{key}": _rounded(value) for key, value in (keys | own_keys).items()}
        return {"general.architecture": prefix, "general.name": self._name(), **whole}, vectors

    def _width(self) -> dict[str, object]:
        """The width of the feed-forward layers, which families that are a mixture throughout may not have."""
        absent = bool(self.family.mixture) and "intermediate_size" not in self.fields
        return {} if absent else {"feed_forward_length": self.fields.integer("intermediate_size")}

    def _mixture(self) -> dict[str, object]:
        """The keys of a mixture of experts, in families that are one."""
        keys: dict[str, object] = {}
        for key, names in self.family.mixture.items():
            keys[key] = self.fields.integer(next((name for name in names if name in self.fields), names[0]))
        if keys and "norm_topk_prob" in self.fields:
            keys["expert_weights_norm"] = self.fields.flag("norm_topk_prob", False)
        return keys

    def _name(self) -> str:
        """The folder's name; in a cache of the Hub, whose folders are named by commit, the repository's."""
        folder = self.folder.absolute()
        repository = folder.parent.parent.name
        if folder.parent.name == "snapshots" and repository.startswith("models--"):
            return repository.rpartition("--")[2]
        return folder.name or str(folder)


def _refuse_packed(fields: Fields) -> None:
    packed = fields.fields("quantization_config")
    if packed is not None:
        method = packed.text("quant_method", "unnamed")
        raise UnsupportedModelError(
            f"The checkpoint is packed by the method {quoted(method)} (quantization_config in {FILE}), which this "
            "engine does not read. Choose the unpacked checkpoint, or a GGUF file of the model."
        )


def _refuse_variants(fields: Fields, family: Family) -> None:
    """What the architectures of GGUF have no key for, so that it would be left out in silence."""
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(
            f"The checkpoint's feed-forward layers use {quoted(activation)} (hidden_act), where silu is known."
        )
    rope = fields.fields("rope_parameters") or Fields({}, fields.where)
    if rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0)) != 1:
        raise UnsupportedModelError(
            "The checkpoint turns only a part of each head (partial_rotary_factor), which its architecture does not "
            "have here."
        )
    if fields.integer("decoder_sparse_step", 1) != 1 or fields.get("mlp_only_layers"):
        raise UnsupportedModelError(
            "Some layers of the checkpoint have no experts (decoder_sparse_step, mlp_only_layers), which this engine "
            "does not run for its architecture."
        )
    turning = fields.get("no_rope_layers")
    if fields.integer("no_rope_layer_interval", family.still) != family.still or (
        turning is not None and (not isinstance(turning, list) or turning != _turning(len(turning), family.still))
    ):
        raise UnsupportedModelError(
            "The checkpoint has rotary positions in other layers (no_rope_layers) than this engine runs for its "
            "architecture."
        )
    window = fields.integer("sliding_window", 0)
    if fields.flag("use_sliding_window", window > 0) and 0 < window < fields.integer("max_position_embeddings"):
        raise UnsupportedModelError(
            f"The checkpoint's layers see only the last {window} positions (sliding_window), which this engine does "
            "not run yet for its architecture."
        )


def _turning(layers: int, still: int) -> list[int]:
    """1 for each layer with rotary positions, 0 for one without."""
    return [int(not still or (index + 1) % still > 0) for index in range(layers)]


def _rounded(value: object) -> object:
    """A number as the file would hold it: float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0] if isinstance(value, float) else value
