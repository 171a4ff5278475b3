"""Plans for the tests of what is said and shown of them."""

from __future__ import annotations

from engine.types import Placed, Plan

RESIDENT = Plan(
    ram=6_000_000_000,
    vram=0,
    overhead=86_000_000,
    reserve=1_500_000_000,
    context=8192,
    kv_kind="f16",
    chunk=512,
    weights=98_000_000,
    experts=0,
    arena=0,
    kv=188_700_000,
    activations=4_200_000,
    tables=2_100_000,
    vision=0,
    io_threads=4,
    block_bytes=262_144,
    block_rows=None,
    placed=(
        Placed("head", "RAM", 30_000_000),
        Placed("attention", "RAM", 20_000_000),
        Placed("feed-forward", "RAM", 48_000_000),
    ),
    passed_per_token=98_000_000,
    read_per_token=0,
    disk=1_100_000_000.0,
    computing=17_300_000_000.0,
    tok_s=104.3,
    prefill_tok_s=118.0,
    measured=None,
    granted=None,
    wanted=8192,
)
"""A small model in a large machine."""

STREAMED = Plan(
    ram=4_000_000_000,
    vram=2_000_000_000,
    overhead=92_000_000,
    reserve=0,
    context=16_384,
    kv_kind="q8_0",
    chunk=256,
    weights=1_400_000_000,
    experts=1_800_000_000,
    arena=64_000_000,
    kv=417_000_000,
    activations=38_000_000,
    tables=4_200_000,
    vision=205_000_000,
    io_threads=8,
    block_bytes=1_048_576,
    block_rows=512,
    placed=(
        Placed("embedding", "disk", 622_000_000),
        Placed("attention", "VRAM", 1_900_000_000),
        Placed("attention", "RAM", 350_000_000),
        Placed("feed-forward", "RAM", 1_050_000_000),
        Placed("experts", "RAM", 0),
        Placed("experts", "disk", 13_400_000_000),
        Placed("head", "disk", 622_000_000),
    ),
    passed_per_token=2_730_000_000,
    read_per_token=410_000_000,
    disk=1_100_000_000.0,
    computing=17_300_000_000.0,
    tok_s=2.63,
    prefill_tok_s=118.0,
    measured=None,
    granted=4_000_000_000,
    wanted=16_384,
)
"""A mixture of experts that is larger than the machine."""
