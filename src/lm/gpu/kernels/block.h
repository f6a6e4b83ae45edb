// What the threads of a block do together.
#pragma once

#define ALL_LANES 0xffffffffu

// Room for one number of each warp.
struct Scratch {
    double wide[32];
    unsigned long long column[32];
    float narrow[32];
};

__device__ inline int lane() { return threadIdx.x % 32; }
__device__ inline int warp() { return threadIdx.x / 32; }
__device__ inline int warps() { return blockDim.x / 32; }

// Brings memory that is soon read nearer.
__device__ inline void fetch_ahead(const float *address) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
#else
    (void)address;
#endif
}

__device__ inline float warp_max(float x) {
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

template <typename T> __device__ inline T warp_sum(T x) {
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

// The sum over all threads, for all of them.
__device__ inline double block_sum(double x, Scratch &scratch) {
    x = warp_sum(x);
    __syncthreads();
    if (lane() == 0) scratch.wide[warp()] = x;
    __syncthreads();
    return warp_sum(lane() < warps() ? scratch.wide[lane()] : 0.0);
}

__device__ inline float block_max(float x, Scratch &scratch) {
    x = warp_max(x);
    __syncthreads();
    if (lane() == 0) scratch.narrow[warp()] = x;
    __syncthreads();
    return warp_max(lane() < warps() ? scratch.narrow[lane()] : -INFINITY);
}

// The smallest number of all threads, for all of them.
__device__ inline double block_min(double x, Scratch &scratch) {
    for (int round = 0; round < 2; round++) {
        for (int distance = 16; distance > 0; distance /= 2) x = fmin(x, __shfl_xor_sync(ALL_LANES, x, distance));
        if (round == 1) break;
        __syncthreads();
        if (lane() == 0) scratch.wide[warp()] = x;
        __syncthreads();
        x = lane() < warps() ? scratch.wide[lane()] : INFINITY;
    }
    return x;
}

// A column behind the position of its token, by which columns are compared.
__device__ inline unsigned long long by_position(unsigned position, int column) {
    return (unsigned long long)position << 32 | (unsigned)column;
}

// No column: behind all others.
#define NO_COLUMN 0xffffffffffffffffull

// The column with the lowest score, the first by its position of equal ones; -1 if no thread has one.
__device__ inline int block_lowest(float score, unsigned long long column, Scratch &scratch) {
    for (int round = 0; round < 2; round++) {
        for (int distance = 16; distance > 0; distance /= 2) {
            float other = __shfl_xor_sync(ALL_LANES, score, distance);
            unsigned long long other_column = __shfl_xor_sync(ALL_LANES, column, distance);
            if (other < score || (other == score && other_column < column)) score = other, column = other_column;
        }
        if (round == 1) break;
        __syncthreads();
        if (lane() == 0) scratch.narrow[warp()] = score, scratch.column[warp()] = column;
        __syncthreads();
        score = lane() < warps() ? scratch.narrow[lane()] : INFINITY;
        column = lane() < warps() ? scratch.column[lane()] : NO_COLUMN;
    }
    return column == NO_COLUMN ? -1 : (int)(unsigned)column;
}
