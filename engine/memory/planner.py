"""Which weights live where: in VRAM, in RAM or on disk, by what each byte saves.

What a weight saves by being in memory is the time that a token would wait for its bytes to come from disk: a share of
the drive's latency for every stretch that is read, and its bytes by the bandwidth. Bytes that no token passes save
nothing, the rows of a table almost nothing, experts as often as they are chosen. Memory is filled in the order of
seconds saved per byte, which is the best there is as long as a tensor can be held in part (Dantzig, Discrete-variable
extremum problems, Operations Research 5, 1957).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from engine.formats.index import TensorIndex, TensorInfo
from engine.memory.figures import Drive
from engine.memory.outline import Outline
from engine.memory.rows import can_be_lent, head_rows
from engine.memory.step import Step
from engine.memory.store import decoded_bytes
from engine.memory.uses import PaperWeight

Kind = Literal["embedding", "attention", "feed-forward", "router", "experts", "head", "other"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

GRANULE: Final = 16
"""Rows of which a multiple is held of a tensor that is held in part: those of the widest tile of the kernels."""

BELONGS: Final[tuple[tuple[str, Kind], ...]] = (
    ("attn_", "attention"),
    ("ssm_", "attention"),
    ("post_attention", "attention"),
    ("ffn_gate_inp.", "router"),
    ("exp_probs", "router"),
    ("ffn_", "feed-forward"),
    ("post_ffw", "feed-forward"),
)
"""How names of a layer's tensors begin, and the blocks that they belong to."""


@dataclass(frozen=True)
class Item:
    """Weights that are placed together: one tensor, or those of a layer's experts.

    A token passes over `passed` bytes of them and reads them, where they are on disk, in `stretches`, those of a walk
    while others are computed with; `single` rows of a table are waited for one by one. Of `rows` rows, multiples of
    `granule` can be held alone; 0 for those that are held whole or not at all.
    """

    name: str
    tensors: tuple[str, ...]
    kind: Kind
    layer: int
    nbytes: int
    passed: int
    stretches: tuple[int, ...]
    rows: int
    granule: int
    can_be_lent: bool
    single: bool = False


@dataclass(frozen=True)
class Costs:
    """What reading costs. Where nothing was measured, it is as on a usual drive."""

    drive: Drive

    def seconds(self, item: Item) -> float:
        """That a token would wait for the item, all of which is on disk."""
        block = self.drive.block_bytes
        reads = sum(-(-stretch // block) for stretch in item.stretches)
        at_once = 1 if item.single else self.drive.threads
        return reads * self.drive.latency / at_once + item.passed / self.drive.bandwidth

    def density(self, item: Item) -> float:
        """Seconds that each byte saves."""
        return self.seconds(item) / max(item.nbytes, 1)


@dataclass(frozen=True)
class Tiers:
    """Bytes of each item in VRAM and in RAM, by name; the rest of it is on disk. `slab` bytes of RAM are for experts
    that were used lately."""

    vram: Mapping[str, int]
    ram: Mapping[str, int]
    slab: int = 0

    def on_disk(self, item: Item) -> int:
        return item.nbytes - self.vram.get(item.name, 0) - self.ram.get(item.name, 0)


def items_of(index: TensorIndex, outlined: Outline, step: Step) -> list[Item]:
    """What a model is made of. Tensors that it does not use are left out: nobody reads them."""
    passed = step.passed
    experts = [use for use in step.uses if use.way == "experts"]
    together = {weight.tensor: use.weights for use in experts for weight in use.weights}
    tables = {weight.tensor for use in step.uses if use.way == "rows" for weight in use.weights}
    tables -= {weight.tensor for use in step.uses if use.way == "walk" for weight in use.weights}
    heads = {weight.tensor for use in step.head for weight in use.weights}
    matrices = {weight.tensor: weight.matrices for use in step.uses for weight in use.weights}
    items = []
    for info in index.tensors.values():
        if info.name not in outlined.used or info.name in together:
            continue
        count, rows, single = matrices.get(info.name, 1), row_count(info), info.name in tables
        items.append(
            Item(
                name=info.name,
                tensors=(info.name,),
                kind="head" if info.name in heads else "embedding" if single else kind_of(info.name),
                layer=layer_of(info.name),
                nbytes=info.nbytes if info.name in outlined.matrices else decoded_bytes(info),
                passed=passed.get(info.name, 0),
                stretches=(passed.get(info.name, 0),),
                rows=rows,
                granule=rows // count if count > 1 else math.lcm(GRANULE, head_rows(info)),
                can_be_lent=info.name in outlined.matrices and rows > 1 and can_be_lent(info, matrices=count),
                single=single,
            )
        )
    for use in experts:
        names = tuple(dict.fromkeys(weight.tensor for weight in use.weights))
        infos = [index.tensors[name] for name in names]
        layer = layer_of(names[0])
        items.append(
            Item(
                name=f"the experts of layer {layer}",
                tensors=names,
                kind="experts",
                layer=layer,
                nbytes=sum(info.nbytes for info in infos),
                passed=sum(passed[name] for name in names),
                stretches=tuple(weight.nbytes for weight in use.weights) * use.count,
                rows=0,
                granule=0,
                can_be_lent=all(can_be_lent(info, matrices=use.weights[0].matrices) for info in infos),
            )
        )
    return items


def row_count(info: TensorInfo) -> int:
    return math.prod(info.shape[:-1])


def kind_of(name: str) -> Kind:
    """What a tensor that is no table, head or expert's belongs to, by the names of GGUF."""
    if name.startswith("blk."):
        rest = name.split(".", 2)[2]
        for beginning, kind in BELONGS:
            if rest.startswith(beginning):
                return kind
    return "other"


def layer_of(name: str) -> int:
    """-1 for what belongs to no layer."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" and len(parts) > 1 and parts[1].isdecimal() else -1


def in_order(items: Iterable[Item], costs: Costs) -> list[Item]:
    """The items that save most per byte first; among equals spread over the layers, so that reading and computing
    alternate all through a pass."""
    given = list(items)
    width = max((item.layer for item in given), default=0).bit_length()

    def spread(layer: int) -> int:
        return int(f"{max(layer, 0):0{width}b}"[::-1], 2) if width else 0

    return sorted(given, key=lambda item: (-costs.density(item), spread(item.layer), item.layer, item.name))


def place(items: Sequence[Item], costs: Costs, *, vram: int, ram: int) -> Tiers:
    """Fill VRAM, then RAM. Into VRAM come attention and what else every token passes, then experts, which are computed
    where they lie; RAM holds what cannot be lent before all else. Of experts either all that are not in VRAM are held,
    or what is left of RAM is a slab for those that were used lately.

    `ram` must be enough for what cannot be lent and is not in VRAM.
    """
    on_card: dict[str, int] = {}
    ordered = in_order(items, costs) if vram else []
    dense = [item for item in ordered if item.kind not in ("experts", "embedding")]
    for item in dense + [item for item in ordered if item.kind in ("experts", "embedding")]:
        if item.nbytes <= vram:
            on_card[item.name], vram = item.nbytes, vram - item.nbytes
    rest = [item for item in items if item.name not in on_card]
    held, slab = fill(rest, costs, ram)
    return Tiers(on_card, held, slab)


def fill(items: Sequence[Item], costs: Costs, room: int) -> tuple[dict[str, int], int]:
    """Bytes held of each item within so much room, and those left for a slab of experts."""
    held = {item.name: item.nbytes for item in items if not item.can_be_lent}
    room -= sum(held.values())
    lent = in_order((item for item in items if item.can_be_lent), costs)
    mixed = [item for item in lent if item.kind == "experts"]
    total = sum(item.nbytes for item in mixed)
    slab, decided = 0, False
    for item in lent:
        if item.kind != "experts":
            part = held_part(item, room)
            held[item.name], room = part, room - part
        elif not decided:
            decided = True
            if total <= room:
                held |= {expert.name: expert.nbytes for expert in mixed}
                room -= total
            elif room >= max(sum(expert.stretches) // max(len(expert.stretches) // 3, 1) for expert in mixed):
                slab, room = room, 0
    return {name: nbytes for name, nbytes in held.items() if nbytes}, slab


def held_part(item: Item, room: int) -> int:
    """Bytes of the item that fit: all of it, or as many whole granules of rows."""
    if item.nbytes <= room:
        return item.nbytes
    if room <= 0 or not item.granule:
        return 0
    row = item.nbytes // item.rows
    return room // (row * item.granule) * item.granule * row


def read_per_token(items: Sequence[Item], tiers: Tiers) -> int:
    """Bytes that a step reads from disk: experts as if all of them were chosen equally often."""
    return round(read_of(items, tiers, experts=False) + read_of(items, tiers, experts=True) * missed(items, tiers))


def read_of(items: Iterable[Item], tiers: Tiers, *, experts: bool) -> float:
    """Bytes that a step reads from disk of experts, as if none of them were in the slab, or of all else."""
    return sum(
        item.passed * tiers.on_disk(item) / max(item.nbytes, 1) for item in items if (item.kind == "experts") == experts
    )


def missed(items: Iterable[Item], tiers: Tiers) -> float:
    """Share of the experts that are lent which is not in the slab."""
    lent = sum(item.nbytes for item in items if item.kind == "experts" and tiers.on_disk(item))
    return 1 - min(tiers.slab / lent, 1) if lent else 1.0


@dataclass(frozen=True)
class Trio:
    """The gate, up and down of a layer's experts. The first two may be rows of one tensor."""

    gate: PaperWeight
    up: PaperWeight
    down: PaperWeight


@dataclass(frozen=True)
class Placement:
    """What loading goes by. `held`: of each tensor that is used, the rows in memory, from the first; the others are
    lent. `experts`: of layers whose experts are lent. `order`: what a step walks over that is lent, in its order; of a
    walk or of experts the tensors' rows that go together.
    """

    held: Mapping[str, int]
    vram: frozenset[str] = frozenset()
    experts: Mapping[int, Trio] = field(default_factory=dict)
    slab: int = 0
    arena: int = 0
    block_bytes: int = 0
    io_threads: int = 1
    block_rows: int | None = None
    order: tuple[tuple[PaperWeight, ...], ...] = ()

    def is_lent(self, index: TensorIndex, name: str) -> bool:
        """Whether some rows of the tensor are not in memory."""
        return self.held.get(name, 0) < row_count(index.tensors[name])


def placement_of(
    index: TensorIndex, items: Sequence[Item], tiers: Tiers, step: Step, **stream: int | None
) -> Placement:
    """The rows that follow from bytes. `stream` are the arena, the blocks and the threads of `Placement`."""
    held: dict[str, int] = {}
    for item in items:
        for name in item.tensors:
            rows = row_count(index.tensors[name])
            nbytes = item.nbytes - tiers.on_disk(item)
            held[name] = rows if nbytes == item.nbytes else nbytes // (item.nbytes // rows) if item.rows else 0
    lent = {name for name, rows in held.items() if rows < row_count(index.tensors[name])}
    order, experts = [], {}
    for use in step.uses:
        if not any(weight.tensor in lent for weight in use.weights):
            continue
        if use.way == "experts":
            gate, up, down = use.weights
            experts[layer_of(gate.tensor)] = Trio(gate, up, down)
        order.append(use.weights)
    return Placement(
        held=held,
        vram=frozenset(name for item in items if item.name in tiers.vram for name in item.tensors),
        experts=experts,
        slab=tiers.slab,
        order=tuple(order),
        **stream,  # type: ignore[arg-type]
    )
