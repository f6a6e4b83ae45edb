// The softmax of every row over all columns up to its own. Where a policy evicts, `scan` leaves those out that are not in the cache.
//
// Grid: heads * rows of the longest block, texts.
#include "params.h"
#include "block.h"

extern "C" __global__ void softmax(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    const Text &text = texts[blockIdx.y];
    int head = blockIdx.x / text.rows, row = blockIdx.x % text.rows;
    if (head >= layer.heads) return;
    // Positions of an unbounded cache are in order without gaps, so what the window has passed is what comes first.
    int last = text.held + row, oldest = text.window && !text.positions ? text.seen + row + 1 - text.window : 0;
    int first = max(oldest - text.oldest, 0);
    size_t of_row = (size_t)head * text.rows + row;
    float *x = text.logits + of_row * text.stride, *copy = text.raw_logits ? text.raw_logits + of_row * text.stride : nullptr;
    float most = -INFINITY;
    for (int c = first + threadIdx.x; c <= last; c += blockDim.x) {
        x[c] = capped(layer, x[c]);
        if (copy) copy[c] = x[c];
        most = fmaxf(most, x[c]);
    }
    most = block_max(most, scratch);
    double sum = 0;
    for (int c = threadIdx.x; c < text.stride; c += blockDim.x) {
        x[c] = c >= first && c <= last ? expf(x[c] - most) : 0;
        sum += x[c];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) text.max[of_row] = most, text.scale[of_row] = 1.0f / (float)sum;
}
