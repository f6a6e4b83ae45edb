// The lowest scores of every row where the score is the newest row's attention, as if nothing left in the block: lowest first, and of
// equal ones the oldest first.
//
// Grid: groups * rows of the longest block, texts. Shared memory: Scratch, CANDIDATES columns, and a score for each column.
#include "decide.h"

// The bits of a score that is not negative are in its order. This is behind all of them.
#define NO_SCORE 0xffffffffu

extern "C" __global__ void rank(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    int *listed = (int *)((unsigned char *)shared + sizeof(Scratch));
    unsigned *scores = (unsigned *)(listed + CANDIDATES);
    const Text &text = texts[blockIdx.y];
    int group = blockIdx.x / text.rows, row = blockIdx.x % text.rows, columns = text.held + row + 1;
    if (group >= text.groups || columns <= text.limit) return;
    int members = layer.heads / text.groups;
    const unsigned *of_entries = text.positions + (size_t)group * text.capacity;
    // `walk` gives the block's tokens their positions.
    auto position = [&](int c) { return c < text.held ? of_entries[c] : (unsigned)(text.seen + c - text.held); };
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        int own = (int)position(c);
        bool is_candidate = own >= text.keep_first && text.seen + row - own >= text.keep_recent;
        float score = attention_sum(text, group * members, members, row, c, 1.0f);
        scores[c] = is_candidate ? __float_as_uint(comparable(score)) : NO_SCORE;
    }
    __syncthreads();
    // The list has the scores below this one.
    unsigned limit = 0;
    int count = 0;
    for (unsigned bit = 1u << 30; bit > 0 && count < CANDIDATES / 2; bit >>= 1) {
        int below = 0;
        for (int c = threadIdx.x; c < columns; c += blockDim.x) below += scores[c] < (limit | bit);
        below = (int)block_sum(below, scratch);
        if (below < CANDIDATES) limit |= bit, count = below;
    }
    for (int start = 0, before = 0; warp() == 0 && start < columns; start += 32) {
        int c = start + lane();
        bool is_listed = c < columns && scores[c] < limit;
        unsigned all = __ballot_sync(ALL_LANES, is_listed);
        if (is_listed) listed[before + __popc(all & ((1u << lane()) - 1))] = c;
        before += __popc(all);
    }
    __syncthreads();
    Candidate *list = text.candidates + ((size_t)group * text.rows + row) * CANDIDATES;
    for (int i = threadIdx.x; i < CANDIDATES; i += blockDim.x) {
        if (i >= count) {
            // Behind all scores where all are listed.
            list[i] = Candidate{highest_if_nan(__uint_as_float(limit)), -1};
            continue;
        }
        int c = listed[i], lower = 0;
        for (int other = 0; other < count; other++) {
            int o = listed[other];
            lower += scores[o] < scores[c] || (scores[o] == scores[c] && position(o) < position(c));
        }
        list[lower] = Candidate{__uint_as_float(scores[c]), c};
    }
}
