// Decisions of a policy that evicts one entry a row by the newest row's attention. Whether an entry has the lowest score is mostly known from
// the candidates of `rank`, whose scores have only grown since: what has left in the block is missing from the sums.
//
// Grid: groups, texts. Shared memory: Scratch, a byte for each column, and of each of the group's query heads a number for each row and
// one more.
#include "decide.h"

// Where less than this share of a row's attention has not left in the block, the row is computed from what is in the cache: the
// difference would be less exact than a sum.
#ifndef SMALLEST_SHARE
#define SMALLEST_SHARE 0.125f
#endif
// More than what roundings make of a score, for up to 240 query heads, as a share of it. It does not hold of smaller scores.
#define ROUNDING 0x1p-15f
#define SMALLEST_SCORE 1e-35f

#define UNKNOWN (-2)

// The column with the lowest score, as far as the candidates prove it. `gone` has what has left of the attention of the row's query heads. For
// a warp.
__device__ inline int lowest_candidate(const Scan &scan, const float *gone, float *growth, bool has_left) {
    const Text &text = scan.text;
    float largest = 0;
    bool is_exact = true;
    for (int member = lane(); member < scan.members; member += 32) {
        float share = 1 - gone[member];
        is_exact = is_exact && share >= SMALLEST_SHARE;
        largest = fmaxf(largest, share);
        growth[member] = 1 / share;
    }
    if (__ballot_sync(ALL_LANES, !is_exact)) return UNKNOWN;
    // Every score has grown by this at least.
    float least = (1 - ROUNDING) / warp_max(largest);
    const Candidate *list = text.candidates + ((size_t)scan.group * text.rows + scan.row) * CANDIDATES;
    const float *by_column = text.by_column + (size_t)scan.group * text.stride * text.rows * scan.members;
    if (scan.row + 1 < text.rows && lane() < 4) fetch_ahead((const float *)(list + CANDIDATES) + 32 * lane());
    float best = INFINITY;
    unsigned long long best_column = NO_COLUMN;
    for (int start = 0; start < CANDIDATES; start += 32) {
        Candidate own = list[start + lane() < CANDIDATES ? start + lane() : CANDIDATES - 1];
        unsigned next = __ballot_sync(ALL_LANES, own.column < 0 || scan.is_there(own.column));
        for (; next != 0; next &= next - 1) {
            int from = __ffs(next) - 1, column = __shfl_sync(ALL_LANES, own.column, from);
            float bound = __shfl_sync(ALL_LANES, own.score, from);
            if (bound >= SMALLEST_SCORE && bound * least > best) return (int)(unsigned)best_column;
            if (column < 0) return UNKNOWN;
            // Then scores are what `rank` computed.
            if (!has_left) return column;
            const float *attention = by_column + ((size_t)column * text.rows + scan.row) * scan.members;
            float score = 0;
            for (int member = lane(); member < scan.members; member += 32) score += attention[member] * growth[member];
            score = comparable(warp_sum(score));
            unsigned long long own_column = by_position(scan.positions[column], column);
            if (score < best || (score == best && own_column < best_column)) best = score, best_column = own_column;
        }
    }
    return UNKNOWN;
}

extern "C" __global__ void __launch_bounds__(1024) walk(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    const Text &text = texts[blockIdx.y];
    if ((int)blockIdx.x >= text.groups) return;
    Scan scan = begin_scan(layer, text, (unsigned char *)shared);
    // (rows, members), and what the scores of a row are multiplied by, of each member.
    float *gone = (float *)(scan.gone_from + (text.stride + 7) / 8 * 8), *growth = gone + text.rows * scan.members;
    int pairs = text.rows * scan.members;
    for (int at = threadIdx.x; at < pairs; at += blockDim.x) gone[at] = 0;
    __syncthreads();
    bool has_left = false;
    for (; scan.row < text.rows; scan.row++) {
        scan.entries++;
        if (scan.entries <= text.limit) continue;
        int first = scan.row * scan.members;
        if (warp() == 0) {
            int found = lowest_candidate(scan, gone + first, growth, has_left);
            if (lane() == 0) scan.scratch.column[0] = found;
        }
        __syncthreads();
        int victim = (int)scan.scratch.column[0];
        if (victim == UNKNOWN) {
            attention_of_row(scan);
            victim = lowest_score(scan, [&](int c) {
                return attention_sum(text, scan.first_head, scan.members, scan.row, c, 1.0f);
            });
        }
        if (victim >= 0) {
            scan.entries--;
            has_left = true;
            if (threadIdx.x == 0) {
                scan.gone_from[victim] = scan.row + 1;
                text.victims[scan.row * text.groups + scan.group] = scan.positions[victim];
            }
            const float *attention = text.by_column + ((size_t)scan.group * text.stride + victim) * pairs;
            for (int at = first + scan.members + threadIdx.x; at < pairs; at += blockDim.x) gone[at] += attention[at];
        }
        __syncthreads();
    }
    end_scan(scan);
}
