// Leaves entries out of the rows after they have left, where decisions did not need these rows' attention.
//
// Grid: heads * rows of the longest block, texts. A warp takes one row.
#include "decide.h"

extern "C" __global__ void exclude(Layer layer, const Text *__restrict__ texts) {
    const Text &text = texts[blockIdx.y];
    int head = blockIdx.x / text.rows, row = blockIdx.x % text.rows;
    // Only windows take entries before the first row.
    if (head >= layer.heads || (row == 0 && !text.window)) return;
    int group = head / (layer.heads / text.groups);
    weigh(layer, text, head, row, text.gone_from + (size_t)group * text.stride);
}
