"""What a Hugging Face checkpoint says, in the engine's words: the names and keys of GGUF, at a GGUF file's precision.

So `engine.models` and `engine.text` read one kind of metadata, and both forms of a model give the same bits; only the
patches of Qwen's vision towers are summed in another order (`vision`).
"""

from engine.formats.huggingface.configuration import Configuration
from engine.formats.huggingface.translate import translate
from engine.formats.huggingface.vision import has_tower, translate_tower

__all__ = ["Configuration", "has_tower", "translate", "translate_tower"]
