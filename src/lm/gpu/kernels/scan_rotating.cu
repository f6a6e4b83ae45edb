// The scan where positions depend on evictions (`slot`, `squeezed`): the logits of a row can only be computed after the row
// before was scanned.
//
// Only differences of positions matter to rotary products, so they are counted from the newest end: an entry keeps its
// coordinate until a later one is evicted, and then moves towards the newest by what the gap shrank. Moved keys are rotated by
// the difference; every few rotations they are rotated again from the raw key, so that rounding errors do not add up.
// `rotations` of a group: how often keys were rotated since then, and that these are of tokens before this position.
//
// Grid and shared memory: as of `scan`, and after the columns' bytes a cosine and a sine for every pair.
#include "decide.h"

// Rotations after which keys are rotated from raw ones.
#define REFRESH 16

__device__ inline double distance(int kind, int gap) {
    if (kind == SLOT) return 1;
    return gap > 10 ? log(log((double)gap)) : gap;
}

// The entry nearest before a position (`sign` 1), or after it (-1); -1 if there is none.
__device__ inline int nearest(const Scan &scan, unsigned position, int sign) {
    unsigned long long least = NO_COLUMN;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
        int gap = sign * (int)(position - scan.positions[c]);
        if (!scan.alive[c] || gap <= 0) continue;
        unsigned long long own = by_position(gap, c);
        if (own < least) least = own;
    }
    return block_lowest(0, least, scan.scratch);
}

// Rotates columns of the group's keys from the raw ones, those of tokens before a position.
__device__ inline void rotate(const Scan &scan, int first, int end, unsigned position) {
    const Text &text = scan.text;
    int pairs = scan.layer.pairs, dim = scan.layer.dim, kv_members = scan.layer.kv_heads / text.groups;
    const double *coordinates = text.coordinates + (size_t)scan.group * text.capacity;
    for (int at = threadIdx.x; at < (dim - pairs) * (end - first); at += blockDim.x) {
        int j = at / (end - first), c = first + at % (end - first);
        if (scan.positions[c] >= position) continue;
        float cosine = 1, sine = 0;
        if (j < pairs) {
            double angle = coordinates[c] * text.frequencies[j];
            cosine = (float)(cos(angle) * text.frequency_factor), sine = (float)(sin(angle) * text.frequency_factor);
        }
        for (int member = 0; member < kv_members; member++) {
            size_t head = (size_t)(scan.group * kv_members + member) * dim * text.capacity;
            const float *raw = text.raw_keys + head;
            float *rotated = text.keys + head;
            if (j < pairs) {
                size_t one = (size_t)j * text.capacity + c, other = (size_t)(j + pairs) * text.capacity + c;
                float a = raw[one], b = raw[other];
                rotated[one] = a * cosine - b * sine;
                rotated[other] = b * cosine + a * sine;
            } else {
                size_t rest = (size_t)(j + pairs) * text.capacity + c;
                rotated[rest] = raw[rest];
            }
        }
    }
    __syncthreads();
}

// Gives the new entry its coordinate, and rotates its key and the queries.
__device__ inline void place_row(const Scan &scan, float *cosines, float *sines) {
    const Text &text = scan.text;
    int row = scan.row, column = text.held + row, pairs = scan.layer.pairs, dim = scan.layer.dim;
    int kv_members = scan.layer.kv_heads / text.groups;
    double *coordinates = text.coordinates + (size_t)scan.group * text.capacity;
    const unsigned *positions = scan.positions;
    int last = nearest(scan, positions[column], 1);
    if (threadIdx.x == 0)
        coordinates[column] =
            last < 0 ? 0 : coordinates[last] + distance(text.positions_kind, positions[column] - positions[last]);
    for (int at = threadIdx.x; at < kv_members * dim; at += blockDim.x) {
        int head = scan.group * kv_members + at / dim;
        text.raw_keys[((size_t)head * dim + at % dim) * text.capacity + column] =
            text.new_keys[((size_t)row * scan.layer.kv_heads + head) * dim + at % dim];
    }
    __syncthreads();
    rotate(scan, column, column + 1, positions[column] + 1);
    for (int j = threadIdx.x; j < pairs; j += blockDim.x) {
        double angle = coordinates[column] * text.frequencies[j];
        cosines[j] = (float)(cos(angle) * text.frequency_factor);
        sines[j] = (float)(sin(angle) * text.frequency_factor);
    }
    __syncthreads();
    for (int at = threadIdx.x; at < scan.members * dim; at += blockDim.x) {
        int head = scan.first_head + at / dim, d = at % dim;
        const float *from = text.new_queries + ((size_t)row * scan.layer.heads + head) * dim;
        float x = from[d];
        if (d < pairs) x = from[d] * cosines[d] - from[d + pairs] * sines[d];
        else if (d < 2 * pairs) x = from[d] * cosines[d - pairs] + from[d - pairs] * sines[d - pairs];
        text.queries[((size_t)head * text.rows + row) * dim + d] = x * text.query_scales[row];
    }
    __syncthreads();
}

__device__ inline void logits_of_row(const Scan &scan) {
    const Text &text = scan.text;
    int row = scan.row, columns = scan.columns(), dim = scan.layer.dim, per_kv = scan.per_kv();
    for (int at = threadIdx.x; at < scan.members * columns; at += blockDim.x) {
        int head = scan.first_head + at / columns, c = at % columns;
        const float *query = text.queries + ((size_t)head * text.rows + row) * dim;
        const float *key = text.keys + (size_t)(head / per_kv) * dim * text.capacity + c;
        float sum = 0;
        for (int d = 0; d < dim; d++) sum += query[d] * key[(size_t)d * text.capacity];
        text.logits[((size_t)head * text.rows + row) * text.stride + c] = capped(scan.layer, sum);
    }
    __syncthreads();
}

// After an eviction: moves all before it towards the newest by what the gap shrank.
__device__ inline void close_gap(const Scan &scan, float *cosines, float *sines) {
    const Text &text = scan.text;
    int columns = scan.columns(), pairs = scan.layer.pairs, dim = scan.layer.dim, kind = text.positions_kind;
    const unsigned *positions = scan.positions;
    unsigned gone = positions[scan.victim];
    int before = nearest(scan, gone, 1), after = nearest(scan, gone, -1);
    if (before < 0 || after < 0) return;
    int left = positions[before], right = positions[after];
    double shrink = distance(kind, (int)gone - left) + distance(kind, right - (int)gone) - distance(kind, right - left);
    if (shrink == 0) return;
    double *coordinates = text.coordinates + (size_t)scan.group * text.capacity;
    int *rotations = text.rotations + 2 * scan.group;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        if (positions[c] < gone) coordinates[c] += shrink;
    for (int j = threadIdx.x; j < pairs; j += blockDim.x) {
        cosines[j] = (float)cos(shrink * text.frequencies[j]);
        sines[j] = (float)sin(shrink * text.frequencies[j]);
    }
    if (threadIdx.x == 0) rotations[0]++, rotations[1] = max(rotations[1], (int)gone);
    __syncthreads();
    if (rotations[0] == REFRESH) {
        // Under Window only the first entries are rotated.
        rotate(scan, 0, columns, rotations[1]);
        if (threadIdx.x == 0) rotations[0] = rotations[1] = 0;
        __syncthreads();
        return;
    }
    int kv_members = scan.layer.kv_heads / text.groups;
    for (int at = threadIdx.x; at < kv_members * pairs * columns; at += blockDim.x) {
        int c = at % columns, j = at / columns % pairs, head = scan.group * kv_members + at / columns / pairs;
        if (positions[c] >= gone) continue;
        float *key = text.keys + (size_t)head * dim * text.capacity + c;
        float &a = key[(size_t)j * text.capacity], &b = key[(size_t)(j + pairs) * text.capacity];
        float rotated = a * cosines[j] - b * sines[j];
        b = b * cosines[j] + a * sines[j];
        a = rotated;
    }
    __syncthreads();
}

// A thread needs 96 registers, of which a block has 65,536; with fewer for each thread some numbers would be kept in memory.
// Where more threads are asked for, `cuda.rs` launches these.
extern "C" __global__ void __launch_bounds__(640) scan_rotating(Layer layer, const Text *texts) {
    extern __shared__ double shared[];
    const Text &text = texts[blockIdx.y];
    if ((int)blockIdx.x >= text.groups) return;
    Scan scan = begin_scan(layer, text, (unsigned char *)shared);
    size_t bytes = text.alive_is_shared ? (text.stride + 7) / 8 * 8 : 0;
    float *cosines = (float *)((unsigned char *)shared + sizeof(Scratch) + bytes), *sines = cosines + layer.pairs;
    for (; scan.row < text.rows; scan.row++) {
        // The host gives the new column its coordinate before the window takes one, which never is the last one.
        place_row(scan, cosines, sines);
        logits_of_row(scan);
        join(scan);
        attention_of_row(scan);
        decide(scan);
        if (scan.victim >= 0) close_gap(scan, cosines, sines);
    }
    end_scan(scan);
}
