// What the threads of a block do together.
#pragma once

#define ALL_LANES 0xffffffffu

// Room for one number of each warp.
struct Scratch {
    double wide[32];
    float narrow[32];
    int column[32];
};

__device__ inline int lane() { return threadIdx.x % 32; }
__device__ inline int warp() { return threadIdx.x / 32; }
__device__ inline int warps() { return blockDim.x / 32; }

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

// The column with the lowest score, the first of equal ones. Threads without a column give one beyond all others.
__device__ inline int block_lowest(float score, int column, Scratch &scratch) {
    for (int round = 0; round < 2; round++) {
        for (int distance = 16; distance > 0; distance /= 2) {
            float other = __shfl_xor_sync(ALL_LANES, score, distance);
            int other_column = __shfl_xor_sync(ALL_LANES, column, distance);
            if (other < score || (other == score && other_column < column)) score = other, column = other_column;
        }
        if (round == 1) return column;
        __syncthreads();
        if (lane() == 0) scratch.narrow[warp()] = score, scratch.column[warp()] = column;
        __syncthreads();
        score = lane() < warps() ? scratch.narrow[lane()] : INFINITY;
        column = lane() < warps() ? scratch.column[lane()] : 0x7fffffff;
    }
    return column;
}
