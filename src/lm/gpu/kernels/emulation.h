// CUDA's words for a C++ compiler of the host, as far as the kernels use them. The threads of a block are fibers of one thread,
// which change at barriers and shuffles.
//
// Found where real hardware would hang or give wrong numbers: threads of a block that wait at different barriers, or have ended;
// lanes of a warp that shuffle at different places; writes behind the shared memory. Shared memory starts as NaN. Under the
// address sanitizer reads behind it are found too, and accesses outside of buffers, each of which is an allocation of its own.
// A missing barrier is found by running the warps in several orders (`order` of `emulate`): results differ.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __shared__ thread_local
#define __launch_bounds__(threads)

struct Index {
    unsigned x, y, z;
};
extern thread_local Index threadIdx, blockIdx, blockDim, gridDim;

using std::isfinite;
using std::isnan;
inline int max(int a, int b) { return a > b ? a : b; }
inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Waits for all threads of the block.
void emulated_barrier(int line);
// Gives a value to the other lanes of the warp and returns the values of all 32.
const uint64_t *emulated_exchange(int line, uint64_t value);

template <typename T> T emulated_shuffle(int line, T value, int from) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulated_exchange(line, bits)[from];
    memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned emulated_ballot(int line, bool vote) {
    const uint64_t *votes = emulated_exchange(line, vote);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++) bits |= (unsigned)votes[lane] << lane;
    return bits;
}

#define __syncthreads() emulated_barrier(__LINE__)
#define __shfl_sync(mask, value, from) emulated_shuffle(__LINE__, value, from)
#define __shfl_xor_sync(mask, value, distance) emulated_shuffle(__LINE__, value, (threadIdx.x % 32) ^ (distance))
#define __ballot_sync(mask, vote) emulated_ballot(__LINE__, vote)
