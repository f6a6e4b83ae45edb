// The softmax of every row where nothing is evicted but by the layer's window.
//
// Grid: heads * rows of the longest block, texts.
#include "params.h"
#include "block.h"

extern "C" __global__ void softmax(Layer layer, const Text *texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    const Text &text = texts[blockIdx.y];
    int head = blockIdx.x / text.rows, row = blockIdx.x % text.rows;
    if (head >= layer.heads) return;
    // Positions are in order without gaps, so what the window has passed is what comes first.
    int last = text.held + row, oldest = text.window ? text.seen + row + 1 - text.window : 0;
    int first = max(oldest - text.oldest, 0);
    float *x = text.logits + ((size_t)head * text.rows + row) * text.stride;
    float most = -INFINITY;
    for (int c = first + threadIdx.x; c <= last; c += blockDim.x) {
        if (layer.softcap > 0) x[c] = layer.softcap * tanhf(x[c] / layer.softcap);
        most = fmaxf(most, x[c]);
    }
    most = block_max(most, scratch);
    double sum = 0;
    for (int c = threadIdx.x; c < text.stride; c += blockDim.x) {
        x[c] = c >= first && c <= last ? expf(x[c] - most) : 0;
        sum += x[c];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        text.max[head * text.rows + row] = most;
        text.sum[head * text.rows + row] = (float)sum;
    }
}
