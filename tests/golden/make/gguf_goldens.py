#!/usr/bin/env python3
"""Makes tests/golden/gguf: a tensor of every type that llama.cpp's Python package dequantises, and the numbers it gives.

    pip install gguf==0.19.0 numpy safetensors
    python3 tests/golden/make/gguf_goldens.py [FOLDER]

types.gguf holds the tensors, 2 x 512 each, types.safetensors what gguf.quants.dequantize makes of them. Blocks of types that
the package cannot write are random bytes with small scales.
"""
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

SHAPE = (2, 512)
WRITTEN = [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.MXFP4]
# Where the half-precision scales of a block are, in bytes.
RANDOM = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}


def random_blocks(rng, kind, scales):
    numbers, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (SHAPE[0], SHAPE[1] // numbers, size), dtype=np.uint8)
    for place in scales:
        scale = rng.uniform(-0.02, 0.02, blocks.shape[:2]).astype(np.float16)
        blocks[..., place : place + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(SHAPE[0], -1)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "gguf")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    stored = {kind: quantize(rng.normal(0, 0.05, SHAPE).astype(np.float32), kind) for kind in WRITTEN}
    stored |= {kind: random_blocks(rng, kind, scales) for kind, scales in RANDOM.items()}
    writer = GGUFWriter(folder / "types.gguf", "llama")
    writer.add_head_count(1)
    for kind, data in stored.items():
        writer.add_tensor(kind.name.lower(), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    numbers = {kind.name.lower(): np.ascontiguousarray(dequantize(data, kind), np.float32) for kind, data in stored.items()}
    save_file(numbers, folder / "types.safetensors")


if __name__ == "__main__":
    main()
