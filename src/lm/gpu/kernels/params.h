// What kernels are told. `params.rs` has the same structs, field by field.
//
// Addresses are of the device. "Columns" are the entries of a cache, and after them the tokens of the block that is read; row r of
// a block is column `held + r`. After a block its entries take the columns of evicted ones, so those of a bounded cache are in no
// order. What a cache keeps has `capacity` columns, what is made for a block `stride`.
//
// No kernel writes to its table of texts. `__restrict__` says so: fields are not loaded again after every store.
#pragma once

// What a layer of the model and all texts of a launch have in common.
struct Layer {
    int heads, kv_heads, dim;
    int pairs;        // rotated pairs of dimensions
    float softcap;    // 0: none
};

// One instruction of a formula. It makes a number for every column, for each query head of the decision, each key-value head,
// or once.
struct Instruction {
    int operation;
    int members;          // lists of numbers that it makes
    int always;           // needed at every step, not only where an entry is evicted
    int result;           // first of its lists in `Text::results`
    int kept, totals;     // first of its lists in `Text::kept` and `Text::totals`
    float number;         // the factor of `ema`, or the steps of `window` and `peak`
    // Of each argument: the list of its first member in `results` or `kept`, or a number, and how many query heads share a list.
    int from[3], list[3], sharing[3];
    float constant[3];
};

// Where an argument is.
enum From { FROM_CONSTANT, FROM_RESULTS, FROM_KEPT };

// What instructions do: words and functions of `eviction/formula/words.rs` in their order, up to the last ones that kernels know,
// which a test compares. Kernels get no FUTURE_ATTENTION, and formulas are compiled without SIZE, COUNT and POOLED.
enum Operation {
    WORD_ATTENTION, WORD_LOGIT, WORD_AGE, WORD_POSITION, WORD_KEY_NORM, WORD_VALUE_NORM, WORD_VALUE_NORM2, WORD_OUTPUT_SHIFT,
    WORD_KEY_SIMILARITY, WORD_FUTURE_ATTENTION, WORD_RANDOM, WORD_GUMBEL, WORD_SIZE,
    ADD, MULTIPLY, DIVIDE, LESS, AT_MOST, EQUAL, UNEQUAL, IF, MIN, MAX, ABS, LOG, EXP, SQRT,
    KEEP_SUM, KEEP_MEAN, KEEP_STD, KEEP_EMA, KEEP_PEAK, KEEP_WINDOW, KEEP_COUNT,
    RANK, SOFTMAX, SHARE, POOLED, POOLED_MEAN, POOLED_MAX,
    SUMMED_ATTENTION,     // over the query heads of the decision
    POOLED_ATTENTION,     // its mean
};

// Thread blocks that move the vectors of a head.
#define REFILL_PARTS 8

// One of the lowest scores of a row as if nothing left in its block. Behind the last one follow columns of -1, with a score that
// no other entry of the row is below.
struct Candidate {
    float score;
    int column;
};

// Candidates of a row, with the one of column -1 behind them. A test has fewer.
#ifndef CANDIDATES
#define CANDIDATES 64
#endif

// A text, its cache in this layer, and the block of it that is read.
struct Text {
    // The cache: (kv_heads, capacity, dim).
    float *keys, *values;
    float *all_keys;                 // every key ever read (kv_heads, all_capacity, dim), where lost attention is measured

    // The block's projections, unrotated: (rows, heads or kv_heads, dim).
    const float *new_queries, *new_keys, *new_values;
    const float *cos, *sin;          // (rows, pairs), at absolute positions
    const float *query_scales;       // (rows)
    const unsigned *ends;            // where the entries of each key-value head end before column `gap_end`, or null: there

    // Made for the block.
    float *queries;                  // rotated and scaled (heads, rows, dim)
    float *logits;                   // then attention, not divided by its sum (heads, rows, stride)
    float *raw_logits;               // logits as they were (heads, rows, stride), if the formula wants them, or null
    float *max, *scale;              // the maximum of each softmax, and 1 / its sum (heads, rows)
    float *part_scale;               // of a second reading: 1 / the sum over the part that is repeated, what is read and the first entries
    float *mixed;                    // attention times values (heads, rows, dim)
    float *out;                      // the same, divided (rows, heads, dim)
    float *all_logits, *lost;        // (query heads of a key-value head, rows, all_stride) and (rows)

    // Decisions.
    unsigned *positions;             // (groups, capacity), or null where nothing is evicted; (stride) where nothing leaves
    unsigned char *alive;            // `gone_from` while a block is scanned, or null where that fits into shared memory
    unsigned char *gone_from;        // the first row that does not see a column (groups, stride), or null where `scan` itself leaves
                                     // out what has left
    float *by_column;                // attention as if nothing left in the block (groups, stride, rows, query heads of the group),
    Candidate *candidates;           // and the lowest scores that follow from it (groups, rows, CANDIDATES)
    unsigned *moves;                 // columns to fill and the columns of what moves there (groups, 2, moves_stride), or null for a
                                     // prompt that will be cut: nothing leaves, and attention is there already
    unsigned *moved;                 // (groups, 2): survivors, and how many of them move
    int *victims;                    // (rows, groups): position of what the policy evicts, -1: none, -2 - position: the window. What
                                     // leaves at once with it is in the rows before, of which there are `burst - 1` before the first
    double *priority;                // scores that never change (groups, capacity), or null
    const double *new_priority;      // of the block's tokens (rows, groups)
    double same_priority;            // priorities that differ by less than this share of themselves are equal
    const Instruction *program;
    float *results;                  // (groups, result_lists, stride)
    float *kept;                     // (groups, kept_lists, capacity)
    double *totals;                  // (groups, total_lists, capacity)
    float *newest;                   // scores at the last row (groups, stride), or null
    unsigned long long salt;

    int rows, held, stride, seen;    // seen: tokens read before the block
    int capacity, all_capacity, all_stride, kv_head;
    int limit, burst, window, keep_first, keep_recent;   // `burst` entries leave at once beyond `limit`; window 0: none
    int groups, instructions, kept_lists, total_lists;
    int result_lists, moves_stride;
    int passed;                      // columns that no later row sees, where only the order of entries decides
    int oldest;                      // position of column 0, had no column before the newest tokens left
    int gap_end;
    int prompt, part_start, part_end;   // tokens of a prompt that is read again, and columns of the part that is repeated
    int newest_seen;                 // tokens that a query sees besides the first `keep_first`, itself included, where only their order
                                     // decides; 0: all
};

// What is known of a row of logits, and of that of the full cache.
struct ScoredRow {
    double sum, full_sum, difference;
    float of_target, max, full_max;
    int target, largest, full_largest;   // -1: no logit is a number
};

// Rows of logits over the vocabulary.
struct Scoring {
    const float *logits, *full;   // (rows, vocab); `full` may be null
    ScoredRow *rows;
    int vocab, pad;
};

// `rows` rows of `width` words; pitches are from one row to the next.
struct Copy {
    const unsigned *from;
    unsigned *to;
    size_t from_pitch, to_pitch, width, rows;
};

// `params.rs` checks the same numbers.
static_assert(sizeof(Layer) == 20 && sizeof(Text) == 400 && sizeof(Instruction) == 76 && sizeof(ScoredRow) == 48 &&
                  sizeof(Scoring) == 32 && sizeof(Copy) == 48,
              "the program has other structs");

// A logit as the model limits it.
__device__ inline float capped(const Layer &layer, float logit) {
    return layer.softcap > 0 ? layer.softcap * tanhf(logit / layer.softcap) : logit;
}
