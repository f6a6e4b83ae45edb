// One step of a bounded cache: softmax, scores, and the eviction of one entry. A thread block takes one decision group of one
// text through the rows of a block.
#pragma once
#include "params.h"
#include "block.h"
#include "formula.h"

// A decision group while a block is read.
struct Scan {
    const Layer &layer;
    const Text &text;
    Scratch &scratch;
    unsigned char *alive;   // by column
    int group;
    int first_head, members;
    int entries;            // in the cache now
    int victim;             // column that the policy evicted in the last step, or -1

    __device__ int columns(int row) const { return text.held + row + 1; }
};

// The scan of this thread block, before its first row.
__device__ inline Scan begin_scan(const Layer &layer, const Text &text, unsigned char *shared) {
    Scratch &scratch = *(Scratch *)shared;
    int group = blockIdx.x, members = layer.heads / text.groups;
    unsigned char *alive =
        text.alive_is_shared ? shared + sizeof(Scratch) : text.alive + (size_t)group * text.stride;
    for (int c = threadIdx.x; c < text.stride; c += blockDim.x) alive[c] = c < text.held;
    for (int row = threadIdx.x; row < text.rows; row += blockDim.x) {
        size_t column = (size_t)group * text.stride + text.held + row;
        text.positions[column] = text.seen + row;
        if (text.priority) text.priority[column] = text.new_priority[row * text.groups + group];
    }
    begin_formula(layer, text, group);
    __syncthreads();
    return Scan{layer, text, scratch, alive, group, group * members, members, text.held, -1};
}

// The new token joins; the entry that the layer's window has passed leaves. Returns whether there was one.
__device__ inline bool join(Scan &scan, int row) {
    const Text &text = scan.text;
    int column = text.held + row, passed = text.window ? text.seen + row - text.window : -1;
    const unsigned *positions = text.positions + (size_t)scan.group * text.stride;
    int found = -1;
    for (int c = threadIdx.x; passed >= 0 && c < column; c += blockDim.x)
        if (scan.alive[c] && (int)positions[c] == passed) found = c;
    found = (int)block_max((float)found, scan.scratch);
    __syncthreads();
    if (threadIdx.x == 0) {
        scan.alive[column] = 1;
        if (found >= 0) scan.alive[found] = 0;
        text.victims[row * text.groups + scan.group] = found >= 0 ? -2 - passed : -1;
    }
    scan.entries++;
    __syncthreads();
    return found >= 0;
}

// Logits become attention, not divided by its sum, 0 for entries that are not in the cache. A warp takes one query head.
__device__ inline void softmax_of_row(const Scan &scan, int row) {
    const Text &text = scan.text;
    int columns = scan.columns(row);
    for (int member = warp(); member < scan.members; member += warps()) {
        size_t at = (size_t)(scan.first_head + member) * text.rows + row;
        float *x = text.logits + at * text.stride, *copy = logit_list(text, scan.group, member);
        float most = -INFINITY;
        for (int c = lane(); c < columns; c += 32) {
            float logit = x[c];
            if (scan.layer.softcap > 0) x[c] = logit = scan.layer.softcap * tanhf(logit / scan.layer.softcap);
            if (copy) copy[c] = logit;
            if (scan.alive[c]) most = fmaxf(most, logit);
        }
        most = warp_max(most);
        float sum = 0;
        for (int c = lane(); c < text.stride; c += 32) {
            float weight = c < columns && scan.alive[c] ? expf(x[c] - most) : 0;
            x[c] = weight;
            sum += weight;
        }
        sum = warp_sum(sum);
        if (lane() == 0) text.max[at] = most, text.sum[at] = sum;
    }
    __syncthreads();
}

// The entry of the lowest priority among those that differ by no more than a share of themselves, the oldest.
__device__ inline int lowest_priority(const Scan &scan, int first, int end) {
    const double *priority = scan.text.priority + (size_t)scan.group * scan.text.stride;
    if (threadIdx.x == 0) {
        int lowest = -1;
        for (int c = first; c < end; c++)
            if (scan.alive[c] &&
                (lowest < 0 || priority[c] < priority[lowest] - scan.text.same_priority * fabs(priority[lowest])))
                lowest = c;
        scan.scratch.column[0] = lowest;
    }
    __syncthreads();
    int lowest = scan.scratch.column[0];
    __syncthreads();
    return lowest;
}

// Evicts an entry if there are too many.
__device__ inline void decide(Scan &scan, int row, bool passed) {
    const Text &text = scan.text;
    int columns = scan.columns(row);
    const unsigned *positions = text.positions + (size_t)scan.group * text.stride;
    bool is_last = row + 1 == text.rows && text.newest, is_full = scan.entries > text.limit;
    // Protected first tokens never were evicted, and with `keep_recent` > 0 none of the newest was.
    int first = 0, end = max(columns - text.keep_recent, 0);
    while (first < columns && first < text.keep_first && (int)positions[first] < text.keep_first) first++;
    end = max(end, first);
    scan.victim = -1;
    if (text.instructions > 0) {
        Step step{scan.layer,      text, scan.scratch, scan.alive, scan.group, scan.first_head,
                  scan.members, row,  columns,      first,      end};
        run_formula(step, is_last || is_full);
        const float *scores = score_list(text, scan.group);
        if (is_last)
            for (int c = threadIdx.x; c < columns; c += blockDim.x)
                text.newest[(size_t)scan.group * text.stride + c] = comparable(scores[c]);
    }
    if (is_full && !passed) {
        int lowest = -1;
        if (text.priority) {
            lowest = lowest_priority(scan, first, end);
        } else {
            const float *scores = score_list(text, scan.group);
            float score = INFINITY;
            int column = 0x7fffffff;
            for (int c = first + threadIdx.x; c < end; c += blockDim.x) {
                if (!scan.alive[c]) continue;
                float own = comparable(scores[c]);
                if (column == 0x7fffffff || own < score) score = own, column = c;
            }
            column = block_lowest(score, column, scan.scratch);
            lowest = column == 0x7fffffff ? -1 : column;
            __syncthreads();
        }
        if (lowest >= 0) {
            scan.victim = lowest;
            scan.entries--;
            if (threadIdx.x == 0) {
                scan.alive[lowest] = 0;
                text.victims[row * text.groups + scan.group] = positions[lowest];
            }
        }
    } else if (passed) {
        scan.entries--;
    }
    __syncthreads();
}

// Writes the columns that stay, in order.
__device__ inline void end_scan(const Scan &scan) {
    const Text &text = scan.text;
    if (warp() != 0) return;
    unsigned *survivors = text.survivors + (size_t)scan.group * text.stride;
    int columns = text.held + text.rows, count = 0, in_place = 0;
    for (int start = 0; start < columns; start += 32) {
        int c = start + lane();
        unsigned living = __ballot_sync(ALL_LANES, c < columns && scan.alive[c]);
        int place = count + __popc(living & ((1u << lane()) - 1));
        if (living >> lane() & 1) survivors[place] = c;
        unsigned same = __ballot_sync(ALL_LANES, (living >> lane() & 1) && place == c);
        count += __popc(living);
        in_place += __popc(same);
    }
    if (lane() == 0) text.moved[2 * scan.group] = count, text.moved[2 * scan.group + 1] = in_place;
}
