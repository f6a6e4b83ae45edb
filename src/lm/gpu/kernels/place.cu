// Rotates the queries and keys of a block and puts keys and values behind the entries of the cache.
//
// Grid: rows of the longest block, texts. One thread block takes one token.
#include "params.h"

// The first 2 * pairs dimensions are rotated in pairs (j, j + pairs); all are multiplied by `scale`.
__device__ inline float rotated(const float *from, int at, int pairs, const float *cos, const float *sin, float scale) {
    if (at < pairs) return (from[at] * cos[at] - from[at + pairs] * sin[at]) * scale;
    if (at < 2 * pairs) return (from[at] * cos[at - pairs] + from[at - pairs] * sin[at - pairs]) * scale;
    return from[at] * scale;
}

extern "C" __global__ void place(Layer layer, const Text *__restrict__ texts) {
    const Text &text = texts[blockIdx.y];
    int row = blockIdx.x, dim = layer.dim, column = text.held + row;
    if (row >= text.rows) return;
    const float *cos = text.cos + (size_t)row * layer.pairs, *sin = text.sin + (size_t)row * layer.pairs;
    for (int i = threadIdx.x; i < layer.kv_heads * dim; i += blockDim.x) {
        int head = i / dim, at = i % dim;
        size_t from = ((size_t)row * layer.kv_heads + head) * dim;
        text.values[((size_t)head * text.capacity + column) * dim + at] = text.new_values[from + at];
        float key = rotated(text.new_keys + from, at, layer.pairs, cos, sin, 1.0f);
        text.keys[((size_t)head * text.capacity + column) * dim + at] = key;
        if (text.all_keys) text.all_keys[((size_t)head * text.all_capacity + text.seen + row) * dim + at] = key;
    }
    for (int i = threadIdx.x; i < layer.heads * dim; i += blockDim.x) {
        int head = i / dim, at = i % dim;
        const float *from = text.new_queries + ((size_t)row * layer.heads + head) * dim;
        text.queries[((size_t)head * text.rows + row) * dim + at] =
            rotated(from, at, layer.pairs, cos, sin, text.query_scales[row]);
    }
}
