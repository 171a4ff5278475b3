"""Runs files in llama.cpp: a program for a Python that has llama-cpp-python, which needs nothing of this one.

    python peer.py FOLDER CONTEXT TOKEN …

For each *.gguf in the folder it writes the logits of all tokens, float32 [n, vocabulary], as *.npy beside it, or, where
llama.cpp refuses the file, nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path


def run(path: Path, context: int, tokens: list[int]) -> None:
    """One prefill of all tokens over a float32 cache."""
    import llama_cpp
    import numpy as np

    model_settings = llama_cpp.llama_model_default_params()
    model_settings.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_settings)
    if not model:
        return
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = context
    settings.n_threads = settings.n_threads_batch = 1
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
    settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    at_work = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for place, token in enumerate(tokens):
        batch.token[place], batch.pos[place], batch.logits[place] = token, place, 1
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
    if llama_cpp.llama_decode(at_work, batch) == 0:
        width = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(at_work), (len(tokens), width))
        np.save(path.with_suffix(".npy"), logits)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(at_work)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    for each in sorted(Path(sys.argv[1]).glob("*.gguf")):
        run(each, int(sys.argv[2]), [int(token) for token in sys.argv[3:]])
