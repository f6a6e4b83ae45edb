// Adds the attention of a block to what entries have received, summed over the query heads of each decision: an unbounded cache
// keeps this for bounded ones that continue from it. `kept` has one list for each decision. Of a prompt that is read again it keeps the
// largest attention to the part that is repeated.
//
// Grid: lists * (columns / threads), texts.
#include "params.h"

extern "C" __global__ void received(Layer layer, const Text *__restrict__ texts) {
    const Text &text = texts[blockIdx.y];
    int columns = text.held + text.rows, blocks = (columns + blockDim.x - 1) / blockDim.x;
    int list = blockIdx.x / blocks, c = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (list >= text.kept_lists || c >= columns) return;
    bool is_second = text.part_scale;
    if (is_second && (c < text.part_start || c >= text.part_end)) return;
    const float *scale = is_second ? text.part_scale : text.scale;
    int members = layer.heads / text.kept_lists;
    float &kept = text.kept[(size_t)list * text.capacity + c];
    float sum = c < text.held ? kept : 0;
    for (int row = max(c - text.held, 0); row < text.rows; row++)
        for (int head = list * members; head < (list + 1) * members; head++) {
            size_t at = (size_t)head * text.rows + row;
            float weight = text.logits[at * text.stride + c] * scale[at];
            sum = is_second ? fmaxf(sum, weight) : sum + weight;
        }
    kept = sum;
}
