/* The vector types and primitives that the kernels are written in, once for every target.
 *
 * Clang's vector extensions give the arithmetic: a `f8` is one AVX register, two NEON registers, or plain C, and its
 * eight elements are the contract's eight lanes. What they lack is here, with a plain form beside each fast one.
 * -ffp-contract=off is required: no product may be fused with a sum.
 */
#ifndef MILLSTREAM_SIMD_H
#define MILLSTREAM_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));  /* eight int32 */
typedef int16_t i16x16 __attribute__((vector_size(32))); /* sixteen int16 */
typedef int8_t i8x16 __attribute__((vector_size(16)));   /* sixteen int8 */
typedef uint8_t u8x16 __attribute__((vector_size(16)));  /* sixteen uint8 */
typedef uint8_t u8x32 __attribute__((vector_size(32)));  /* thirty-two uint8 */
typedef _Float16 h8 __attribute__((vector_size(16)));    /* eight float16 */

INLINE f8 f8_load(const float *p) {
    f8 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void f8_store(float *p, f8 v) { memcpy(p, &v, sizeof v); }
INLINE f8 f8_set(float x) { return (f8){x, x, x, x, x, x, x, x}; }
INLINE i32x8 i32_load(const void *p) {
    i32x8 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE i16x16 i16_load(const int16_t *p) {
    i16x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE f8 f8_from_i32(i32x8 v) { return __builtin_convertvector(v, f8); }
INLINE f8 f8_from_half(const void *p) {
    h8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, f8);
}
INLINE float half_to_float(const void *p) {
    _Float16 v;
    memcpy(&v, p, sizeof v);
    return (float)v;
}
INLINE f8 f8_select(i32x8 mask, f8 yes, f8 no) { return (f8)((mask & (i32x8)yes) | (~mask & (i32x8)no)); }
INLINE f8 f8_abs(f8 x) { return (f8)((i32x8)x & 0x7fffffff); }
INLINE f8 f8_with_sign(f8 x, f8 of) { return (f8)(((i32x8)x & 0x7fffffff) | ((i32x8)of & (int32_t)0x80000000)); }
/* a > b ? a : b, so b where either is NaN. */
INLINE f8 f8_max(f8 a, f8 b) { return f8_select((i32x8)(a > b), a, b); }
/* To nearest even by adding and taking away 1.5 * 2^23; exact for |x| < 2^22. */
INLINE f8 f8_rint(f8 x) { return (x + 12582912.0f) - 12582912.0f; }

/* ((0+4)+(2+6)) + ((1+5)+(3+7)) */
INLINE float f8_tree(f8 v) {
    typedef float f4 __attribute__((vector_size(16)));
    f4 half = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    f4 quarter = half + __builtin_shufflevector(half, half, 2, 3, 2, 3);
    return quarter[0] + quarter[1];
}

/* out[i] = v[(i - by) mod 8] */
INLINE f8 f8_rotate(f8 v, int by) {
#if defined(__AVX2__)
    const i32x8 at = ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} - by) & 7;
    return (f8)_mm256_permutevar8x32_ps((__m256)v, (__m256i)at);
#else
    f8 out;
    for (int i = 0; i < 8; i++) out[i] = v[(i - by) & 7];
    return out;
#endif
}

/* Sixteen int16 products summed in neighbouring pairs: eight int32 added to sum. */
INLINE i32x8 i16_dot(i32x8 sum, i16x16 a, i16x16 b) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return (i32x8)_mm256_dpwssd_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVX2__)
    return sum + (i32x8)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__ARM_NEON)
    int16x8_t a0 = (int16x8_t)__builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7);
    int16x8_t a1 = (int16x8_t)__builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
    int16x8_t b0 = (int16x8_t)__builtin_shufflevector(b, b, 0, 1, 2, 3, 4, 5, 6, 7);
    int16x8_t b1 = (int16x8_t)__builtin_shufflevector(b, b, 8, 9, 10, 11, 12, 13, 14, 15);
    int32x4_t low = vpaddq_s32(vmull_s16(vget_low_s16(a0), vget_low_s16(b0)), vmull_high_s16(a0, b0));
    int32x4_t high = vpaddq_s32(vmull_s16(vget_low_s16(a1), vget_low_s16(b1)), vmull_high_s16(a1, b1));
    return sum + (i32x8)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    for (int i = 0; i < 8; i++) sum[i] += (int32_t)a[2 * i] * b[2 * i] + (int32_t)a[2 * i + 1] * b[2 * i + 1];
    return sum;
#endif
}

/* The sums of the elements of eight vectors, in their order. */
INLINE i32x8 i32_sums(const i32x8 v[8]) {
    i32x8 pair[4], quad[2];
    for (int i = 0; i < 4; i++)
        pair[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13) +
                  __builtin_shufflevector(v[2 * i], v[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    for (int i = 0; i < 2; i++)
        quad[i] = __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
                  __builtin_shufflevector(pair[2 * i], pair[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    return __builtin_shufflevector(quad[0], quad[1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(quad[0], quad[1], 4, 5, 6, 7, 12, 13, 14, 15);
}
INLINE int32_t i32_sum(i32x8 v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/* The same for four vectors whose first and last four elements are summed apart: sums of v[0] first, v[0] last, v[1] first, … */
INLINE i32x8 i32_half_sums(const i32x8 v[4]) {
    i32x8 pair[2];
    for (int i = 0; i < 2; i++)
        pair[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
                  __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    const i32x8 sums = __builtin_shufflevector(pair[0], pair[1], 0, 1, 8, 9, 4, 5, 12, 13) +
                       __builtin_shufflevector(pair[0], pair[1], 2, 3, 10, 11, 6, 7, 14, 15);
    return __builtin_shufflevector(sums, sums, 0, 4, 1, 5, 2, 6, 3, 7);
}

INLINE void transpose(i32x8 v[8]) {
    i32x8 a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[2 * i + 1] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + j] = __builtin_shufflevector(a[i + j], a[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[i + j + 2] = __builtin_shufflevector(a[i + j], a[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        v[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

INLINE i16x16 i16_from_i8(i8x16 v) { return __builtin_convertvector(v, i16x16); }
INLINE i16x16 i16_from_u8(u8x16 v) { return __builtin_convertvector(v, i16x16); }

INLINE u8x32 u8x32_load(const void *p) {
    u8x32 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* table[index] for 32 indices 0 … 15. */
INLINE u8x32 u8_choose(const uint8_t table[16], u8x32 index) {
#if defined(__AVX2__)
    u8x16 all;
    memcpy(&all, table, sizeof all);
    return (u8x32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256((__m128i)all), (__m256i)index);
#else
    u8x32 out;
    for (int i = 0; i < 32; i++) out[i] = table[index[i]];
    return out;
#endif
}

/* Products of unsigned codes with q, of which 32 low bytes come first and 32 high bytes follow: q = 256 * high + low, both signed.
 * BYTE_TOP is the largest code, or 0 where the processor lacks the instruction and codes go as int16. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define BYTE_TOP 255
#elif defined(__AVX2__) || defined(__ARM_FEATURE_DOTPROD)
#define BYTE_TOP 127
#else
#define BYTE_TOP 0
#endif

/* `bytes_dot` gives the products of 32 codes, by fours; `byte_sums` adds several calls up. With AVX2 they are kept as int16: the largest
 * code times the number of calls is at most 127. */
#if BYTE_TOP == 255
typedef struct {
    i32x8 low, high;
} byte_sums;
INLINE void bytes_add(byte_sums *s, u8x32 codes, const int8_t *bytes) {
    s->low = (i32x8)_mm256_dpbusd_epi32((__m256i)s->low, (__m256i)codes, (__m256i)u8x32_load(bytes));
    s->high = (i32x8)_mm256_dpbusd_epi32((__m256i)s->high, (__m256i)codes, (__m256i)u8x32_load(bytes + 32));
}
INLINE i32x8 bytes_total(byte_sums s) { return s.low + (s.high << 8); }
INLINE i32x8 bytes_dot(u8x32 codes, const int8_t *bytes) {
    const __m256i high = _mm256_dpbusd_epi32(_mm256_setzero_si256(), (__m256i)codes, (__m256i)u8x32_load(bytes + 32));
    return (i32x8)_mm256_dpbusd_epi32((__m256i)((i32x8)high << 8), (__m256i)codes, (__m256i)u8x32_load(bytes));
}
#elif defined(__AVX2__)
typedef struct {
    i16x16 low, high;
} byte_sums;
INLINE void bytes_add(byte_sums *s, u8x32 codes, const int8_t *bytes) {
    s->low += (i16x16)_mm256_maddubs_epi16((__m256i)codes, (__m256i)u8x32_load(bytes));
    s->high += (i16x16)_mm256_maddubs_epi16((__m256i)codes, (__m256i)u8x32_load(bytes + 32));
}
INLINE i32x8 bytes_total(byte_sums s) {
    const __m256i low = _mm256_madd_epi16((__m256i)s.low, _mm256_set1_epi16(1));
    return (i32x8)low + (i32x8)_mm256_madd_epi16((__m256i)s.high, _mm256_set1_epi16(256));
}
INLINE i32x8 bytes_dot(u8x32 codes, const int8_t *bytes) {
    byte_sums sums = {{0}, {0}};
    bytes_add(&sums, codes, bytes);
    return bytes_total(sums);
}
#elif BYTE_TOP
typedef struct {
    i32x8 low, high;
} byte_sums;
INLINE i32x8 signed_dot(i32x8 sum, u8x32 codes, const int8_t *bytes) {
    typedef int32_t i32x4 __attribute__((vector_size(16)));
    const u8x32 x = u8x32_load(bytes);
    i32x4 part[2];
    memcpy(part, &sum, sizeof sum);
    for (int half = 0; half < 2; half++) {
        i8x16 a, b;
        memcpy(&a, (const char *)&codes + 16 * half, sizeof a);
        memcpy(&b, (const char *)&x + 16 * half, sizeof b);
        part[half] = (i32x4)vdotq_s32((int32x4_t)part[half], (int8x16_t)a, (int8x16_t)b);
    }
    memcpy(&sum, part, sizeof sum);
    return sum;
}
INLINE void bytes_add(byte_sums *s, u8x32 codes, const int8_t *bytes) {
    s->low = signed_dot(s->low, codes, bytes);
    s->high = signed_dot(s->high, codes, bytes + 32);
}
INLINE i32x8 bytes_total(byte_sums s) { return s.low + (s.high << 8); }
INLINE i32x8 bytes_dot(u8x32 codes, const int8_t *bytes) {
    return signed_dot(signed_dot((i32x8){0}, codes, bytes + 32) << 8, codes, bytes);
}
#endif

/* The first 16 bytes after `skip` of eight places: out[k] holds word k of all eight. */
INLINE void gather_words(const uint8_t *const p[8], int skip, i32x8 out[4]) {
    typedef int32_t i32x4 __attribute__((vector_size(16)));
    i32x8 pair[4], half[4];
    for (int i = 0; i < 4; i++) {
        i32x4 a, b;
        memcpy(&a, p[i] + skip, 16);
        memcpy(&b, p[i + 4] + skip, 16);
        pair[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    for (int i = 0; i < 4; i += 2) {
        half[i] = __builtin_shufflevector(pair[i], pair[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        half[i + 1] = __builtin_shufflevector(pair[i], pair[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = __builtin_shufflevector(half[i], half[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        out[2 * i + 1] = __builtin_shufflevector(half[i], half[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
}

/* The first 8 of n elements; of fewer, the rest 0. */
INLINE f8 load_some(const float *x, int64_t n) {
    float buffer[8] = {0};
    if (n >= 8) return f8_load(x);
    memcpy(buffer, x, (size_t)n * sizeof(float));
    return f8_load(buffer);
}

INLINE void store_some(float *out, int64_t n, f8 value) {
    float buffer[8];
    f8_store(n >= 8 ? out : buffer, value);
    if (n < 8) memcpy(out, buffer, (size_t)n * sizeof(float));
}

/* The eight lanes of a sum of n squares; a tail shorter than eight fills the first lanes. */
INLINE float sum_of_squares(const float *x, int64_t n) {
    f8 lanes = f8_set(0.0f);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f8 v = f8_load(x + i);
        lanes = lanes + v * v;
    }
    for (int lane = 0; i < n; i++, lane++) lanes[lane] += x[i] * x[i];
    return f8_tree(lanes);
}

#endif
