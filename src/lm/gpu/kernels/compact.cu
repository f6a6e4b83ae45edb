// Closes the gaps that evicted entries leave.
//
// Grid: key-value heads + groups, texts. A block moves the vectors of one head, or the numbers of one group.
#include "params.h"
#include "block.h"

// Moves what is at the columns `survivors` to the first places, `width` elements each, from place `start` on. What is moved goes
// to the left, so once all threads have read, writing destroys nothing that is still needed.
template <typename T>
__device__ inline void close_up(T *list, const unsigned *survivors, int start, int count, int width) {
    const int EACH = 4;
    T held[EACH];
    unsigned end = count * width, step = EACH * blockDim.x;
    for (unsigned tile = start * width; tile < end; tile += step) {
        for (int i = 0; i < EACH; i++) {
            unsigned to = tile + i * blockDim.x + threadIdx.x;
            if (to < end) held[i] = list[survivors[to / width] * width + to % width];
        }
        __syncthreads();
        for (int i = 0; i < EACH; i++) {
            unsigned to = tile + i * blockDim.x + threadIdx.x;
            if (to < end) list[to] = held[i];
        }
        __syncthreads();
    }
}

extern "C" __global__ void compact(Layer layer, const Text *texts) {
    const Text &text = texts[blockIdx.y];
    int of_group = blockIdx.x - layer.kv_heads;
    int group = of_group >= 0 ? of_group : (text.groups == 1 ? 0 : blockIdx.x);
    if (of_group >= text.groups) return;
    const unsigned *survivors = text.survivors + (size_t)group * text.stride;
    int count = text.moved[2 * group], start = text.moved[2 * group + 1];
    if (of_group < 0) {
        size_t head = blockIdx.x, size = (size_t)text.capacity * layer.dim;
        close_up(text.values + head * size, survivors, start, count, layer.dim);
        if (text.positions_kind == ABSOLUTE) {
            close_up(text.keys + head * size, survivors, start, count, layer.dim);
        } else {
            for (int row = 0; row < layer.dim; row++) {
                size_t at = head * size + (size_t)row * text.capacity;
                close_up(text.keys + at, survivors, start, count, 1);
                close_up(text.raw_keys + at, survivors, start, count, 1);
            }
        }
        return;
    }
    if (text.positions) close_up(text.positions + (size_t)group * text.stride, survivors, start, count, 1);
    if (text.priority) close_up(text.priority + (size_t)group * text.stride, survivors, start, count, 1);
    for (int list = 0; list < text.kept_lists; list++) {
        size_t at = ((size_t)group * text.kept_lists + list) * text.kept_stride;
        close_up(text.kept + at, survivors, start, count, 1);
    }
    for (int list = 0; list < text.total_lists; list++) {
        size_t at = ((size_t)group * text.total_lists + list) * text.kept_stride;
        close_up(text.totals + at, survivors, start, count, 1);
    }
    if (text.positions_kind != ABSOLUTE) {
        close_up(text.coordinates + (size_t)group * text.capacity, survivors, start, count, 1);
        if (threadIdx.x == 0) {
            // Columns before this one have been rotated; of them some are left.
            int before = text.rotations[2 * group + 1], left = 0;
            while (left < count && (int)survivors[left] < before) left++;
            text.rotations[2 * group + 1] = left;
        }
    }
}
