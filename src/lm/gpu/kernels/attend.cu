// Attention over caches from which nothing leaves while a block is read, in tiles of columns with a running softmax.
//
// Every factor is two f16 with the error of f32: a power of two brings the largest number of its vector below 2^15, the high part is the
// nearest f16 and the low part the nearest to what is left. Of the four products of parts the smallest is left out. Tensor cores cut off
// what they add (arXiv 2203.03341), so they add the small products first, and sums of large ones are added outside of them.
//
// Grid: key-value heads * (rows of all their query heads / ROWS), texts. 128 threads, of which each warp has 16 rows. Shared memory:
// `Tile<DIM, COLUMNS>`.
#include "params.h"
#include "block.h"
#include "mma.h"

#define ROWS 64
// Without it, the eight rows of a fragment would be in the same banks of shared memory.
#define PAD 8

template <int DIM, int COLUMNS> struct Tile {
    // High and low parts.
    Half queries[2][ROWS][DIM + PAD];
    Half vectors[2][COLUMNS][DIM + PAD];   // keys, then values
    float query_scale[ROWS], scale[COLUMNS];
    int has_low;   // whether a value has a low part: numbers of 16 bits have none
};

// The power of two that brings `largest` into [2^14, 2^15), if it is not smaller than 2^-100.
__device__ inline float power_for(float largest) {
    int exponent = (int)(__float_as_uint(largest) >> 23 & 255) - 127;
    return __uint_as_float((unsigned)(127 + 14 - max(exponent, -100)) << 23);
}

// A warp splits a vector into two parts, of which those beyond `dim` are 0. Returns what the parts have to be multiplied by.
template <int DIM> __device__ inline float split(const float *from, int dim, bool is_there, Half *high, Half *low, bool &has_low) {
    float own[(DIM + 31) / 32], largest = 0;
#pragma unroll
    for (int i = 0; i < (DIM + 31) / 32; i++) {
        int at = lane() + 32 * i;
        own[i] = is_there && at < dim ? from[at] : 0;
        largest = fmaxf(largest, fabsf(own[i]));
    }
    float power = power_for(warp_max(largest));
#pragma unroll
    for (int i = 0; i < (DIM + 31) / 32; i++) {
        int at = lane() + 32 * i;
        if (at >= DIM) continue;
        high[at] = to_half(own[i] * power);
        low[at] = to_half(own[i] * power - from_half(high[at]));
        has_low |= low[at] % 0x8000 != 0;
    }
    return 1 / power;
}

// A lane's part of 16 rows and 16 columns.
__device__ inline void load_rows(unsigned a[4], const Half *row, int stride) {
    a[0] = *(const unsigned *)row, a[1] = *(const unsigned *)(row + 8 * stride);
    a[2] = *(const unsigned *)(row + 8), a[3] = *(const unsigned *)(row + 8 * stride + 8);
}

// What a row sees of the columns: from `first` to `last`, but for a gap.
struct Seen {
    int first, last;
};

template <int DIM, int COLUMNS> __device__ inline void attend(const Layer &layer, const Text &text, double *shared) {
    Tile<DIM, COLUMNS> &tile = *(Tile<DIM, COLUMNS> *)shared;
    int per_kv = layer.heads / layer.kv_heads, dim = layer.dim, all_rows = per_kv * text.rows;
    int parts = (all_rows + ROWS - 1) / ROWS, kv_head = blockIdx.x / parts, start = blockIdx.x % parts * ROWS;
    if (kv_head >= layer.kv_heads) return;
    int g = lane() / 4, t = lane() % 4, rows = min(ROWS, all_rows - start);
    int gap = text.ends ? (int)text.ends[kv_head] : text.gap_end;

    // Query heads of a key-value head follow each other, each with all rows of the block.
    auto seen = [&](int row) {
        int own = (start + row) % text.rows, oldest = text.newest_seen ? text.seen + own + 1 - text.newest_seen : 0;
        return Seen{max(oldest - text.oldest, 0), text.held + own};
    };
    bool is_of_one_head = start / text.rows == (start + rows - 1) / text.rows;
    int first = is_of_one_head ? seen(0).first : seen(0).first - start % text.rows;
    int last = is_of_one_head ? seen(rows - 1).last : text.held + text.rows - 1;
    first = max(first, 0);
    // Tiles begin at multiples of their columns from the start of the text, so that bits do not depend on where a block begins.
    int begin = first - (text.oldest + first) % COLUMNS;

    bool has_low = false;
    for (int row = warp(); row < ROWS; row += warps()) {
        const float *query = text.queries + ((size_t)kv_head * all_rows + start + row) * dim;
        float scale = split<DIM>(query, dim, row < rows, tile.queries[0][row], tile.queries[1][row], has_low);
        if (lane() == 0) tile.query_scale[row] = scale;
    }
    int own_row = 16 * warp() + g;
    bool computes = 16 * warp() < rows;
    Seen of_rows[2] = {seen(own_row), seen(own_row + 8)};
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, out[DIM / 8][4];
#pragma unroll
    for (int d = 0; d < DIM / 8; d++) out[d][0] = out[d][1] = out[d][2] = out[d][3] = 0;

    for (int column = begin; column <= last; column += COLUMNS) {
        auto is_there = [&](int c) { return column + c >= first && column + c <= last && (column + c < gap || column + c >= text.gap_end); };
        size_t head_start = (size_t)kv_head * text.capacity;
        __syncthreads();
        if (threadIdx.x == 0) tile.has_low = 0;
        for (int c = warp(); c < COLUMNS; c += warps()) {
            const float *key = text.keys + (head_start + column + c) * dim;
            float scale = split<DIM>(key, dim, is_there(c), tile.vectors[0][c], tile.vectors[1][c], has_low);
            if (lane() == 0) tile.scale[c] = scale;
        }
        __syncthreads();

        float s[COLUMNS / 8][4];
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
        float factor[2] = {0, 0}, shift[2] = {0, 0};
        if (computes) {
#pragma unroll
            for (int part = 0; part < 3; part++)
            // More at once would need more registers than there are.
#pragma unroll 1
                for (int k = 0; k < DIM / 16; k++) {
                    unsigned a[4];
                    load_rows(a, &tile.queries[part == 0][own_row][16 * k + 2 * t], DIM + PAD);
#pragma unroll
                    for (int n = 0; n < COLUMNS / 8; n++) {
                        const Half *key = &tile.vectors[part == 1][8 * n + g][16 * k + 2 * t];
                        unsigned b[2] = {*(const unsigned *)key, *(const unsigned *)(key + 8)};
                        float large[4] = {0, 0, 0, 0};
                        multiply(part == 2 ? large : s[n], a, b);
#pragma unroll
                        for (int i = 0; i < 4; i++) s[n][i] += large[i];
                    }
                }
            float next[2] = {most[0], most[1]};
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int c = 8 * n + 2 * t + i % 2, at = column + c;
                    bool is_seen = at >= of_rows[i / 2].first && at <= of_rows[i / 2].last && is_there(c);
                    float scale = tile.query_scale[own_row + 8 * (i / 2)] * tile.scale[c];
                    s[n][i] = is_seen ? capped(layer, s[n][i] * scale) : -INFINITY;
                    next[i / 2] = fmaxf(next[i / 2], s[n][i]);
                }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                for (int distance = 1; distance < 4; distance *= 2)
                    next[i] = fmaxf(next[i], __shfl_xor_sync(ALL_LANES, next[i], distance));
                shift[i] = next[i] == -INFINITY ? 0 : next[i];
                factor[i] = expf(most[i] - shift[i]);
                most[i] = next[i], sum[i] *= factor[i];
            }
        }
        __syncthreads();
        for (int c = warp(); c < COLUMNS; c += warps()) {
            const float *value = text.values + (head_start + column + c) * dim;
            bool is_low = false;
            float scale = split<DIM>(value, dim, is_there(c), tile.vectors[0][c], tile.vectors[1][c], is_low);
            if (is_low) tile.has_low = 1;
            if (lane() == 0) tile.scale[c] = scale;
        }
        __syncthreads();
        if (!computes) continue;

        // Weights are multiplied by what the values of their column have too little, of which the largest has nothing.
        float largest = 0;
        for (int c = lane(); c < COLUMNS; c += 32) largest = fmaxf(largest, tile.scale[c]);
        largest = warp_max(largest);
        unsigned weights[2][COLUMNS / 16][4];
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            Half parts_of[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = expf(s[n][i] - shift[i / 2]);
                sum[i / 2] += weight;
                weight *= 32768 * (tile.scale[8 * n + 2 * t + i % 2] / largest);
                parts_of[0][i] = to_half(weight);
                parts_of[1][i] = to_half(weight - from_half(parts_of[0][i]));
            }
#pragma unroll
            for (int part = 0; part < 2; part++) {
                weights[part][n / 2][n % 2 * 2] = pack(parts_of[part][0], parts_of[part][1]);
                weights[part][n / 2][n % 2 * 2 + 1] = pack(parts_of[part][2], parts_of[part][3]);
            }
        }
        bool with_low = tile.has_low;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            float acc[4] = {0, 0, 0, 0};
            unsigned high[COLUMNS / 16][2];
#pragma unroll
            for (int k = 0; k < COLUMNS / 16; k++) {
                load_transposed(high[k], &tile.vectors[0][16 * k + lane() % 16][8 * d]);
                multiply(acc, weights[1][k], high[k]);
            }
            if (with_low)
#pragma unroll
                for (int k = 0; k < COLUMNS / 16; k++) {
                    unsigned low[2];
                    load_transposed(low, &tile.vectors[1][16 * k + lane() % 16][8 * d]);
                    multiply(acc, weights[0][k], low);
                }
#pragma unroll
            for (int k = 0; k < COLUMNS / 16; k++) multiply(acc, weights[0][k], high[k]);
#pragma unroll
            for (int i = 0; i < 4; i++) out[d][i] = fmaf(out[d][i], factor[i / 2], acc[i] * (largest / 32768));
        }
    }
    if (!computes) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        for (int distance = 1; distance < 4; distance *= 2) sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], distance);
        int row = own_row + 8 * i;
        if (row >= rows) continue;
        int head = kv_head * per_kv + (start + row) / text.rows;
        float *to = text.out + ((size_t)((start + row) % text.rows) * layer.heads + head) * dim;
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
            for (int j = 0; j < 2; j++) {
                int at = 8 * d + 2 * t + j;
                if (at < dim) to[at] = out[d][2 * i + j] / sum[i];
            }
    }
}

extern "C" __global__ void __launch_bounds__(128) attend_64(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    attend<64, 64>(layer, texts[blockIdx.y], shared);
}

extern "C" __global__ void __launch_bounds__(128) attend_96(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    attend<96, 64>(layer, texts[blockIdx.y], shared);
}

extern "C" __global__ void __launch_bounds__(128) attend_128(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    attend<128, 64>(layer, texts[blockIdx.y], shared);
}

extern "C" __global__ void __launch_bounds__(128) attend_256(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    attend<256, 16>(layer, texts[blockIdx.y], shared);
}
