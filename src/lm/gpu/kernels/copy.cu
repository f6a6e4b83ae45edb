// Copies rows of a table to another, whose rows lie further apart or nearer. (The driver's own copy of rows may refuse such distances.)
//
// Grid: rows of the longest table, tables. The kernel's texts are a `Copy` for each.
#include "params.h"

extern "C" __global__ void copy(Layer, const Text *__restrict__ texts) {
    const Copy &rows = ((const Copy *)texts)[blockIdx.y];
    if (blockIdx.x >= rows.rows) return;
    const unsigned *from = rows.from + blockIdx.x * rows.from_pitch;
    unsigned *to = rows.to + blockIdx.x * rows.to_pitch;
    for (size_t i = threadIdx.x; i < rows.width; i += blockDim.x) to[i] = from[i];
}
