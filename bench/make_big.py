"""Write a model of random weights, as large as is wanted, as fast as the disk takes it. Its text is noise.

    python -m bench.make_big dense.gguf --preset dense-2gb --tokenizer SmolLM2-135M-Instruct.Q4_1.gguf
    python -m bench.make_big mixture.gguf --preset mixture-4gb --tokenizer SmolLM2-135M-Instruct.Q4_1.gguf

The shapes are Qwen3's. Matrices are never quantised: their packed bytes are drawn, with scales that leave weights of
the size 1 / √columns, so that every logit is finite. The same seed gives the same file.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from bench.cached_pages import forget

POOL = 8 << 20
"""Bytes drawn once for each encoding and scale; matrices are pieces of these, each from a place of its own."""
PIECE = 1 << 20
"""The most bytes that stand together in a matrix as they stand in the pool."""


@dataclass(frozen=True)
class Shape:
    """A Qwen3, or with `experts` a mixture of them. `experts_used` are those that a token passes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    experts: int = 0
    experts_used: int = 0
    tied: bool = False
    attention: str = "Q8_0"
    feed_forward: str = "Q4_K"
    context: int = 32768

    @property
    def architecture(self) -> str:
        return "qwen3moe" if self.experts else "qwen3"


PRESETS = {
    "dense-2gb": Shape(layers=28, hidden=2560, heads=32, kv_heads=8, head_dim=128, ffn=9728, tied=True),
    # Qwen3-235B-A22B has 94 layers of 128 experts, 4096 wide, 1536 within, 64 heads over 4 of keys: here every width
    # is half of that, and so is every number of heads. The layers are those that make 4 GB.
    "mixture-4gb": Shape(
        layers=12, hidden=2048, heads=32, kv_heads=2, head_dim=128, ffn=768, experts=128, experts_used=8
    ),
    # The same in its own widths, whose blocks are those of the real file.
    "mixture-4gb-wide": Shape(
        layers=3, hidden=4096, heads=64, kv_heads=4, head_dim=128, ffn=1536, experts=128, experts_used=8
    ),
}


def write_big(path: Path, shape: Shape, tokenizer: Callable[[GGUFWriter], int], *, seed: int = 0) -> Path:
    """Write the file and have the system keep none of it in memory. `tokenizer` adds one: → its vocabulary's size."""
    writer = GGUFWriter(path, shape.architecture)
    vocabulary = tokenizer(writer)
    _write_keys(writer, shape)
    tensors = list(_tensors(shape, vocabulary))
    for name, extents, kind in tensors:
        packed = gguf.quant_shape_to_byte_shape(extents, kind)
        writer.add_tensor_info(name, packed, np.dtype(np.uint8), math.prod(packed), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    draws = np.random.default_rng(seed)
    pools: dict[tuple[str, int], np.ndarray] = {}
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        _pad(file)
        for name, extents, kind in tensors:
            if name.endswith("norm.weight"):
                file.write(np.ones(extents, "<f4").tobytes())
            elif kind == GGMLQuantizationType.F32:  # a router, whose choices are to differ from token to token
                file.write((draws.standard_normal(extents) * 2 / math.sqrt(extents[-1])).astype("<f4").tobytes())
            else:
                # Rows of a table of its own are as large as what is added to them: every token goes its own way.
                columns = 1 if name == "token_embd.weight" and not shape.tied else extents[-1]
                key = kind.name, columns
                if key not in pools:
                    pools[key] = _pool(kind, columns, draws)
                _write_matrix(file, pools[key], math.prod(gguf.quant_shape_to_byte_shape(extents, kind)), draws)
            _pad(file)
    forget(path)
    return path


def copied_tokenizer(path: Path) -> Callable[[GGUFWriter], int]:
    """That of another file."""
    fields = GGUFReader(path).fields

    def add(writer: GGUFWriter) -> int:
        def value(key: str) -> list[object] | str:
            return fields[f"tokenizer.ggml.{key}"].contents()

        writer.add_tokenizer_model(value("model"))
        writer.add_tokenizer_pre(value("pre"))
        writer.add_token_list(value("tokens"))
        writer.add_token_types(value("token_type"))
        writer.add_token_merges(value("merges"))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template(fields["tokenizer.chat_template"].contents())
        return len(value("tokens"))

    return add


def _write_keys(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
        writer.add_expert_feed_forward_length(shape.ffn)


def _tensors(shape: Shape, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...], GGMLQuantizationType]]:
    """Names, shapes and encodings in the order of the file."""
    single = GGMLQuantizationType.F32
    attention, feed_forward = (GGMLQuantizationType[name] for name in (shape.attention, shape.feed_forward))
    hidden, width = shape.hidden, shape.heads * shape.head_dim
    kv_width = shape.kv_heads * shape.head_dim
    stack = (shape.experts,) if shape.experts else ()
    suffix = "_exps" if shape.experts else ""
    yield "token_embd.weight", (vocabulary, hidden), attention
    yield "output_norm.weight", (hidden,), single
    if not shape.tied:
        yield "output.weight", (vocabulary, hidden), attention
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        yield f"{at}attn_norm.weight", (hidden,), single
        yield f"{at}attn_q.weight", (width, hidden), attention
        yield f"{at}attn_k.weight", (kv_width, hidden), attention
        yield f"{at}attn_v.weight", (kv_width, hidden), attention
        yield f"{at}attn_q_norm.weight", (shape.head_dim,), single
        yield f"{at}attn_k_norm.weight", (shape.head_dim,), single
        yield f"{at}attn_output.weight", (hidden, width), attention
        yield f"{at}ffn_norm.weight", (hidden,), single
        if shape.experts:
            yield f"{at}ffn_gate_inp.weight", (shape.experts, hidden), single
        yield f"{at}ffn_gate{suffix}.weight", (*stack, shape.ffn, hidden), feed_forward
        yield f"{at}ffn_up{suffix}.weight", (*stack, shape.ffn, hidden), feed_forward
        yield f"{at}ffn_down{suffix}.weight", (*stack, hidden, shape.ffn), feed_forward


@dataclass(frozen=True)
class _Layout:
    """Of a block: its bytes, where its float16 scale lies, and how large a weight is at the scale 1 when all others of
    its bytes are drawn. `minimum` is where the scale of what is taken away lies, and how much of the scale that is."""

    nbytes: int
    scale: int
    spread: float
    minimum: tuple[int, float] | None = None


LAYOUTS = {
    "Q8_0": _Layout(34, 0, 73.9),
    "Q4_0": _Layout(18, 0, 4.6),
    # Codes of 4 bits times scales of 6, less a minimum of 6 bits: 7.5 is the mean code.
    "Q4_K": _Layout(144, 0, 258.0, (2, 7.5)),
    "Q6_K": _Layout(210, 208, 1366.0),
}
"""Of the encodings that can be drawn (ggml-common.h of llama.cpp has their layouts)."""


def _pool(kind: GGMLQuantizationType, columns: int, draws: np.random.Generator) -> np.ndarray:
    """Blocks of drawn bytes, uint8 [n, bytes of a block]."""
    layout = LAYOUTS[kind.name]
    blocks = draws.integers(0, 256, (POOL // layout.nbytes, layout.nbytes), np.uint8)
    # Of both signs, because codes without one are not centred.
    scales = draws.choice([-1, 1], (len(blocks), 1)) / (layout.spread * math.sqrt(columns))
    blocks[:, layout.scale : layout.scale + 2] = scales.astype("<f2").view(np.uint8)
    if layout.minimum:
        at, share = layout.minimum
        blocks[:, at : at + 2] = (scales * share).astype("<f2").view(np.uint8)
    return blocks


def _write_matrix(file: IO[bytes], pool: np.ndarray, nbytes: int, draws: np.random.Generator) -> None:
    block = pool.shape[1]
    piece = PIECE // block
    left = nbytes // block
    while left:
        count = min(piece, left)
        start = int(draws.integers(0, len(pool) - count + 1))
        file.write(pool[start : start + count].data)
        left -= count


def _pad(file: IO[bytes]) -> None:
    file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a GGUF file to copy the tokenizer from")
    parser.add_argument("--preset", choices=PRESETS, default="dense-2gb")
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "experts", "experts_used", "context"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="in place of the preset's")
    for name in ("attention", "feed_forward"):
        parser.add_argument(f"--{name.replace('_', '-')}", choices=LAYOUTS, help="encoding, in place of the preset's")
    parser.add_argument("--seed", type=int, default=0)
    arguments = vars(parser.parse_args())
    own = {name: arguments[name] for name in Shape.__dataclass_fields__ if arguments.get(name) is not None}
    shape = replace(PRESETS[arguments["preset"]], **own)
    write_big(arguments["out"], shape, copied_tokenizer(arguments["tokenizer"]), seed=arguments["seed"])
    print(f"{arguments['out']}: {arguments['out'].stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
