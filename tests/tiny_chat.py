"""A tiny chat model with random weights, complete in one GGUF file: weights, byte-level tokenizer, chat template."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quantize

CONTEXT = 256
HIDDEN, FFN, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
SPECIAL = ("<|end|>", "<|turn|>")
TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def byte_tokens() -> list[str]:
    """The 256 bytes as the characters by which byte-level BPE writes them (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def write_tiny_chat(
    path: Path,
    *,
    name: str = "Tiny Chat",
    seed: int = 0,
    eos: int | None = None,
    template: str | None = TEMPLATE,
    ffn: int = FFN,
    layers: int = LAYERS,
) -> Path:
    """Matrices in Q8_0, norms in F32. Token i < 256 is byte i; `eos` takes the place of "<|end|>" as the end token.

    `ffn` and `layers` make it larger: by 204 bytes for each unit of width in each layer.
    """
    tokens = [*byte_tokens(), "th", "he", *SPECIAL]
    kinds = [TokenType.NORMAL] * 258 + [TokenType.CONTROL] * len(SPECIAL)
    draws = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h", "h e"])
    writer.add_eos_token_id(tokens.index("<|end|>") if eos is None else eos)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)

    def matrix(tensor: str, rows: int, columns: int) -> None:
        values = draws.normal(0, 1.5 / columns**0.5, (rows, columns)).astype(np.float32)
        packed = quantize(values, GGMLQuantizationType.Q8_0)
        writer.add_tensor(tensor, packed, raw_dtype=GGMLQuantizationType.Q8_0)

    def norm(tensor: str) -> None:
        writer.add_tensor(tensor, draws.normal(1, 0.2, HIDDEN).astype(np.float32))

    kv_width = HIDDEN // HEADS * KV_HEADS
    matrix("token_embd.weight", len(tokens), HIDDEN)
    for layer in range(layers):
        norm(f"blk.{layer}.attn_norm.weight")
        matrix(f"blk.{layer}.attn_q.weight", HIDDEN, HIDDEN)
        matrix(f"blk.{layer}.attn_k.weight", kv_width, HIDDEN)
        matrix(f"blk.{layer}.attn_v.weight", kv_width, HIDDEN)
        matrix(f"blk.{layer}.attn_output.weight", HIDDEN, HIDDEN)
        norm(f"blk.{layer}.ffn_norm.weight")
        matrix(f"blk.{layer}.ffn_gate.weight", ffn, HIDDEN)
        matrix(f"blk.{layer}.ffn_up.weight", ffn, HIDDEN)
        matrix(f"blk.{layer}.ffn_down.weight", HIDDEN, ffn)
    norm("output_norm.weight")
    matrix("output.weight", len(tokens), HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
