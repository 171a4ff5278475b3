"""The families of checkpoints that are read: the architecture of each, and how its tensors are named in GGUF.

Names on the left are those of Transformers' classes, names on the right those of the GGUF specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from engine.formats.huggingface import hybrid
from engine.formats.huggingface.fields import Fields
from engine.formats.index import TensorInfo

_LAYER: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias)")
_PARAMETER: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)")

_STACK: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+\.experts\.[a-z_]+)()")
"""The experts of a layer in one tensor, whose name says no more."""
_EXPERT: Final = re.compile(r"(.+\.experts)\.(0|[1-9][0-9]{0,4})\.(.+)")

_WHOLE: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_BLOCK: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HEAD_NORMS: Final = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


@dataclass(frozen=True)
class Family:
    """`modules` names the parts of a layer, with `*` for the number of an expert. `mixture` maps keys of GGUF that a
    mixture of experts has to those of config.json, any of which may give it. `split` maps those whose heads lie split
    (`TensorInfo.split_heads`) to the key of config.json that counts the heads. `ignored` ends the names of tensors
    that the model works out anew. `tied`: the head is the embedding unless the file says otherwise. The last of
    `still` layers has no rotary positions; 0 where all have.

    `parameters` names what of a layer is neither weight nor bias. `nested` is the key of config.json under which the
    text part's values stand, `inner` what its tensors' names have after "model."; tensors whose names begin with one of
    `others` belong to parts that are not read here. `keys` gives the keys of GGUF that the family has beside all
    others, `arranged` a tensor in the order and with the values that a GGUF file would have. `partial`: a part of each
    head turns.
    """

    architecture: str
    modules: Mapping[str, str]
    split: Mapping[str, str] = field(default_factory=dict)
    ignored: str = ".rotary_emb.inv_freq"
    tied: bool = False
    still: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    nested: str | None = None
    inner: str = ""
    others: tuple[str, ...] = ()
    keys: Callable[[Fields], dict[str, object]] = lambda fields: {}
    arranged: Callable[[TensorInfo, Fields], TensorInfo] = lambda info, fields: info
    partial: bool = False
    mixture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def gguf_name(self, name: str) -> str | None:
        """The name of a tensor in GGUF; `None` for one that is not known. All experts of a layer have one name."""
        name = name.replace(f"model.{self.inner}", "model.", 1)
        if name in _WHOLE:
            return _WHOLE[name]
        if parameter := _PARAMETER.fullmatch(name):
            known = self.parameters.get(parameter[2])
            if known is not None:
                return f"blk.{parameter[1]}.{known}"
        layer = _LAYER.fullmatch(name) or _STACK.fullmatch(name)
        if layer is None:
            return None
        expert = _EXPERT.fullmatch(layer[2])
        module = self.modules.get(f"{expert[1]}.*.{expert[3]}" if expert else layer[2])
        return module and f"blk.{layer[1]}.{module}.{layer[3] or 'weight'}"

    def expert(self, name: str) -> int | None:
        """The number of the expert that a known tensor belongs to; `None` for all others."""
        layer = _LAYER.fullmatch(name)
        expert = _EXPERT.fullmatch(layer[2]) if layer else None
        return int(expert[2]) if expert else None

    def heads_key(self, name: str) -> str | None:
        """The key that counts the heads of a tensor whose heads lie split; `None` for all others."""
        layer = _LAYER.fullmatch(name)
        return self.split.get(layer[2]) if layer else None


# Transformers turns row i of a head with row i + d/2; in GGUF, where llama.cpp's converter reorders the rows of these
# families (`LlamaModel.permute`), row 2i turns with 2i + 1.
_SPLIT: Final = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}
_LLAMA: Final = Family("llama", _BLOCK, _SPLIT)

_EXPERTS: Final = {"expert_count": ("num_experts", "num_local_experts"), "expert_used_count": ("num_experts_per_tok",)}
_MIXTRAL: Final = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.*.w2": "ffn_down_exps",
    "block_sparse_moe.experts.*.w3": "ffn_up_exps",
}
_QWEN3_MOE: Final = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_SHARED_EXPERT: Final = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_HYBRID: Final = Family(
    "qwen35",
    _BLOCK | _HEAD_NORMS | hybrid.MODULES,
    parameters=hybrid.PARAMETERS,
    others=("mtp.", "model.mtp."),
    keys=hybrid.keys,
    arranged=hybrid.arranged,
    partial=True,
)

_HYBRID_MOE: Final = replace(
    _HYBRID,
    architecture="qwen35moe",
    modules=_BLOCK | _HEAD_NORMS | hybrid.MODULES | _QWEN3_MOE | _SHARED_EXPERT,
    mixture=_EXPERTS
    | {
        "expert_feed_forward_length": ("moe_intermediate_size",),
        "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    },
)


def _text_part(family: Family) -> Family:
    """The same family where the model sees as well."""
    others = (*family.others, "model.visual.")
    return replace(family, nested="text_config", inner="language_model.", others=others)


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "LlamaForCausalLM": _LLAMA,
        "MistralForCausalLM": _LLAMA,
        "MixtralForCausalLM": Family("llama", _BLOCK | _MIXTRAL, _SPLIT, mixture=_EXPERTS),
        "Qwen2ForCausalLM": Family("qwen2", _BLOCK),
        "Qwen3ForCausalLM": Family("qwen3", _BLOCK | _HEAD_NORMS),
        "Qwen3MoeForCausalLM": Family(
            "qwen3moe",
            _BLOCK | _HEAD_NORMS | _QWEN3_MOE,
            mixture=_EXPERTS | {"expert_feed_forward_length": ("moe_intermediate_size",)},
        ),
        "Qwen3_5ForCausalLM": _HYBRID,
        "Qwen3_5ForConditionalGeneration": _text_part(_HYBRID),
        "Qwen3_5MoeForCausalLM": _HYBRID_MOE,
        "Qwen3_5MoeForConditionalGeneration": _text_part(_HYBRID_MOE),
        "SmolLM3ForCausalLM": Family("smollm3", _BLOCK, _SPLIT, tied=True, still=4),
    }
)
"""By what `architectures` in config.json names."""
