// What is known of rows of logits over the vocabulary: how likely the target is, the most likely token, and how far they are from
// those of the full cache.
//
// Grid: rows. The kernel's texts are one `Scoring`.
#include "params.h"
#include "block.h"

// The largest logit, the first of equal ones, and the sum of all e^(logit - max).
__device__ inline void softmax_over_vocabulary(const float *logits, int vocab, Scratch &scratch, float &max, double &sum, int &largest) {
    float lowest = INFINITY;
    unsigned long long column = NO_COLUMN;
    for (int c = threadIdx.x; c < vocab; c += blockDim.x)
        if (-logits[c] < lowest || (-logits[c] == lowest && column == NO_COLUMN)) lowest = -logits[c], column = c;
    largest = block_lowest(lowest, column, scratch);
    max = largest < 0 ? -INFINITY : logits[largest];
    double own = 0;
    for (int c = threadIdx.x; c < vocab; c += blockDim.x) own += expf(logits[c] - max);
    sum = block_sum(own, scratch);
}

extern "C" __global__ void score(Layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    Scratch &scratch = *(Scratch *)shared;
    const Scoring &scoring = *(const Scoring *)texts;
    int vocab = scoring.vocab;
    const float *logits = scoring.logits + (size_t)blockIdx.x * vocab;
    ScoredRow row = scoring.rows[blockIdx.x];
    softmax_over_vocabulary(logits, vocab, scratch, row.max, row.sum, row.largest);
    if (scoring.full) {
        const float *full = scoring.full + (size_t)blockIdx.x * vocab;
        softmax_over_vocabulary(full, vocab, scratch, row.full_max, row.full_sum, row.full_largest);
        double difference = 0;
        for (int c = threadIdx.x; c < vocab; c += blockDim.x) difference += expf(full[c] - row.full_max) * (full[c] - logits[c]);
        row.difference = block_sum(difference, scratch);
    }
    row.of_target = logits[row.target];
    if (threadIdx.x == 0) scoring.rows[blockIdx.x] = row;
}
