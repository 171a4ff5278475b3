/* Encodings whose codes come from codebooks, by eights or fours: IQ1, IQ2, IQ3; and NVFP4 and Q1_0, of 64 and 128 weights a block.
 * Where a layout speaks of n, the sub-scale is 2 * n + 1 over the encoding's divisor. */
#ifndef MILLSTREAM_ENCODINGS_IQ_H
#define MILLSTREAM_ENCODINGS_IQ_H

#include "encodings_256.h"
#include "encodings_grids.h"

/* The codebooks' points as bytes: IQ1 as 0, 8, 16 for -1, 0, 1; IQ2 and IQ3 as magnitudes. */
#define EACH_OF_FOUR(level, w) (level(w, 0) | level(w, 1) | level(w, 2) | level(w, 3))
#define EACH_OF_EIGHT(level, w) (EACH_OF_FOUR(level, w) | level(w, 4) | level(w, 5) | level(w, 6) | level(w, 7))
#define TWO_BITS(w, i) ((uint64_t)(w) >> 2 * (i) & 3)
#define FOUR_BITS(w, i) ((uint32_t)(w) >> 4 * (i) & 15)
#define IQ1_LEVEL(w, i) ((TWO_BITS(w, i) * 8) << 8 * (i))
#define IQ2_LEVEL(w, i) ((TWO_BITS(w, i) * 17 + (TWO_BITS(w, i) >> 1) + 8) << 8 * (i)) /* 8, 25, 43 */
#define IQ3_XXS_LEVEL(w, i) ((FOUR_BITS(w, i) * 8 + FOUR_BITS(w, i) / 7 * 2 + 4) << 8 * (i)) /* 4, 12, … 52, 62 */
#define IQ3_S_LEVEL(w, i) ((FOUR_BITS(w, i) * 2 + 1) << 8 * (i))
#define IQ1_POINT(w) EACH_OF_EIGHT(IQ1_LEVEL, w),
#define IQ2_POINT(w) EACH_OF_EIGHT(IQ2_LEVEL, w),
#define IQ3_XXS_POINT(w) EACH_OF_FOUR(IQ3_XXS_LEVEL, w),
#define IQ3_S_POINT(w) EACH_OF_FOUR(IQ3_S_LEVEL, w),
static const uint64_t IQ1_GRID[2048] = {IQ1_POINTS(IQ1_POINT)};
static const uint64_t IQ2_XXS_GRID[256] = {IQ2_XXS_POINTS(IQ2_POINT)}, IQ2_XS_GRID[512] = {IQ2_XS_POINTS(IQ2_POINT)};
static const uint64_t IQ2_S_GRID[1024] = {IQ2_S_POINTS(IQ2_POINT)};
static const uint32_t IQ3_XXS_GRID[256] = {IQ3_XXS_POINTS(IQ3_XXS_POINT)}, IQ3_S_GRID[512] = {IQ3_S_POINTS(IQ3_S_POINT)};

/* What is added to codes, so that none is negative. */
enum { IQ1_OFFSET = 9, IQ2_OFFSET = 43, IQ3_XXS_OFFSET = 62, IQ3_S_OFFSET = 15, Q1_0_OFFSET = 1 };

INLINE uint32_t half_word(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* 255 where one of 32 bits is set. */
INLINE u8x32 bit_bytes(uint32_t bits) {
    const u8x32 all = (u8x32)((u32x8){0} + bits);
    const u8x32 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const u8x32 eighth = __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 18, 18, 18, 18, 18, 18, 18, 18,
                                                 19, 19, 19, 19, 19, 19, 19, 19);
    return (u8x32)((eighth & bit) == bit);
}

/* Magnitudes, negated where a bit is set, plus the offset. */
INLINE u8x32 with_signs(u8x32 magnitudes, uint32_t bits, uint8_t offset) {
    const u8x32 minus = bit_bytes(bits);
    return (magnitudes ^ minus) - minus + offset;
}

/* 32 signs from four times seven bits: each eighth makes the number of set bits even. */
INLINE uint32_t even_signs(uint32_t sevens) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t seven = sevens >> 7 * i & 127;
        bits |= (seven | (uint32_t)__builtin_parity(seven) << 7) << 8 * i;
    }
    return bits;
}

/* (2 * n + 1) * part, times d. */
INLINE f8 odd_scales(i32x8 n, float part, float d) { return f8_from_i32(n * 2 + 1) * part * d; }

/* The eight nibbles of four bytes. */
INLINE i32x8 eight_nibbles(const uint8_t *p) { return (i32x8)(((u32x8){0} + word(p)) >> (u32x8){0, 4, 8, 12, 16, 20, 24, 28} & 15); }

/* The upper four bits of eight words that lie `stride` bytes apart. */
INLINE i32x8 top_nibbles(const uint8_t *p, int stride) {
    i32x8 n;
    for (int i = 0; i < 8; i++) n[i] = p[i * stride + 3] >> 4;
    return n;
}

/* IQ1_S: float16 d, 32 bytes of indices, 8 words, one a run: upper index bits by threes, n in three, the highest for down.
 * IQ1_M: 32 bytes of indices, 32 nibbles (three upper index bits, one for down), 4 words of n by threes for each 16 weights, whose upper
 * four bits are the float16 d. Codes are 8 * point +- 1, the divisor is 8. */
enum { IQ1_S_BYTES = 50, IQ1_M_BYTES = 56 };
INLINE uint64_t iq1_point(uint32_t low, uint32_t high, uint32_t down) {
    return IQ1_GRID[low | (high & 7) << 8] + (down ? 0 : 0x0202020202020202);
}
INLINE u8x32 iq1_s_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, IQ1_S_BYTES), *p = block + 2 + r % 8 * 4;
    const uint32_t high = half_word(block + 34 + r % 8 * 2);
    uint64_t points[4];
    for (int i = 0; i < 4; i++) points[i] = iq1_point(p[i], high >> 3 * i, high >> 15);
    return u8x32_load(points);
}
INLINE void iq1_s_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u, IQ1_S_BYTES);
    u16x8 words;
    memcpy(&words, block + 34, sizeof words);
    *scale = odd_scales(__builtin_convertvector(words >> 12 & 7, i32x8), 0.125f, half_to_float(block));
    *minimum = f8_set(0.0f);
}
INLINE u8x32 iq1_m_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, IQ1_M_BYTES), *p = block + r % 8 * 4;
    const uint32_t high = half_word(block + 32 + r % 8 * 2);
    uint64_t points[4];
    for (int i = 0; i < 4; i++) points[i] = iq1_point(p[i], high >> 4 * i, high >> 4 * i & 8);
    return u8x32_load(points);
}
INLINE void iq1_m_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *p = BLOCK_OF(row, u / 2, IQ1_M_BYTES) + 48;
    const uint16_t d = (uint16_t)(p[1] >> 4 | (p[3] & 0xf0) | (p[5] & 0xf0) << 4 | (p[7] & 0xf0) << 8);
    const uint32_t a = half_word(p + u % 16 / 2), b = half_word(p + u % 16 / 2 + 2);
    const u32x8 n = (u32x8){a, a, a, a, b, b, b, b} >> (u32x8){0, 3, 6, 9, 0, 3, 6, 9} & 7;
    *scale = odd_scales((i32x8)n, 0.125f, half_to_float(&d));
    *minimum = f8_set(0.0f);
}

/* IQ2_XXS: float16 d, 8 bytes a run: four indices, then a word of four times seven sign bits with n on top.
 * IQ2_XS: float16 d, 32 words of nine index and seven sign bits, 16 nibbles of n, one for each 16 weights.
 * IQ2_S: float16 d, 32 bytes of indices, 32 of signs, 32 pairs of upper index bits, 16 nibbles of n. The divisor is 8. */
enum { IQ2_XXS_BYTES = 66, IQ2_XS_BYTES = 74, IQ2_S_BYTES = 82 };
INLINE u8x32 iq2_xxs_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *p = BLOCK_OF(row, r, IQ2_XXS_BYTES) + 2 + r % 8 * 8;
    uint64_t points[4];
    for (int i = 0; i < 4; i++) points[i] = IQ2_XXS_GRID[p[i]];
    return with_signs(u8x32_load(points), even_signs(word(p + 4)), IQ2_OFFSET);
}
INLINE void iq2_xxs_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u, IQ2_XXS_BYTES);
    *scale = odd_scales(top_nibbles(block + 6, 8), 0.125f, half_to_float(block));
    *minimum = f8_set(0.0f);
}
INLINE u8x32 iq2_xs_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *p = BLOCK_OF(row, r, IQ2_XS_BYTES) + 2 + r % 8 * 8;
    uint64_t points[4];
    uint32_t sevens = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t both = half_word(p + 2 * i);
        points[i] = IQ2_XS_GRID[both & 511];
        sevens |= both >> 9 << 7 * i;
    }
    return with_signs(u8x32_load(points), even_signs(sevens), IQ2_OFFSET);
}
INLINE void iq2_xs_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u / 2, IQ2_XS_BYTES);
    *scale = odd_scales(eight_nibbles(block + 66 + u % 16 / 2), 0.125f, half_to_float(block));
    *minimum = f8_set(0.0f);
}
INLINE u8x32 iq2_s_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, IQ2_S_BYTES), *p = block + 2 + r % 8 * 4;
    const uint32_t high = block[66 + r % 8];
    uint64_t points[4];
    for (int i = 0; i < 4; i++) points[i] = IQ2_S_GRID[p[i] | (high >> 2 * i & 3) << 8];
    return with_signs(u8x32_load(points), word(p + 32), IQ2_OFFSET);
}
INLINE void iq2_s_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u / 2, IQ2_S_BYTES);
    *scale = odd_scales(eight_nibbles(block + 74 + u % 16 / 2), 0.125f, half_to_float(block));
    *minimum = f8_set(0.0f);
}

/* IQ3_XXS: float16 d, 64 bytes of indices, 8 words of four times seven sign bits with n on top, the divisor is 4.
 * IQ3_S: float16 d, 64 bytes of indices, 64 ninth index bits, 32 bytes of signs, 8 nibbles of n, the divisor is 1. */
enum { IQ3_XXS_BYTES = 98, IQ3_S_BYTES = 110 };
INLINE u8x32 iq3_xxs_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, IQ3_XXS_BYTES), *p = block + 2 + r % 8 * 8;
    uint32_t points[8];
    for (int i = 0; i < 8; i++) points[i] = IQ3_XXS_GRID[p[i]];
    return with_signs(u8x32_load(points), even_signs(word(block + 66 + r % 8 * 4)), IQ3_XXS_OFFSET);
}
INLINE void iq3_xxs_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u, IQ3_XXS_BYTES);
    *scale = odd_scales(top_nibbles(block + 66, 4), 0.25f, half_to_float(block));
    *minimum = f8_set(0.0f);
}
INLINE u8x32 iq3_s_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, IQ3_S_BYTES), *p = block + 2 + r % 8 * 8;
    const uint32_t high = block[66 + r % 8];
    uint32_t points[8];
    for (int i = 0; i < 8; i++) points[i] = IQ3_S_GRID[p[i] | (high >> i & 1) << 8];
    return with_signs(u8x32_load(points), word(block + 74 + r % 8 * 4), IQ3_S_OFFSET);
}
INLINE void iq3_s_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u, IQ3_S_BYTES);
    *scale = odd_scales(eight_nibbles(block + 106), 1.0f, half_to_float(block));
    *minimum = f8_set(0.0f);
}

/* NVFP4: four E4M3 scales, then for each 16 weights 8 bytes of nibbles that choose a level; levels are doubled, d is half a scale. */
enum { NVFP4_BYTES = 36 };
INLINE u8x32 nvfp4_bytes(const uint8_t *row, int64_t r) {
    typedef uint64_t u64x4 __attribute__((vector_size(32)));
    const u64x4 v = (u64x4)nibbles(row + r / 2 * NVFP4_BYTES + 4 + r % 2 * 16);
    return u8_choose(MXFP4_LEVELS, (u8x32)__builtin_shufflevector(v, v, 0, 2, 1, 3));
}
INLINE void nvfp4_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    i32x8 bytes = {0};
    for (int i = 0; i < count; i++) bytes[i] = row[(u + i) / 4 * NVFP4_BYTES + (u + i) % 4];
    const i32x8 exponent = bytes >> 3 & 15, mantissa = bytes & 7;
    const f8 normal = (f8)((exponent + (127 - 8)) << 23 | mantissa << 20);
    const f8 value = f8_select(exponent == 0, f8_from_i32(mantissa) * 0x1p-10f, normal);
    *scale = f8_select(bytes == 127, f8_set(0.0f), value);
    *minimum = f8_set(0.0f);
}

/* Q1_0: float16 d, 128 bits: 1 or -1. */
enum { Q1_0_BYTES = 18 };
INLINE u8x32 q1_0_bytes(const uint8_t *row, int64_t r) { return bit_bytes(word(row + r / 4 * Q1_0_BYTES + 2 + r % 4 * 4)) & 2; }
INLINE void q1_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    i32x8 halves = {0};
    for (int i = 0; i < count; i++) halves[i] = (int32_t)half_word(row + (u + i) / 4 * Q1_0_BYTES);
    *scale = f8_from_words(halves);
    *minimum = f8_set(0.0f);
}

static const packed_encoding IQ1_S = {.width = 32, .block_runs = 8, .block_bytes = IQ1_S_BYTES, .offset = IQ1_OFFSET, .bytes = iq1_s_bytes,
                                      .scales = iq1_s_scales};
static const packed_encoding IQ1_M = {.width = 16, .block_runs = 8, .block_bytes = IQ1_M_BYTES, .offset = IQ1_OFFSET, .bytes = iq1_m_bytes,
                                      .scales = iq1_m_scales};
static const packed_encoding IQ2_XXS = {.width = 32, .block_runs = 8, .block_bytes = IQ2_XXS_BYTES, .offset = IQ2_OFFSET,
                                        .bytes = iq2_xxs_bytes, .scales = iq2_xxs_scales};
static const packed_encoding IQ2_XS = {.width = 16, .block_runs = 8, .block_bytes = IQ2_XS_BYTES, .offset = IQ2_OFFSET,
                                       .bytes = iq2_xs_bytes, .scales = iq2_xs_scales};
static const packed_encoding IQ2_S = {.width = 16, .block_runs = 8, .block_bytes = IQ2_S_BYTES, .offset = IQ2_OFFSET, .bytes = iq2_s_bytes,
                                      .scales = iq2_s_scales};
static const packed_encoding IQ3_XXS = {.width = 32, .block_runs = 8, .block_bytes = IQ3_XXS_BYTES, .offset = IQ3_XXS_OFFSET,
                                        .bytes = iq3_xxs_bytes, .scales = iq3_xxs_scales};
static const packed_encoding IQ3_S = {.width = 32, .block_runs = 8, .block_bytes = IQ3_S_BYTES, .offset = IQ3_S_OFFSET,
                                      .bytes = iq3_s_bytes, .scales = iq3_s_scales};
static const packed_encoding NVFP4 = {.width = 16, .block_runs = 2, .block_bytes = NVFP4_BYTES, .offset = MXFP4_OFFSET,
                                      .bytes = nvfp4_bytes, .scales = nvfp4_scales};
static const packed_encoding Q1_0 = {.width = 32, .block_runs = 4, .block_bytes = Q1_0_BYTES, .offset = Q1_0_OFFSET, .bytes = q1_0_bytes,
                                     .scales = q1_0_scales};

#endif
