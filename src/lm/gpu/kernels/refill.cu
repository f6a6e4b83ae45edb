// Entries of the block that stay move to the columns of evicted ones. Where only the order decides, the first entries move behind what has
// left.
//
// Grid: (key-value heads * REFILL_PARTS) + groups, texts. A thread block moves a part of a head's vectors, or a group's numbers.
#include "params.h"

// The columns of a group that are filled, and those of what moves there. None is both.
struct Moves {
    const unsigned *to, *from;
    int count;

    __device__ Moves(const Text &text, int group)
        : to(text.moves + (size_t)group * 2 * text.moves_stride), from(to + text.moves_stride),
          count(text.moved[2 * group + 1]) {}

    template <typename T> __device__ void numbers(T *list) const {
        for (int i = threadIdx.x; i < count; i += blockDim.x) list[to[i]] = list[from[i]];
    }
};

extern "C" __global__ void refill(Layer layer, const Text *__restrict__ texts) {
    const Text &text = texts[blockIdx.y];
    int head = blockIdx.x / REFILL_PARTS, group = blockIdx.x - layer.kv_heads * REFILL_PARTS;
    if (text.passed > 0) {
        size_t first = (size_t)head * text.capacity * layer.dim, behind = (size_t)text.passed * layer.dim;
        int part = blockIdx.x % REFILL_PARTS * blockDim.x + threadIdx.x;
        for (int d = part; group < 0 && d < layer.dim; d += REFILL_PARTS * blockDim.x)
            // Backwards: some of their new columns may be old ones too.
            for (int i = text.keep_first - 1; i >= 0; i--) {
                size_t from = first + (size_t)i * layer.dim + d;
                text.values[from + behind] = text.values[from];
                text.keys[from + behind] = text.keys[from];
            }
        return;
    }
    if (group < 0) {
        Moves moves(text, text.groups == 1 ? 0 : head);
        size_t first = (size_t)head * text.capacity * layer.dim;
        int part = blockIdx.x % REFILL_PARTS * blockDim.x + threadIdx.x;
        for (int at = part; at < moves.count * layer.dim; at += REFILL_PARTS * blockDim.x) {
            int i = at / layer.dim, d = at % layer.dim;
            size_t to = first + (size_t)moves.to[i] * layer.dim + d, from = first + (size_t)moves.from[i] * layer.dim + d;
            text.values[to] = text.values[from];
            text.keys[to] = text.keys[from];
        }
        return;
    }
    if (group >= text.groups) return;
    Moves moves(text, group);
    size_t capacity = text.capacity;
    if (text.positions) moves.numbers(text.positions + group * capacity);
    if (text.priority) moves.numbers(text.priority + group * capacity);
    for (int list = 0; list < text.kept_lists; list++)
        moves.numbers(text.kept + (group * text.kept_lists + list) * capacity);
    for (int list = 0; list < text.total_lists; list++)
        moves.numbers(text.totals + (group * text.total_lists + list) * capacity);
}
