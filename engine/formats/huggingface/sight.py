"""What config.json says of a text model that sees, beside what every family has → keys of GGUF.

Keys are those of llama.cpp's converter (`Qwen3VLTextModel`).
"""

from __future__ import annotations

from engine.errors import ModelFileError
from engine.formats.huggingface.fields import Fields


def qwen3vl(fields: Fields, outer: Fields) -> dict[str, object]:
    """`fields` are those of the text part, `outer` those at the top."""
    rope = fields.fields("rope_parameters") or fields.fields("rope_scaling") or Fields({}, fields.where)
    vision = outer.fields("vision_config") or Fields({}, outer.where)
    sections, levels = rope.get("mrope_section"), vision.get("deepstack_visual_indexes") or []
    if not isinstance(sections, list) or len(sections) != 3 or not all(type(count) is int for count in sections):
        raise ModelFileError(f"mrope_section in {rope.where} must be three counts: it is damaged. Download it again.")
    if not isinstance(levels, list):
        raise ModelFileError(
            f"deepstack_visual_indexes in {vision.where} must be a list of layers: it is damaged. Download it again."
        )
    return {"rope.dimension_sections": [*sections, 0], "n_deepstack_layers": len(levels)}
