// Runs the kernels' source on the host. See emulation.h.
#include "emulation.h"
#include "kernels.cu"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)0)
#endif

thread_local Index threadIdx, blockIdx, blockDim, gridDim;

namespace {
// As much as a block may have on an H100, and room to see whether it writes behind its part.
constexpr size_t SHARED = 227 * 1024, GUARD = 256;
}
alignas(16) thread_local double shared[(SHARED + GUARD) / 8];

namespace {

// A place to go on at, with a stack of its own.
#if defined(__x86_64__)
using Place = void *;
extern "C" void switch_stacks(Place *from, Place to);
// ucontext would ask the kernel for the signal mask at every switch, which takes a hundred times as long.
asm(".text\n"
    "switch_stacks:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");

void go(Place &from, Place &to) { switch_stacks(&from, to); }

void begin(Place &place, char *stack, size_t bytes, void (*function)()) {
    void **top = (void **)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
    top[-1] = nullptr, top[-2] = (void *)function;
    for (int i = 3; i <= 8; i++) top[-i] = nullptr;
    place = top - 8;
}
#else
using Place = ucontext_t;

void go(Place &from, Place &to) { swapcontext(&from, &to); }

void begin(Place &place, char *stack, size_t bytes, void (*function)()) {
    getcontext(&place);
    place.uc_stack.ss_sp = stack, place.uc_stack.ss_size = bytes, place.uc_link = nullptr;
    makecontext(&place, function, 0);
}
#endif

// Greater numbers are seeds of orders that are drawn.
enum Order { ASCENDING, DESCENDING };
enum State { READY, AT_BARRIER, AT_EXCHANGE, ENDED };

struct Fiber {
    Place place;
    std::unique_ptr<char[]> stack;
    State state;
    int line;            // where it waits
    uint64_t exchanges;  // so far
};

constexpr size_t STACK = 256 * 1024;

using Kernel = void (*)(Layer, const Text *);
const Kernel KERNELS[] = {place, softmax, received, transpose, rank, walk, scan, exclude, outputs, loss, refill, score, copy,
                          attend_64, attend_96, attend_128, attend_256};
const char *const NAMES[] = {"place", "softmax", "received", "transpose", "rank", "walk", "scan", "exclude", "outputs", "loss", "refill",
                             "score", "copy", "attend_64", "attend_96", "attend_128", "attend_256"};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<uint64_t> exchanged;   // (2, threads): two, so that a lane may be one exchange ahead
    Place scheduler;
    unsigned current;
    Kernel kernel;
    Layer layer;
    const Text *texts;
    char error[256];
};

thread_local Block block;

void wait(State state, int line) {
    Fiber &own = block.fibers[block.current];
    own.state = state, own.line = line;
    go(own.place, block.scheduler);
}

void enter() {
    block.kernel(block.layer, block.texts);
    wait(ENDED, 0);
}

bool fail(const char *kernel, const char *what, unsigned one, int line, unsigned other, int other_line) {
    snprintf(block.error, sizeof block.error, "kernel %s, block (%u, %u): %s: thread %u, line %d; thread %u, line %d", kernel,
             blockIdx.x, blockIdx.y, what, one, line, other, other_line);
    return false;
}

// Lets a warp go on until its threads wait at a barrier or have ended. Returns whether there was no error.
bool run_warp(const char *kernel, unsigned first, bool is_descending) {
    Fiber *fibers = &block.fibers[first];
    for (;;) {
        for (unsigned i = 0; i < 32; i++) {
            unsigned lane = is_descending ? 31 - i : i;
            if (fibers[lane].state != READY) continue;
            block.current = first + lane;
            threadIdx = Index{block.current, 0, 0};
            go(block.scheduler, fibers[lane].place);
        }
        unsigned one = 0;
        while (one < 32 && fibers[one].state != AT_EXCHANGE) one++;
        if (one == 32) return true;
        for (unsigned i = 0; i < 32; i++)
            if (fibers[i].state != AT_EXCHANGE || fibers[i].line != fibers[one].line)
                return fail(kernel, "lanes of a warp diverge at a shuffle", first + one, fibers[one].line, first + i, fibers[i].line);
        for (unsigned i = 0; i < 32; i++) fibers[i].state = READY;
    }
}

// Of warps between two barriers, one after the other goes all the way. So of two that touch the same number each is first in one of the
// orders ASCENDING and DESCENDING; a drawn order also finds what three of them need.
bool run_block(const char *kernel, unsigned threads, size_t shared_bytes, unsigned order, std::mt19937 &random) {
    auto &fibers = block.fibers;
    while (fibers.size() < threads) {
        fibers.emplace_back();
        fibers.back().stack.reset(new char[STACK]);
    }
    block.exchanged.assign(2 * threads, 0);
    ASAN_UNPOISON_MEMORY_REGION(shared, sizeof shared);
    memset(shared, 0xff, shared_bytes + GUARD);
    ASAN_POISON_MEMORY_REGION((char *)shared + shared_bytes, sizeof shared - shared_bytes);
    for (unsigned i = 0; i < threads; i++) {
        Fiber &fiber = fibers[i];
        begin(fiber.place, fiber.stack.get(), STACK, enter);
        fiber.state = READY, fiber.line = 0, fiber.exchanges = 0;
    }
    std::vector<unsigned> warps(threads / 32);
    for (unsigned i = 0; i < warps.size(); i++) warps[i] = 32 * (order == DESCENDING ? (unsigned)warps.size() - 1 - i : i);
    while (fibers[0].state != ENDED) {
        if (order > DESCENDING) std::shuffle(warps.begin(), warps.end(), random);
        for (unsigned i = 0; i < threads; i++) fibers[i].state = READY;
        for (unsigned first : warps)
            if (!run_warp(kernel, first, order == DESCENDING)) return false;
        for (unsigned i = 0; i < threads; i++)
            if (fibers[i].state != fibers[0].state || fibers[i].line != fibers[0].line)
                return fail(kernel, "threads diverge at a barrier", 0, fibers[0].line, i, fibers[i].line);
    }
    ASAN_UNPOISON_MEMORY_REGION(shared, sizeof shared);
    const unsigned char *bytes = (const unsigned char *)shared;
    for (size_t i = shared_bytes; i < shared_bytes + GUARD; i++)
        if (bytes[i] != 0xff) {
            snprintf(block.error, sizeof block.error, "kernel %s writes byte %zu of %zu of its shared memory", kernel, i,
                     shared_bytes);
            return false;
        }
    return true;
}

}  // namespace

void emulated_barrier(int line) { wait(AT_BARRIER, line); }

const uint64_t *emulated_exchange(int line, uint64_t value) {
    Fiber &own = block.fibers[block.current];
    unsigned threads = blockDim.x, own_index = block.current;
    uint64_t *values = block.exchanged.data() + (own.exchanges++ % 2) * threads;
    values[own_index] = value;
    wait(AT_EXCHANGE, line);
    return values + own_index / 32 * 32;
}

// Runs a kernel. Returns what is wrong, or null.
extern "C" const char *emulate(int kernel, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes,
                               const Layer *layer, const Text *texts, unsigned order) {
    if (threads % 32 != 0 || shared_bytes > SHARED) return "threads are no multiple of 32, or too much shared memory";
    block.kernel = KERNELS[kernel], block.layer = *layer, block.texts = texts;
    std::mt19937 random(order);
    blockDim = Index{threads, 1, 1}, gridDim = Index{grid_x, grid_y, 1};
    for (unsigned y = 0; y < grid_y; y++)
        for (unsigned x = 0; x < grid_x; x++) {
            blockIdx = Index{x, y, 0};
            if (!run_block(NAMES[kernel], threads, shared_bytes, order, random)) return block.error;
        }
    return nullptr;
}
