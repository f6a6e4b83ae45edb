// Attention of a block as if nothing left in it, by columns: `walk` asks for a column's attention of all later rows.
//
// Grid: groups * tiles of 32 columns * tiles of 32 pairs of a row and a query head of the group, texts.
#include "params.h"

extern "C" __global__ void transpose(Layer layer, const Text *__restrict__ texts) {
    __shared__ float tile[32][33];
    const Text &text = texts[blockIdx.y];
    int members = layer.heads / text.groups, pairs = text.rows * members, columns = text.held + text.rows;
    int column_tiles = (columns + 31) / 32, pair_tiles = (pairs + 31) / 32;
    int group = blockIdx.x / (column_tiles * pair_tiles), of_group = blockIdx.x % (column_tiles * pair_tiles);
    int first_column = of_group / pair_tiles * 32, first_pair = of_group % pair_tiles * 32;
    if (group >= text.groups) return;
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
        int pair = first_pair + i / 32, c = first_column + i % 32;
        if (pair >= pairs || c >= columns) continue;
        size_t at = (size_t)(group * members + pair % members) * text.rows + pair / members;
        tile[i % 32][i / 32] = text.logits[at * text.stride + c] * text.scale[at];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
        int pair = first_pair + i % 32, c = first_column + i / 32;
        if (pair >= pairs || c >= columns) continue;
        text.by_column[((size_t)group * text.stride + c) * pairs + pair] = tile[i / 32][i % 32];
    }
}
