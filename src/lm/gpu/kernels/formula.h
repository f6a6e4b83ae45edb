// A formula of a policy, as instructions that each make lists of numbers for the columns of a row.
#pragma once
#include "params.h"
#include "block.h"

// A row behind those of any block.
#define NEVER 200

// A decision group while a block is read.
struct Scan {
    const Layer &layer;
    const Text &text;
    Scratch &scratch;
    unsigned char *gone_from;   // by column: the first row that does not see it
    const unsigned *positions;
    int group;
    int first_head, members;
    int entries;            // in the cache now
    int row;

    __device__ int columns() const { return text.held + row + 1; }
    __device__ int token() const { return text.seen + row; }
    __device__ int per_kv() const { return layer.heads / layer.kv_heads; }
    __device__ int age(int column) const { return token() - (int)positions[column]; }
    __device__ bool is_there(int column) const { return gone_from[column] == NEVER; }
    // Whether an entry is in the cache and not protected. The newest ones are those of the newest tokens: none of them was evicted.
    __device__ bool is_candidate(int column) const {
        return is_there(column) && (int)positions[column] >= text.keep_first && age(column) >= text.keep_recent;
    }
    // Attention of a query head, not divided by its sum.
    __device__ const float *attention(int head) const {
        return text.logits + ((size_t)head * text.rows + row) * text.stride;
    }
    __device__ float scale(int head) const { return text.scale[(size_t)head * text.rows + row]; }
};

__device__ inline float *result_list(const Text &text, int group, int list) {
    return text.results + ((size_t)group * text.result_lists + list) * text.stride;
}
__device__ inline float *kept_list(const Text &text, int group, int list) {
    return text.kept + ((size_t)group * text.kept_lists + list) * text.capacity;
}
__device__ inline double *total_list(const Text &text, int group, int list) {
    return text.totals + ((size_t)group * text.total_lists + list) * text.capacity;
}

// An argument of an instruction, for one of the query heads.
struct Argument {
    const float *list;
    float constant;
    __device__ float operator[](int column) const { return list ? list[column] : constant; }
};

__device__ inline Argument argument(const Text &text, int group, const Instruction &i, int which, int member) {
    int list = i.from[which] == FROM_CONSTANT ? 0 : i.list[which] + member / i.sharing[which];
    if (i.from[which] == FROM_RESULTS) return Argument{result_list(text, group, list), 0};
    if (i.from[which] == FROM_KEPT) return Argument{kept_list(text, group, list), 0};
    return Argument{nullptr, i.constant[which]};
}

// The scores: what the last instruction made. They are its lists or those that it keeps.
__device__ inline const float *score_list(const Text &text, int group) {
    const Instruction &last = text.program[text.instructions - 1];
    return last.result >= 0 ? result_list(text, group, last.result) : kept_list(text, group, last.kept);
}

// What is not a number counts as the highest.
__device__ inline float highest_if_nan(float x) { return isnan(x) ? INFINITY : x; }

// A score to compare.
__device__ inline float comparable(float score) { return fmaxf(highest_if_nan(score), -3.402823466e38f); }

// The mixer of SplitMix64 (Steele, Lea, Flood 2014).
__device__ inline unsigned long long mix(unsigned long long z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ inline float gumbel(unsigned long long of_step, unsigned position) {
    unsigned long long bits = mix(of_step ^ position);
    double uniform = ((double)(bits >> 11) + 0.5) / 9007199254740992.0;
    return (float)-log(-log(uniform));
}

// What new entries start with: what never changes of them, and nothing remembered.
__device__ inline void begin_formula(const Layer &layer, const Text &text, int group) {
    int kv_members = layer.kv_heads / text.groups, dim = layer.dim;
    for (int index = 0; index < text.instructions; index++) {
        const Instruction &i = text.program[index];
        int word = i.operation;
        bool is_norm = word == WORD_KEY_NORM || word == WORD_VALUE_NORM || word == WORD_VALUE_NORM2;
        if (is_norm) {
            for (int at = warp(); at < kv_members * text.rows; at += warps()) {
                int member = at / text.rows, row = at % text.rows;
                size_t vector = (size_t)row * layer.kv_heads + group * kv_members + member;
                const float *x = (word == WORD_KEY_NORM ? text.new_keys : text.new_values) + vector * dim;
                float sum = 0;
                for (int d = lane(); d < dim; d += 32) sum += word == WORD_VALUE_NORM ? fabsf(x[d]) : x[d] * x[d];
                sum = warp_sum(sum);
                if (lane() == 0)
                    kept_list(text, group, i.kept + member)[text.held + row] = word == WORD_VALUE_NORM ? sum : sqrtf(sum);
            }
        } else if (word == WORD_RANDOM) {
            for (int row = threadIdx.x; row < text.rows; row += blockDim.x) {
                unsigned long long bits = mix(mix(mix(text.salt) ^ group) ^ (unsigned)(text.seen + row));
                kept_list(text, group, i.kept)[text.held + row] = (float)((double)(bits >> 11) / 9007199254740992.0);
            }
        } else if (i.kept >= 0) {
            bool is_peak = word == KEEP_PEAK, is_ring = word == KEEP_WINDOW || (is_peak && i.number > 0);
            int lists = i.members * (word == KEEP_STD ? 2 : is_ring ? (int)i.number : 1);
            for (int at = threadIdx.x; at < lists * text.rows; at += blockDim.x)
                kept_list(text, group, i.kept + at / text.rows)[text.held + at % text.rows] = is_peak ? NAN : 0;
            for (int at = threadIdx.x; i.totals >= 0 && at < i.members * text.rows; at += blockDim.x)
                total_list(text, group, i.totals + at / text.rows)[text.held + at % text.rows] = 0;
        }
    }
}

// The L2 distance of every value from the output of a query head. A warp takes one column.
__device__ inline void output_shift(const Scan &scan, int member, float *out) {
    const Text &text = scan.text;
    int head = scan.first_head + member, dim = scan.layer.dim;
    const float *weights = scan.attention(head);
    const float *values = text.values + (size_t)(head / scan.per_kv()) * text.capacity * dim;
    // Only a tenth of the numbers of a list of columns would do for the output, which is not needed afterwards.
    float *output = text.mixed + ((size_t)head * text.rows + scan.row) * dim;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        float sum = 0;
        for (int c = 0; c < scan.columns(); c++) sum += weights[c] * values[(size_t)c * dim + d];
        output[d] = sum * scan.scale(head);
    }
    __syncthreads();
    for (int c = warp(); c < scan.columns(); c += warps()) {
        float sum = 0;
        for (int d = lane(); d < dim; d += 32) {
            float difference = output[d] - values[(size_t)c * dim + d];
            sum += difference * difference;
        }
        sum = warp_sum(sum);
        if (lane() == 0) out[c] = sqrtf(sum);
    }
    __syncthreads();
}

// The cosine of every key with the mean of the normalised keys in the cache.
__device__ inline void key_similarity(const Scan &scan, int kv_member, float *out) {
    const Text &text = scan.text;
    int kv_head = scan.first_head / scan.per_kv() + kv_member, dim = scan.layer.dim;
    const float *keys = text.keys + (size_t)kv_head * text.capacity * dim;
    for (int c = warp(); c < scan.columns(); c += warps()) {
        float sum = 0;
        for (int d = lane(); d < dim; d += 32) sum += keys[(size_t)c * dim + d] * keys[(size_t)c * dim + d];
        sum = warp_sum(sum);
        if (lane() == 0) out[c] = sqrtf(sum);
    }
    __syncthreads();
    float *mean = text.mixed + ((size_t)scan.first_head * text.rows + scan.row) * dim;
    double square = 0;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        float sum = 0;
        for (int c = 0; c < scan.columns(); c++)
            if (scan.is_there(c)) sum += keys[(size_t)c * dim + d] / out[c];
        mean[d] = sum;
        square += (double)sum * sum;
    }
    float length = sqrtf((float)block_sum(square, scan.scratch));
    for (int c = warp(); c < scan.columns(); c += warps()) {
        float sum = 0;
        for (int d = lane(); d < dim; d += 32) sum += keys[(size_t)c * dim + d] * mean[d];
        sum = warp_sum(sum);
        if (lane() == 0) out[c] = sum / (out[c] * length);
    }
    __syncthreads();
}

// What is computed over the entries in the cache.
__device__ inline void over_entries(const Scan &scan, int operation, const Argument &x, float *out) {
    if (operation == RANK) {
        for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
            float own = highest_if_nan(x[c]);
            int lower = 0;
            for (int other = 0; other < scan.columns(); other++) {
                if (!scan.is_candidate(other)) continue;
                float value = highest_if_nan(x[other]);
                lower += value < own || (value == own && scan.positions[other] < scan.positions[c]);
            }
            out[c] = (float)lower;
        }
        __syncthreads();
        return;
    }
    bool is_softmax = operation == SOFTMAX;
    float most = -INFINITY;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x)
        if (scan.is_there(c)) most = fmaxf(most, x[c]);
    most = is_softmax ? block_max(most, scan.scratch) : 0;
    double sum = 0;
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x)
        if (scan.is_there(c)) sum += is_softmax ? expf(x[c] - most) : x[c];
    sum = block_sum(sum, scan.scratch);
    for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
        double share = is_softmax ? (scan.is_there(c) ? expf(x[c] - most) : 0.0f) : x[c];
        out[c] = (float)(share / sum);
    }
    __syncthreads();
}

// What is computed for each entry alone.
__device__ inline float elementwise(int operation, float a, float b, float c) {
    switch (operation) {
    case ADD: return a + b;
    case MULTIPLY: return a * b;
    case DIVIDE: return a / b;
    case LESS: return a < b;
    case AT_MOST: return a <= b;
    case EQUAL: return a == b;
    case UNEQUAL: return a != b;
    case IF: return a == 0 ? c : b;
    case MIN: return fminf(a, b);
    case MAX: return fmaxf(a, b);
    case ABS: return fabsf(a);
    case LOG: return logf(a);
    case EXP: return expf(a);
    default: return sqrtf(a);
    }
}

// Adds a step to what is remembered of a column, and returns what the function makes of it.
__device__ inline float remember(const Scan &scan, const Instruction &i, int member, int c, float x) {
    const Text &text = scan.text;
    int steps = (int)i.number;
    switch (i.operation) {
    case KEEP_SUM: return kept_list(text, scan.group, i.kept + member)[c] += x;
    case KEEP_MEAN: return (kept_list(text, scan.group, i.kept + member)[c] += x) / (scan.age(c) + 1);
    case KEEP_EMA: {
        float &kept = kept_list(text, scan.group, i.kept + member)[c];
        return kept = i.number * kept + x;
    }
    case KEEP_STD: {
        // Welford's sums, in which nothing cancels.
        float &mean = kept_list(text, scan.group, i.kept + 2 * member)[c];
        float &square = kept_list(text, scan.group, i.kept + 2 * member + 1)[c];
        float count = scan.age(c) + 1, difference = x - mean;
        mean += difference / count;
        square += difference * (x - mean);
        return sqrtf(square / count);
    }
    case KEEP_WINDOW: {
        // The last steps' values, of which the oldest is replaced.
        float &replaced = kept_list(text, scan.group, i.kept + member * steps + scan.token() % steps)[c];
        double &total = total_list(text, scan.group, i.totals + member)[c];
        total += (double)x - (double)replaced;
        replaced = x;
        if (!isfinite((float)total)) {
            // What was infinite cannot be subtracted again.
            total = 0;
            for (int s = 0; s < steps; s++) total += kept_list(text, scan.group, i.kept + member * steps + s)[c];
        }
        return (float)total;
    }
    default: {   // KEEP_PEAK, of all steps or of the last
        if (steps == 0) {
            float &kept = kept_list(text, scan.group, i.kept + member)[c];
            return kept = fmaxf(kept, x);
        }
        kept_list(text, scan.group, i.kept + member * steps + scan.token() % steps)[c] = x;
        float most = NAN;
        for (int s = 0; s < steps; s++) most = fmaxf(most, kept_list(text, scan.group, i.kept + member * steps + s)[c]);
        return most;
    }
    }
}

// Attention of some query heads, added up.
__device__ inline float attention_sum(const Text &text, int first_head, int members, int row, int column, float share) {
    float sum = 0;
    for (int member = 0; member < members; member++) {
        size_t at = (size_t)(first_head + member) * text.rows + row;
        sum += text.logits[at * text.stride + column] * (text.scale[at] * share);
    }
    return sum;
}

// Runs all instructions for a row, or those that something later remembers.
__device__ inline void run_formula(const Scan &scan, bool decides) {
    const Text &text = scan.text;
    for (int index = 0; index < text.instructions; index++) {
        const Instruction i = text.program[index];
        if (!i.always && !decides) continue;
        int op = i.operation;
        if (op == WORD_KEY_NORM || op == WORD_VALUE_NORM || op == WORD_VALUE_NORM2 || op == WORD_RANDOM)
            continue;   // known already
        if (op == WORD_OUTPUT_SHIFT || op == WORD_KEY_SIMILARITY || op == RANK || op == SOFTMAX || op == SHARE) {
            for (int member = 0; member < i.members; member++) {
                float *out = result_list(text, scan.group, i.result + member);
                if (op == WORD_OUTPUT_SHIFT) output_shift(scan, member, out);
                else if (op == WORD_KEY_SIMILARITY) key_similarity(scan, member, out);
                else over_entries(scan, op, argument(text, scan.group, i, 0, member), out);
            }
            continue;
        }
        for (int member = 0; member < i.members; member++) {
            Argument x = argument(text, scan.group, i, 0, member);
            for (int c = threadIdx.x; c < scan.columns(); c += blockDim.x) {
                float y;
                if (op >= KEEP_SUM && op <= KEEP_WINDOW) {
                    y = remember(scan, i, member, c, x[c]);
                } else if (op == POOLED_MEAN || op == POOLED_MAX) {
                    y = op == POOLED_MEAN ? 0 : NAN;
                    for (int m = 0; m < scan.members; m++) {
                        float one = argument(text, scan.group, i, 0, m)[c];
                        y = op == POOLED_MEAN ? y + one : fmaxf(y, one);
                    }
                    // After the sum, so that equal sums of whole numbers stay equal.
                    if (op == POOLED_MEAN) y *= 1.0f / scan.members;
                } else if (op == SUMMED_ATTENTION || op == POOLED_ATTENTION) {
                    float share = op == POOLED_ATTENTION ? 1.0f / scan.members : 1.0f;
                    y = attention_sum(text, scan.first_head, scan.members, scan.row, c, share);
                } else if (op == WORD_ATTENTION) {
                    y = scan.attention(scan.first_head + member)[c] * scan.scale(scan.first_head + member);
                } else if (op == WORD_LOGIT) {
                    y = text.raw_logits[((size_t)(scan.first_head + member) * text.rows + scan.row) * text.stride + c];
                } else if (op == WORD_AGE) {
                    y = scan.age(c);
                } else if (op == WORD_POSITION) {
                    y = scan.positions[c];
                } else if (op == WORD_GUMBEL) {
                    unsigned long long salt = mix(text.salt ^ 0x67756d62656cull);
                    y = gumbel(mix(mix(salt ^ (scan.first_head + member)) ^ scan.token()), scan.positions[c]);
                } else {
                    y = elementwise(op, x[c], argument(text, scan.group, i, 1, member)[c],
                                    argument(text, scan.group, i, 2, member)[c]);
                }
                if (i.result >= 0) result_list(text, scan.group, i.result + member)[c] = y;
            }
        }
        __syncthreads();
    }
}
