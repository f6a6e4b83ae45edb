#!/usr/bin/env python3
"""Registers and spilled bytes of every CUDA kernel, as NVIDIA's compiler gives them for three cards, against the table in docs/gpu.md.

    python3 .ci/checks/kernel_registers.py [--write]

No card is needed. Needs nvidia-cuda-nvrtc 13.0.88 (PyPI); another version may give other numbers. `--write` writes the table anew.
"""
import ctypes, re, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS, PAGE = ROOT / "src/lm/gpu/kernels", ROOT / "docs/gpu.md"
CARDS = {80: "sm_80 (A100)", 90: "sm_90 (H100, H200)", 120: "sm_120 (RTX 50)"}
BEGIN, END = "<!-- registers of kernels -->\n", "<!-- end of registers -->\n"


def library():
    for folder in map(Path, sys.path):
        for found in folder.glob("nvidia/**/libnvrtc.so*"):
            # Loaded first, because the compiler looks for it by its name alone.
            ctypes.CDLL(str(next(found.parent.glob("libnvrtc-builtins.so*"))))
            return ctypes.CDLL(str(found))
    sys.exit("nvidia-cuda-nvrtc is not installed: pip install nvidia-cuda-nvrtc==13.0.88")


def compiled(nvrtc, capability):
    """-> what the assembler says of the kernels, compiled as build.rs does"""
    program = ctypes.c_void_p()
    source = (KERNELS / "kernels.cu").read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture=sm_{capability}", "--std=c++17", "--fmad=false", f"--include-path={KERNELS}", "--ptxas-options=-v",
               # nvcc has these from math.h.
               "--define-macro=INFINITY=__int_as_float(0x7f800000)", "--define-macro=NAN=__int_as_float(0x7fffffff)"]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed:
        sys.exit(f"sm_{capability}: {log.value.decode()}")
    return log.value.decode()


def main():
    nvrtc, rows = library(), {}
    for capability in CARDS:
        name = None
        for line in compiled(nvrtc, capability).splitlines():
            if found := re.search(r"Compiling entry function '(\w+)'", line):
                name = found[1]
            elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spilled = max(int(found[1]), int(found[2]))
            elif found := re.search(r"Used (\d+) registers", line):
                rows.setdefault(name, {})[capability] = f"{found[1]} ({spilled})" if spilled else found[1]
    table = f"| kernel | {' | '.join(CARDS.values())} |\n|---|{'---:|' * len(CARDS)}\n"
    table += "".join(f"| `{name}` | {' | '.join(cells[c] for c in CARDS)} |\n" for name, cells in sorted(rows.items()))
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    expected, after = rest.split(END)
    if "--write" in sys.argv:
        PAGE.write_text(before + BEGIN + table + END + after)
    elif expected != table:
        sys.exit(f"docs/gpu.md has other registers than the kernels; after a look, write them with --write:\n{table}")
    print(table, end="")


main()
