// Multiplies attention times values by the scales of the softmax: (heads, rows, dim) to (rows, heads, dim).
//
// Grid: rows of the longest block, texts.
#include "params.h"

extern "C" __global__ void outputs(Layer layer, const Text *__restrict__ texts) {
    const Text &text = texts[blockIdx.y];
    int row = blockIdx.x;
    if (row >= text.rows) return;
    for (int i = threadIdx.x; i < layer.heads * layer.dim; i += blockDim.x) {
        int head = i / layer.dim, at = i % layer.dim;
        size_t of_row = (size_t)head * text.rows + row;
        text.out[(size_t)row * layer.heads * layer.dim + i] = text.mixed[of_row * layer.dim + at] * text.scale[of_row];
    }
}
