#!/usr/bin/env bash
# Installs what `cargo build --features cuda` needs, without a GPU, a driver or root: nvcc and its headers from PyPI.
#
#     scripts/cuda-toolkit.sh FOLDER [COMPUTE_CAP]     (0.3 GB)
#     settings=$(scripts/cuda-toolkit.sh FOLDER) && eval "$settings" && cargo build --release --features cuda
#
# COMPUTE_CAP is the compute capability of the oldest GPU to run on, 80 (A100) by default. Newer GPUs translate candle's
# kernels on first use. (Its kernels for quantized models are for one generation only; nothing here uses them.)
#
# Prints the `export` lines to build with, and nothing else, on stdout. Needs python3 with pip, gcc or clang as `cc`, ar and
# cargo, on x86-64 Linux. Run it again after an update of cudarc, from which it reads the functions to link.
#
# How it links: candle-core links the CUDA libraries by name, so a binary built with a usual toolkit does not even start if
# one of them is missing (https://github.com/huggingface/candle/issues/3900). This toolkit gives the linker archives with one
# jump per function instead, which open the real library at the first call. If that fails the function returns an error:
# without a driver `Device::new_cuda` reports CUDA_ERROR_NO_DEVICE, and the program continues on the processor. CUDA's runtime
# is linked statically. To run on a GPU, libcublas.so.13, libcublasLt.so.13, libcurand.so.10 and (for kernels compiled at run
# time) libnvrtc.so.13 must be on the loader's path, such as LD_LIBRARY_PATH, or in lib64 or lib of $CUDA_HOME or
# /usr/local/cuda. They are on PyPI too: nvidia-cublas==13.0.*, nvidia-curand==10.4.0.*, nvidia-cuda-nvrtc==13.0.*; torch for
# CUDA 13 installs all three in site-packages/nvidia/cu13/lib.
set -euo pipefail

[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
[[ $(uname -sm) == "Linux x86_64" ]] || { echo "$0: only for Linux on x86-64, this is $(uname -sm)" >&2; exit 1; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
compute_cap=${2:-80}
repo=$(cd "$(dirname "$0")/.." && pwd)
home=$folder/nvidia/cu13

wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)
if [[ $(cat "$folder/wheels" 2>/dev/null) != "${wheels[*]}" ]]; then
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --upgrade --target "$folder" "${wheels[@]}" >&2
    echo "${wheels[*]}" > "$folder/wheels"
fi

# The wheels have bin, include, lib and nvvm as nvcc expects them. What is linked is in lib64, which cudarc searches too; lib
# has only names with versions, so the linker ignores it.
rm -rf "$home/lib64"
mkdir "$home/lib64"
ln -s ../lib/libcudart_static.a ../lib/libcudadevrt.a "$home/lib64"
ln -s ../lib/libcudart_static.a "$home/lib64/libcudart.a"

cudarc=$(cargo metadata --manifest-path "$repo/Cargo.toml" --format-version 1 --features cuda |
    python3 -c 'import json, os, sys
print(*(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == "cudarc"))')

python3 - "$cudarc" "$home/lib64" <<'PYTHON'
import re, subprocess, sys
from pathlib import Path

# Module of cudarc -> name for the linker, names for the loader, and what every function returns if there is no library:
# CUDA_ERROR_NO_DEVICE, CUBLAS_STATUS_NOT_INITIALIZED, CURAND_STATUS_INITIALIZATION_FAILED, NVRTC_ERROR_INTERNAL_ERROR.
# A missing driver is not reported here (opening a device reports it). The others matter only with a GPU, and are reported.
LIBRARIES = {
    "driver": ("cuda", ["libcuda.so.1", "libcuda.so"], 100, False),
    "cublas": ("cublas", ["libcublas.so.13", "libcublas.so"], 1, True),
    "cublaslt": ("cublasLt", ["libcublasLt.so.13", "libcublasLt.so"], 1, True),
    "curand": ("curand", ["libcurand.so.10", "libcurand.so"], 203, True),
    "nvrtc": ("nvrtc", ["libnvrtc.so.13", "libnvrtc.so"], 11, True),
}

# A slot holds the address of a function; at first that of code which finds the function and keeps all arguments.
SOURCE = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const files[] = {@FILES@};
static const char *const functions[] = {@FUNCTIONS@};
extern void *slots[] __asm__("slots_@NAME@") __attribute__((visibility("hidden")));

static int none(void) { return @STATUS@; }
static const char *none_to_name(void) { return "there is no usable lib@NAME@"; }
static int none_explains(int error, const char **text) { return *text = "there is no usable lib@NAME@", 0; }
static int explains(int i) { return @EXPLAINS@; }
static int returns_text(int i) { return @TEXTS@; }

static void *library(void) {
    static void *opened;
    void *found = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    char why[512] = "", path[4096];
    const char *home = getenv("CUDA_HOME");
    const char *const folders[] = {"", home ? home : "/usr/local/cuda", "/usr/local/cuda"};
    const char *const inside[] = {"", "/lib64/", "/lib/"};
    for (int d = 0; d < 3; d++)
        for (int l = d ? 1 : 0; l < (d ? 3 : 1); l++)
            for (unsigned f = 0; f < sizeof files / sizeof *files; f++) {
                snprintf(path, sizeof path, "%s%s%s", folders[d], inside[l], files[f]);
                if ((found = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
                    __atomic_store_n(&opened, found, __ATOMIC_RELEASE);
                    return found;
                }
                const char *error = dlerror();
                if (!*why && error)
                    snprintf(why, sizeof why, "%s", error);
            }
    static int said = !@SAYS@;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "lib@NAME@ could not be loaded: %s\n", why);
    return NULL;
}

__attribute__((visibility("hidden"), used)) void *find_@NAME@(unsigned long i) {
    void *from = library(), *found = from ? dlsym(from, functions[i]) : NULL;
    if (from && !found)
        fprintf(stderr, "lib@NAME@ has no %s: is it older than CUDA 13.0?\n", functions[i]);
    if (!found)
        found = returns_text(i) ? (void *)none_to_name : explains(i) ? (void *)none_explains : (void *)none;
    __atomic_store_n(&slots[i], found, __ATOMIC_RELEASE);
    return found;
}

__asm__(
    ".text\n"
    "first_@NAME@:\n"
    "  pushq %rbp\n  movq %rsp, %rbp\n"
    "  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n  pushq %rcx\n  pushq %r8\n  pushq %r9\n  pushq %rax\n  pushq %rax\n"
    "  subq $128, %rsp\n"
    "  movups %xmm0, 0(%rsp)\n  movups %xmm1, 16(%rsp)\n  movups %xmm2, 32(%rsp)\n  movups %xmm3, 48(%rsp)\n"
    "  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n  movups %xmm6, 96(%rsp)\n  movups %xmm7, 112(%rsp)\n"
    "  movl %r11d, %edi\n  call find_@NAME@\n  movq %rax, %r11\n"
    "  movups 0(%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n  movups 32(%rsp), %xmm2\n  movups 48(%rsp), %xmm3\n"
    "  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n  movups 96(%rsp), %xmm6\n  movups 112(%rsp), %xmm7\n"
    "  addq $128, %rsp\n"
    "  popq %rax\n  popq %rax\n  popq %r9\n  popq %r8\n  popq %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"
    "  popq %rbp\n  jmp *%r11\n"
@JUMPS@
    ".data\n.balign 8\n.hidden slots_@NAME@\n.globl slots_@NAME@\nslots_@NAME@:\n"
@SLOTS@
    ".text\n");
"""

cudarc, lib64 = map(Path, sys.argv[1:])
for module, (name, files, status, says) in LIBRARIES.items():
    bindings = (cudarc / "src" / module / "sys" / "mod.rs").read_text()
    found = re.findall(r'extern "C" \{\s*fn (\w+)\(.*?\)(?: -> ([^;]+))?;', bindings, re.DOTALL)
    assert len(found) == bindings.count('extern "C" {') > 0, f"cudarc's {module} is not written as expected"
    functions = sorted(dict(found))
    texts = [i for i, f in enumerate(functions) if "c_char" in dict(found)[f]]
    explains = [i for i, f in enumerate(functions) if f == "cuGetErrorString"]
    jumps = (f'    ".globl {f}\\n.hidden {f}\\n.type {f}, @function\\n{f}:\\n  jmp *slots_{name}+{8 * i}(%rip)\\n"\n'
             f'    "find_{name}_{i}:\\n  movl ${i}, %r11d\\n  jmp first_{name}\\n"' for i, f in enumerate(functions))
    source = SOURCE
    for key, value in {
        "FILES": ", ".join(f'"{f}"' for f in files), "FUNCTIONS": ", ".join(f'"{f}"' for f in functions),
        "STATUS": status, "SAYS": int(says),
        **{key: " || ".join(f"i == {i}" for i in of) or "0" for key, of in (("TEXTS", texts), ("EXPLAINS", explains))},
        "JUMPS": "\n".join(jumps), "SLOTS": "\n".join(f'    ".quad find_{name}_{i}\\n"' for i in range(len(functions))),
        "NAME": name,
    }.items():
        source = source.replace(f"@{key}@", str(value))
    c, o, a = (lib64 / f"lib{name}.{end}" for end in ("c", "o", "a"))
    c.write_text(source)
    subprocess.run(["cc", "-O2", "-fPIC", "-Wall", "-c", c, "-o", o], check=True)
    subprocess.run(["ar", "rcs", a, o], check=True)
    c.unlink(), o.unlink()
PYTHON

printf 'export CUDA_HOME=%q CUDA_COMPUTE_CAP=%q\nexport PATH=%q:"$PATH"\n' "$home" "$compute_cap" "$home/bin"
