"""A tiny chat model that always gives the same reply, because each token leads to the next: one complete GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from tests.tiny_chat import TEMPLATE, byte_tokens

CONTEXT = 512
HIDDEN, FFN, HEADS = 128, 32, 2
SPECIAL = ("<|end|>", "<|turn|>")
BEGIN = "\n"
"""What a prompt must end with."""


def write_scripted_chat(
    path: Path, reply: Sequence[str], *, template: str = TEMPLATE, special: Sequence[str] = ()
) -> Path:
    """`reply` in pieces, none of which comes twice: each becomes a token. Those in `special` are CONTROL tokens.

    Attention and feed-forward layers add nothing, so the last token alone decides. After the reply the end token comes.
    """
    tokens = [*byte_tokens(), "th", *SPECIAL, *reply, *(text for text in special if text not in reply)]
    assert len(set(tokens)) == len(tokens), "a piece comes twice, or is a token by itself"
    kinds = [TokenType.NORMAL] * 257 + [TokenType.CONTROL] * len(SPECIAL)
    kinds += [TokenType.CONTROL if text in special else TokenType.USER_DEFINED for text in tokens[len(kinds) :]]
    draws = np.random.default_rng(5)
    embedding = draws.normal(0, 1, (len(tokens), HIDDEN)).astype(np.float32)
    head = np.zeros_like(embedding)
    chain = [byte_tokens()[ord(BEGIN)], *reply, SPECIAL[0]]
    for before, after in pairwise(chain):
        head[tokens.index(after)] = embedding[tokens.index(before)]

    writer = GGUFWriter(path, "llama")
    writer.add_name("Scripted")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(tokens.index(SPECIAL[0]))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for name, rows, columns in (
        *((f"attn_{part}", HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")),
        *(("ffn_gate", FFN, HIDDEN), ("ffn_up", FFN, HIDDEN), ("ffn_down", HIDDEN, FFN)),
    ):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((rows, columns), np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
