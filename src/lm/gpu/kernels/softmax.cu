// The softmax of every row over all columns up to its own. Where a policy evicts, `scan` leaves those out that are not in the cache.
//
// Grid: heads * rows of the longest block, texts.
#include "params.h"
#include "block.h"

// The prompt's first entries that take part in every softmax of its second reading (`eviction/future.rs`).
#define FIRST_ENTRIES 4

extern "C" __global__ void softmax(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    const Text &text = texts[blockIdx.y];
    int head = blockIdx.x / text.rows, row = blockIdx.x % text.rows;
    if (head >= layer.heads) return;
    // Positions are then in order without gaps, so what has left is what comes first behind those that stay.
    int last = text.held + row, oldest = text.newest_seen ? text.seen + row + 1 - text.newest_seen : 0;
    int first = max(oldest - text.oldest, 0);
    int gap = text.ends ? text.ends[head / (layer.heads / layer.kv_heads)] : text.gap_end;
    size_t of_row = (size_t)head * text.rows + row;
    float *x = text.logits + of_row * text.stride, *copy = text.raw_logits ? text.raw_logits + of_row * text.stride : nullptr;
    float most = -INFINITY;
    auto is_there = [&](int c) {
        return (c >= first || c < text.keep_first) && c <= last && (c < gap || c >= text.gap_end);
    };
    for (int c = (text.keep_first ? 0 : first) + threadIdx.x; c <= last; c += blockDim.x) {
        x[c] = capped(layer, x[c]);
        if (copy) copy[c] = x[c];
        if (is_there(c)) most = fmaxf(most, x[c]);
    }
    most = block_max(most, scratch);
    double sum = 0;
    for (int c = threadIdx.x; c < text.stride; c += blockDim.x) {
        x[c] = is_there(c) ? expf(x[c] - most) : 0;
        sum += x[c];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) text.max[of_row] = most, text.scale[of_row] = 1.0f / (float)sum;
    if (!text.part_scale) return;
    double part = 0;
    for (int c = threadIdx.x; c <= last; c += blockDim.x)
        if (c >= text.prompt || c < text.part_end && (c >= text.part_start || c < FIRST_ENTRIES)) part += x[c];
    part = block_sum(part, scratch);
    if (threadIdx.x == 0) text.part_scale[of_row] = (float)(1 / part);
}
