// Adds the share of attention that evicted entries would have received: one minus the ratio of the softmax sums over the cached
// and over all entries. One key-value head at a time.
//
// Grid: rows of the longest block, texts.
#include "params.h"
#include "block.h"

extern "C" __global__ void loss(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    const Text &text = texts[blockIdx.y];
    int row = blockIdx.x, members = layer.heads / layer.kv_heads;
    if (row >= text.rows || !text.all_keys) return;
    int visible = text.seen + row + 1, first = text.window ? max(visible - text.window, 0) : 0;
    for (int member = 0; member < members; member++) {
        float *x = text.all_logits + ((size_t)member * text.rows + row) * text.all_stride;
        float most = -INFINITY;
        for (int c = first + threadIdx.x; c < visible; c += blockDim.x) {
            x[c] = capped(layer, x[c]);
            most = fmaxf(most, x[c]);
        }
        most = block_max(most, scratch);
        double sum = 0;
        for (int c = first + threadIdx.x; c < visible; c += blockDim.x) sum += expf(x[c] - most);
        sum = block_sum(sum, scratch);
        if (threadIdx.x == 0) {
            int at = (text.kv_head * members + member) * text.rows + row;
            float kept = text.max[at] - logf(text.scale[at]), everything = most + (float)log(sum);
            float lost = 1.0f - expf(kept - everything);
            text.lost[row] += lost < 0 ? 0 : lost; // fmaxf would make 0 of NaN
        }
    }
}
