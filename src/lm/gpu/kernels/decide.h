// One step of a bounded cache: attention, scores, and evictions. A thread block takes one decision group of one
// text through the rows of a block.
#pragma once
#include "params.h"
#include "block.h"
#include "formula.h"

// Where the entries that are left have less than this share of the largest weight, their softmax is computed again: the
// exponentials of a row are those of all columns. A smaller share would make zeros of entries that the host tells apart.
#ifndef SMALLEST_SUM
#define SMALLEST_SUM 0x1p-20f
#endif

// Columns that a thread loads before it stores: a load would wait for the store before it.
#define AT_ONCE 8

// The scan of this thread block, before its first row.
__device__ inline Scan begin_scan(const Layer &layer, const Text &text, unsigned char *shared) {
    Scratch &scratch = *(Scratch *)shared;
    int group = blockIdx.x, members = layer.heads / text.groups;
    unsigned char *gone_from = text.alive ? text.alive + (size_t)group * text.stride : shared + sizeof(Scratch);
    // Columns of later rows are not looked at.
    for (int c = threadIdx.x; c < text.stride; c += blockDim.x) gone_from[c] = NEVER;
    for (int row = threadIdx.x; text.moves && row < text.rows; row += blockDim.x) {
        size_t column = (size_t)group * text.capacity + text.held + row;
        text.positions[column] = text.seen + row;
        text.victims[row * text.groups + group] = -1;
        if (text.priority) text.priority[column] = text.new_priority[row * text.groups + group];
    }
    begin_formula(layer, text, group);
    __syncthreads();
    const unsigned *positions = text.positions + (text.moves ? (size_t)group * text.capacity : 0);
    return Scan{layer, text, scratch, gone_from, positions, group, group * members, members, text.held, 0};
}

// The row's token joins; the entry that the layer's window has passed leaves.
__device__ inline void join(Scan &scan) {
    const Text &text = scan.text;
    scan.entries++;
    int passed = text.window ? scan.token() - text.window : -1;
    if (passed < 0) return;
    int found = -1;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x)
        if (scan.is_there(c) && (int)scan.positions[c] == passed) found = c;
    found = (int)block_max((float)found, scan.scratch);
    if (found >= 0) {
        scan.entries--;
        if (threadIdx.x == 0) {
            scan.gone_from[found] = scan.row;
            text.victims[scan.row * text.groups + scan.group] = -2 - passed;
        }
    }
    __syncthreads();
}

// A logit of an entry with an absolute position.
__device__ inline float logit(const Layer &layer, const Text &text, int head, int row, int column) {
    int dim = layer.dim, per_kv = layer.heads / layer.kv_heads;
    const float *query = text.queries + ((size_t)head * text.rows + row) * dim;
    const float *key = text.keys + ((size_t)(head / per_kv) * text.capacity + column) * dim;
    float sum = 0;
    for (int d = 0; d < dim; d++) sum += query[d] * key[d];
    return capped(layer, sum);
}

// What a query head of a row attends to, not divided by its sum, 0 for entries that are not in the cache: rows from `gone_from` of a column on
// do not see it. For a warp.
__device__ inline void weigh(const Layer &layer, const Text &text, int head, int row, const unsigned char *gone_from) {
    int columns = text.held + row + 1;
    size_t at = (size_t)head * text.rows + row;
    float *x = text.logits + at * text.stride, sum = 0;
    for (int start = lane(); start < columns; start += 32 * AT_ONCE) {
        // Kernel `softmax` has left exponentials.
        float own[AT_ONCE];
        bool is_free[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int c = start + 32 * i;
            own[i] = c < columns ? x[c] : 0;
            is_free[i] = c < columns && row >= gone_from[c];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (is_free[i]) x[start + 32 * i] = own[i] = 0;
            sum += own[i];
        }
    }
    sum = warp_sum(sum);
    if (!(sum >= SMALLEST_SUM)) {
        float most = -INFINITY;
        for (int c = lane(); c < columns; c += 32) {
            if (row >= gone_from[c]) continue;
            x[c] = logit(layer, text, head, row, c);
            most = fmaxf(most, x[c]);
        }
        most = warp_max(most);
        sum = 0;
        for (int c = lane(); c < text.stride; c += 32) {
            x[c] = c < columns && row < gone_from[c] ? expf(x[c] - most) : 0;
            sum += x[c];
        }
        sum = warp_sum(sum);
        if (lane() == 0) text.max[at] = most;
    }
    if (lane() == 0) text.scale[at] = 1.0f / sum;
}

// What the row's token attends to. A warp takes one query head.
__device__ inline void attention_of_row(const Scan &scan) {
    for (int member = warp(); member < scan.members; member += warps()) {
        const float *next = scan.attention(scan.first_head + member) + scan.text.stride;
        bool has_next = scan.row + 1 < scan.text.rows;
        for (int c = 32 * lane(); has_next && c <= scan.columns(); c += 32 * 32) fetch_ahead(next + c);
        weigh(scan.layer, scan.text, scan.first_head + member, scan.row, scan.gone_from);
    }
    __syncthreads();
}

// The oldest of the entries with the lowest priority, or of those that differ from it by no more than a share of themselves.
__device__ inline int lowest_priority(const Scan &scan) {
    const double *priority = scan.text.priority + (size_t)scan.group * scan.text.capacity;
    double least = INFINITY;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x)
        if (scan.is_candidate(c)) least = fmin(least, priority[c]);
    least = block_min(least, scan.scratch);
    unsigned long long oldest = NO_COLUMN;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
        double x = isnan(priority[c]) ? INFINITY : priority[c];
        bool is_lowest = x <= least || x - scan.text.same_priority * fabs(x) <= least;
        if (!is_lowest || !scan.is_candidate(c)) continue;
        unsigned long long own = by_position(scan.positions[c], c);
        if (own < oldest) oldest = own;
    }
    return block_lowest(0, oldest, scan.scratch);
}

// The oldest of the entries with the lowest score, where `score_of` tells that of a column.
template <typename ScoreOf> __device__ inline int lowest_score(const Scan &scan, ScoreOf score_of) {
    float score = INFINITY;
    unsigned long long oldest = NO_COLUMN;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
        if (!scan.is_candidate(c)) continue;
        float own = comparable(score_of(c));
        unsigned long long own_column = by_position(scan.positions[c], c);
        if (own < score || (own == score && own_column < oldest)) score = own, oldest = own_column;
    }
    return block_lowest(score, oldest, scan.scratch);
}

// Evicts entries if there are too many.
__device__ inline void decide(Scan &scan) {
    const Text &text = scan.text;
    bool is_last = scan.row + 1 == text.rows && text.newest, is_full = scan.entries - text.burst >= text.limit;
    if (text.instructions > 0) {
        run_formula(scan, is_last || is_full);
        const float *scores = score_list(text, scan.group);
        for (int c = threadIdx.x; is_last && c < scan.columns(); c += blockDim.x)
            text.newest[(size_t)scan.group * text.stride + c] = comparable(scores[c]);
    }
    if (!is_full) return;
    const float *scores = text.priority ? nullptr : score_list(text, scan.group);
    auto score_of = [=](int c) { return scores[c]; };
    for (int n = 0; n < text.burst; n++) {
        int victim = text.priority ? lowest_priority(scan) : lowest_score(scan, score_of);
        if (victim < 0) break;
        scan.entries--;
        if (threadIdx.x == 0) {
            scan.gone_from[victim] = scan.row + 1;
            text.victims[(scan.row - n) * text.groups + scan.group] = scan.positions[victim];
        }
        __syncthreads();
    }
}

// Tells `exclude` what has left. Lists the columns among the first ones that are free, and the entries behind those, which move there.
__device__ inline void end_scan(const Scan &scan) {
    const Text &text = scan.text;
    for (int c = threadIdx.x; text.gone_from && c < text.stride; c += blockDim.x)
        text.gone_from[(size_t)scan.group * text.stride + c] = scan.gone_from[c];
    if (warp() != 0) return;
    int columns = text.held + text.rows, count = 0, filled = 0, moved = 0;
    for (int start = 0; start < columns; start += 32) {
        int c = start + lane();
        count += __popc(__ballot_sync(ALL_LANES, c < columns && scan.is_there(c)));
    }
    unsigned *to = text.moves + (size_t)scan.group * 2 * text.moves_stride, *from = to + text.moves_stride;
    for (int start = 0; start < columns; start += 32) {
        int c = start + lane();
        bool is_alive = c < columns && scan.is_there(c);
        unsigned free = __ballot_sync(ALL_LANES, c < count && !is_alive);
        unsigned behind = __ballot_sync(ALL_LANES, c >= count && is_alive), before = (1u << lane()) - 1;
        if (free >> lane() & 1) to[filled + __popc(free & before)] = c;
        if (behind >> lane() & 1) from[moved + __popc(behind & before)] = c;
        filled += __popc(free);
        moved += __popc(behind);
    }
    if (lane() == 0) text.moved[2 * scan.group] = count, text.moved[2 * scan.group + 1] = moved;
}
