// Products of tensor cores (PTX `mma.sync` m16n8k16, from sm_80 on), and how the emulation does them.
#pragma once

// The bits of an f16.
typedef unsigned short Half;

__device__ inline unsigned pack(Half low, Half high) { return low | (unsigned)high << 16; }

#ifdef __CUDA_ARCH__
__device__ inline Half to_half(float x) {
    Half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

__device__ inline float from_half(Half half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

// d += a (16 x 16, by rows) times b (16 x 8, by columns). With g = lane / 4 and t = lane % 4 a lane has of a: (g, 2t), (g + 8, 2t),
// (g, 2t + 8), (g + 8, 2t + 8), each with its neighbour to the right; of b: (2t, g), (2t + 8, g), each with the one below; of d: (g, 2t),
// (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ inline void multiply(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The part of b that a lane has, of a matrix that lies by rows in shared memory; lanes 0 to 15 give the addresses of its 16 rows.
__device__ inline void load_transposed(unsigned b[2], const Half *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(at) : "memory");
}
#else
inline Half to_half(float x) {
    _Float16 half = (_Float16)x;
    Half bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

inline float from_half(Half half) {
    int exponent = half >> 10 & 31, digits = half & 1023;
    unsigned sign = (unsigned)(half & 0x8000) << 16;
    if (exponent == 0) return __uint_as_float(__float_as_uint(digits * 0x1p-24f) | sign);
    return __uint_as_float(sign | (exponent == 31 ? 255u : (unsigned)exponent + 112) << 23 | (unsigned)digits << 13);
}

// As tensor cores of Hopper add: summands are aligned to the largest, with two more bits than f32 has, and cut off there; so is the sum.
inline float cut_off_sum(float start, const double products[16]) {
    double largest = fabs((double)start), sum = 0;
    for (int k = 0; k < 16; k++) largest = fmax(largest, fabs(products[k]));
    int exponent;
    frexp(largest, &exponent);
    bool is_plain = largest > 0 && std::isfinite(largest);
    double unit = is_plain ? ldexp(1.0, exponent - 26) : 1, per_unit = 1 / unit;
    for (int k = 0; k < 16; k++) sum += is_plain ? (double)(long long)(products[k] * per_unit) : products[k];
    sum += is_plain ? (double)(long long)(start * per_unit) : start;
    if (!is_plain || sum == 0) return (float)sum;
    uint64_t bits;
    sum *= unit;
    memcpy(&bits, &sum, sizeof bits);
    // The 24 bits of f32.
    bits &= ~(uint64_t)0 << 29;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}

// A lane's part of a product.
struct Part {
    float *d;
    const unsigned *a, *b;
};

inline void emulated_multiply(int line, float d[4], const unsigned a[4], const unsigned b[2]) {
    Part own = {d, a, b};
    const uint64_t *lanes = emulated_exchange(line, (uint64_t)&own);
    if (threadIdx.x % 32 == 0) {
        float rows[16][16], columns[8][16];
        for (int l = 0; l < 32; l++) {
            const Part &part = *(const Part *)lanes[l];
            int g = l / 4, t = l % 4;
            for (int i = 0; i < 8; i++)
                rows[g + i / 2 % 2 * 8][2 * t + i / 4 * 8 + i % 2] = from_half((Half)(part.a[i / 2] >> 16 * (i % 2)));
            for (int i = 0; i < 4; i++) columns[g][2 * t + i / 2 * 8 + i % 2] = from_half((Half)(part.b[i / 2] >> 16 * (i % 2)));
        }
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < 4; i++) {
                const float *row = rows[l / 4 + i / 2 * 8], *column = columns[l % 4 * 2 + i % 2];
                double products[16];
                for (int k = 0; k < 16; k++) products[k] = (double)row[k] * column[k];
                float &sum = ((const Part *)lanes[l])->d[i];
                sum = cut_off_sum(sum, products);
            }
    }
    // Until then the parts of all lanes stay.
    emulated_exchange(line, 0);
}

inline void emulated_load_transposed(int line, unsigned b[2], const Half *row) {
    const uint64_t *got = emulated_exchange(line, (uint64_t)row);
    const Half *rows[16];
    for (int lane = 0; lane < 16; lane++) rows[lane] = (const Half *)got[lane];
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 2; i++) b[i] = pack(rows[8 * i + 2 * t][g], rows[8 * i + 2 * t + 1][g]);
}
#define multiply(d, a, b) emulated_multiply(__LINE__, d, a, b)
#define load_transposed(b, row) emulated_load_transposed(__LINE__, b, row)
#endif
