// The scan through a block of tokens under a policy, where positions do not depend on evictions: the exponentials of all rows are
// there already.
//
// Grid: groups, texts. Shared memory: Scratch, and one byte for each column where `alive_is_shared`.
#include "decide.h"

// A thread needs 80 registers, of which a block has 65,536; with fewer for each thread some numbers would be kept in memory.
// Where more threads are asked for, `cuda.rs` launches these.
extern "C" __global__ void __launch_bounds__(768) scan(Layer layer, const Text *__restrict__ texts) {
    extern __shared__ double shared[];
    const Text &text = texts[blockIdx.y];
    if ((int)blockIdx.x >= text.groups) return;
    Scan scan = begin_scan(layer, text, (unsigned char *)shared);
    for (; scan.row < text.rows; scan.row++) {
        join(scan);
        if (text.moves && !text.gone_from) attention_of_row(scan);
        decide(scan);
    }
    if (text.moves) end_scan(scan);
}
