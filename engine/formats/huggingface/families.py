"""The families of checkpoints that are read: the architecture of each, and how its tensors are named in GGUF.

Names on the left are those of Transformers' classes, names on the right those of the GGUF specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from engine.formats.huggingface import gemma, hybrid, phi3, sight
from engine.formats.huggingface.fields import Fields
from engine.formats.index import TensorInfo

OwnKeys = Callable[[Fields, int], tuple[dict[str, object], dict[str, tuple[float, ...]]]]
"""The values of config.json and the width of a head → keys and vectors. Raises UnsupportedModelError for a variant
that is not run."""

_LAYER: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias)")
_TEXT: Final = re.compile(r"(?:model\.)?language_model\.(?:model\.)?(.+)")
_OTHER_SENSES: Final = re.compile(
    r"(?:model\.)?(?:visual|vision_tower|audio_tower|multi_modal_projector|embed_vision|embed_audio)\."
)

_DRAFTING: Final = re.compile(r"(?:model\.)?mtp\.")
"""Blocks that draft tokens for the model to check."""
_PARAMETER: Final = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,4})\.(.+)")

_STACK: Final = re.compile(
    r"model\.layers\.(0|[1-9][0-9]{0,4})\.((?:.+\.)?experts\.[a-z_]+|router\.[a-z_]+|layer_scalar)()"
)
"""Tensors whose name has no ending: the experts of a layer in one, and what scales."""
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
_POST_NORMS: Final = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER_INPUTS: Final = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_GEMMA4_EXPERTS: Final = {
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps",
    "experts.down_proj": "ffn_down_exps",
}
_LAYER_INPUTS_WHOLE: Final = {
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
_FUSED: Final = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
_HEAD_NORMS: Final = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


@dataclass(frozen=True)
class Family:
    """`modules` names the parts of a layer, with `*` for the number of an expert. `mixture` maps keys of GGUF that a
    mixture of experts has to those of config.json, any of which may give it. `split` maps those whose heads lie split
    (`TensorInfo.split_heads`) to the key of config.json that counts the heads. `ignored` ends the names of tensors
    that the model works out anew. `tied`: the head is the embedding unless the file says otherwise. The last of
    `still` layers has no rotary positions; 0 where all have. `whole` names the tensors that belong to no layer.
    `norm_shift` is what the weights of norms lack. `defaults` stand for keys that config.json leaves out, `own_keys`
    tells those of GGUF that this family alone has. `text_part`: the checkpoint can also see or hear, and its text
    part, which alone is read, has a name of its own. `parameters` names what of a layer is neither weight nor bias;
    `arranged` gives a tensor in the order and with the values that a GGUF file would have. `sight` reads config.json's
    values, those of the text part and those at the top, for the keys that a model which sees has besides.
    """

    architecture: str
    modules: Mapping[str, str]
    split: Mapping[str, str] = field(default_factory=dict)
    ignored: str = ".rotary_emb.inv_freq"
    tied: bool = False
    still: int = 0
    mixture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)
    norm_shift: float = 0.0
    defaults: Mapping[str, object] = field(default_factory=dict)
    own_keys: OwnKeys | None = None
    text_part: bool = False
    sight: Callable[[Fields, Fields], dict[str, object]] = lambda fields, outer: {}
    parameters: Mapping[str, str] = field(default_factory=dict)
    arranged: Callable[[TensorInfo, Fields], TensorInfo] = lambda info, fields: info

    def leaves_out(self, name: str) -> bool:
        """Whether a tensor is none of those that a text is answered with."""
        if name.endswith(self.ignored) or _DRAFTING.match(name) is not None:
            return True
        return self.text_part and _OTHER_SENSES.match(name) is not None

    def gguf_name(self, name: str) -> str | None:
        """The name of a tensor in GGUF; `None` for one that is not known. All experts of a layer have one name."""
        if self.text_part and (inner := _TEXT.fullmatch(name)):
            name = inner[1] if inner[1].startswith("lm_head.") else f"model.{inner[1]}"
        whole = _WHOLE | dict(self.whole)
        if name in whole:
            return whole[name]
        parameter = _PARAMETER.fullmatch(name)
        if parameter is not None and parameter[2] in self.parameters:
            return f"blk.{parameter[1]}.{self.parameters[parameter[2]]}"
        layer = _LAYER.fullmatch(name) or _STACK.fullmatch(name)
        if layer is None:
            return None
        expert = _EXPERT.fullmatch(layer[2])
        module = self.modules.get(f"{expert[1]}.*.{expert[3]}" if expert else layer[2])
        if module is None or module.endswith(".scale"):
            return module and f"blk.{layer[1]}.{module}"
        return f"blk.{layer[1]}.{module}.{layer[3] or 'weight'}"

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
_GEMMA2: Final = Family(
    "gemma2", _BLOCK | _POST_NORMS, tied=True, norm_shift=1.0, defaults=gemma.GEMMA2, own_keys=gemma.gemma2
)
_GEMMA3: Final = Family(
    "gemma3",
    _BLOCK | _POST_NORMS | _HEAD_NORMS,
    tied=True,
    norm_shift=1.0,
    defaults=gemma.GEMMA3,
    own_keys=gemma.gemma3,
)
_GEMMA4: Final = Family(
    "gemma4",
    _BLOCK | _POST_NORMS | _HEAD_NORMS | _LAYER_INPUTS | _GEMMA4_EXPERTS | {"layer_scalar": "layer_output_scale"},
    tied=True,
    whole=_LAYER_INPUTS_WHOLE,
    defaults=gemma.GEMMA4,
    own_keys=gemma.gemma4,
)
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
    norm_shift=1.0,
    defaults=hybrid.DEFAULTS,
    own_keys=hybrid.own_keys,
    parameters=hybrid.PARAMETERS,
    arranged=hybrid.arranged,
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

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "Gemma2ForCausalLM": _GEMMA2,
        "Gemma3ForCausalLM": _GEMMA3,
        "Gemma3ForConditionalGeneration": replace(_GEMMA3, text_part=True),
        "Gemma4ForCausalLM": _GEMMA4,
        "Gemma4ForConditionalGeneration": replace(_GEMMA4, text_part=True),
        "LlamaForCausalLM": _LLAMA,
        "MistralForCausalLM": _LLAMA,
        "MixtralForCausalLM": Family("llama", _BLOCK | _MIXTRAL, _SPLIT, mixture=_EXPERTS),
        "Phi3ForCausalLM": Family("phi3", _BLOCK | _FUSED, defaults=phi3.DEFAULTS, own_keys=phi3.phi3),
        "Qwen2ForCausalLM": Family("qwen2", _BLOCK),
        "Qwen3ForCausalLM": Family("qwen3", _BLOCK | _HEAD_NORMS),
        "Qwen3MoeForCausalLM": Family(
            "qwen3moe",
            _BLOCK | _HEAD_NORMS | _QWEN3_MOE,
            mixture=_EXPERTS | {"expert_feed_forward_length": ("moe_intermediate_size",)},
        ),
        "Qwen3_5ForCausalLM": _HYBRID,
        "Qwen3_5ForConditionalGeneration": replace(_HYBRID, text_part=True),
        "Qwen3_5MoeForCausalLM": _HYBRID_MOE,
        "Qwen3_5MoeForConditionalGeneration": replace(_HYBRID_MOE, text_part=True),
        "Qwen3VLForConditionalGeneration": Family(
            "qwen3vl", _BLOCK | _HEAD_NORMS, defaults={"head_dim": 128}, text_part=True, sight=sight.qwen3vl
        ),
        "SmolLM3ForCausalLM": Family("smollm3", _BLOCK, _SPLIT, tied=True, still=4),
    }
)
"""By what `architectures` in config.json names."""
