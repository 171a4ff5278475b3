/* Encodings of 256 weights a block: Q2_K … Q6_K, IQ4_XS, TQ1_0, TQ2_0. Run r is weights 32·r … 32·r + 31. */
#ifndef MILLSTREAM_ENCODINGS_256_H
#define MILLSTREAM_ENCODINGS_256_H

#include "encodings_32.h"

/* Bits shift … of 32 bytes, cut by mask. */
INLINE u8x32 fields(const uint8_t *p, int shift, uint8_t mask) { return (u8x32_load(p) >> (uint8_t)shift) & mask; }

/* Two bits a weight: run r is the pair r mod 4 of 32 bytes. */
INLINE u8x32 two_bits(const uint8_t *p, int r) { return fields(p + r / 4 * 32, r % 4 * 2, 3); }

#define BLOCK_OF(row, r, bytes) ((row) + (r) / 8 * (bytes))

/* Q2_K: 16 bytes of scales (minima in the high halves), two-bit codes, float16 d, float16 dmin; a scale for each 16. */
enum { Q2_K_BYTES = 84 };
INLINE u8x32 q2_k_bytes(const uint8_t *row, int64_t r) { return two_bits(BLOCK_OF(row, r, Q2_K_BYTES) + 16, r % 8); }
INLINE void q2_k_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u / 2, Q2_K_BYTES), *p = block + u % 16;
    const uint32_t a = word(p), b = word(p + 4);
    *scale = f8_from_bytes(a & 0x0f0f0f0f, b & 0x0f0f0f0f) * half_to_float(block + 80);
    *minimum = f8_from_bytes(a >> 4 & 0x0f0f0f0f, b >> 4 & 0x0f0f0f0f) * -half_to_float(block + 82);
}

/* Q3_K: 32 bytes of third bits, two-bit codes, 12 bytes of scales, float16 d; 4 and 32 are taken away. A scale for each 16: its lower
 * four bits fill eight bytes, low halves first, its upper two the other four. */
enum { Q3_K_BYTES = 110 };
INLINE u8x32 q3_k_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, Q3_K_BYTES);
    return two_bits(block + 32, r % 8) | fields(block, r % 8, 1) << 2;
}
INLINE void q3_k_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u / 2, Q3_K_BYTES);
    const int second = u % 16 / 8; /* scales 8 … 15 */
    const uint32_t a = word(block + 96) >> 4 * second, b = word(block + 100) >> 4 * second, c = word(block + 104) >> 4 * second;
    const uint32_t first = (a & 0x0f0f0f0f) | (c & 0x03030303) << 4, last = (b & 0x0f0f0f0f) | (c >> 2 & 0x03030303) << 4;
    *scale = (f8_from_bytes(first, last) - 32.0f) * half_to_float(block + 108);
    *minimum = f8_set(0.0f);
}

/* Q4_K: float16 d, float16 dmin, 12 bytes of scales and minima, nibbles; Q5_K: 32 bytes of fifth bits before the nibbles.
 * Scales and minima have six bits: 0-3 fill the lower six of bytes 0-3 and 4-7; of 4-7 bytes 8-11 hold the lower four (minima in the
 * high halves), and the upper two are on top of bytes 0-3 and 4-7. */
enum { Q4_K_BYTES = 144, Q5_K_BYTES = 176 };
INLINE void k_scales(const uint8_t *block, f8 *scale, f8 *minimum) {
    const uint32_t a = word(block + 4), b = word(block + 8), c = word(block + 12);
    *scale = f8_from_bytes(a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)) * half_to_float(block);
    *minimum = f8_from_bytes(b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) * -half_to_float(block + 2);
}
INLINE u8x32 q4_k_bytes(const uint8_t *row, int64_t r) {
    return fields(BLOCK_OF(row, r, Q4_K_BYTES) + 16 + r % 8 / 2 * 32, r % 2 * 4, 15);
}
INLINE void q4_k_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    k_scales(BLOCK_OF(row, u, Q4_K_BYTES), scale, minimum);
}
INLINE u8x32 q5_k_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, Q5_K_BYTES);
    return fields(block + 48 + r % 8 / 2 * 32, r % 2 * 4, 15) | fields(block + 16, r % 8, 1) << 4;
}
INLINE void q5_k_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    k_scales(BLOCK_OF(row, u, Q5_K_BYTES), scale, minimum);
}

/* Q6_K: 128 bytes of lower four bits, 64 of upper two, 16 signed scales, float16 d; 32 is taken away. Lower bits come by 64 bytes: their
 * low halves are two runs, their high halves the next two. A scale for each 16. */
enum { Q6_K_BYTES = 210 };
INLINE u8x32 q6_k_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *block = BLOCK_OF(row, r, Q6_K_BYTES);
    const int run = r % 8;
    return fields(block + run / 4 * 64 + run % 2 * 32, run % 4 / 2 * 4, 15) | two_bits(block + 128, run) << 4;
}
INLINE void q6_k_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    typedef int8_t i8x8 __attribute__((vector_size(8)));
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u / 2, Q6_K_BYTES);
    i8x8 scales;
    memcpy(&scales, block + 192 + u % 16, sizeof scales);
    *scale = __builtin_convertvector(__builtin_convertvector(scales, i32x8), f8) * half_to_float(block + 208);
    *minimum = f8_set(0.0f);
}

/* IQ4_XS: float16 d, 2 bytes of upper scale bits, 4 of lower ones, nibbles by 32 that choose a level; 32 is taken from the scales. */
enum { IQ4_XS_BYTES = 136 };
INLINE const uint8_t *iq4_xs_nibbles(const uint8_t *row, int64_t r) { return BLOCK_OF(row, r, IQ4_XS_BYTES) + 8 + r % 8 * 16; }
INLINE void iq4_xs_codes(const uint8_t *row, int64_t r, i16x16 out[2]) { iq4_levels(iq4_xs_nibbles(row, r), out); }
#if BYTE_TOP > 241
INLINE u8x32 iq4_xs_bytes(const uint8_t *row, int64_t r) { return u8_choose(IQ4_LEVELS, nibbles(iq4_xs_nibbles(row, r))); }
#else
#define iq4_xs_bytes NULL
#endif
INLINE void iq4_xs_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    const uint8_t *block = BLOCK_OF(row, u, IQ4_XS_BYTES);
    const int32_t low = (int32_t)word(block + 4), high = block[2] | block[3] << 8;
    const i32x8 at = {0, 1, 2, 3, 4, 5, 6, 7};
    const i32x8 scales = (((i32x8){0} + low) >> (at * 4) & 15) | (((i32x8){0} + high) >> (at * 2) & 3) << 4;
    *scale = f8_from_i32(scales - 32) * half_to_float(block);
    *minimum = f8_set(0.0f);
}

/* TQ1_0: 48 bytes of five base-3 digits, 4 of four, float16 d; TQ2_0: two-bit codes, float16 d. 1 is taken away.
 * A byte is a fraction of 256: times 3^k, wrapped, it is what follows its first k digits; tripled once more, it carries digit k. */
enum { TQ1_0_BYTES = 54, TQ2_0_BYTES = 66 };
INLINE i16x16 digits(u8x16 bytes, u16x16 power) {
    const u16x16 rest = __builtin_convertvector(bytes, u16x16) * power & 255;
    return (i16x16)(rest * 3 >> 8) - 1;
}
INLINE void tq1_0_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    static const uint16_t powers[5] = {1, 3, 9, 27, 81};
    const uint8_t *block = BLOCK_OF(row, r, TQ1_0_BYTES);
    const int run = r % 8;
    if (run < 5) {
        for (int half = 0; half < 2; half++) out[half] = digits(u8_load(block + 16 * half), (u16x16){0} + powers[run]);
    } else if (run < 7) {
        for (int half = 0; half < 2; half++) out[half] = digits(u8_load(block + 32), (u16x16){0} + powers[2 * (run - 5) + half]);
    } else {
        const uint32_t four = word(block + 48), all[4] = {four, four, four, four};
        const u16x16 power = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
        out[0] = digits(u8_load(block + 32), (u16x16){0} + powers[4]);
        out[1] = digits(u8_load((const uint8_t *)all), power);
    }
}
INLINE void tq1_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    *scale = f8_set(half_to_float(BLOCK_OF(row, u, TQ1_0_BYTES) + 52));
    *minimum = f8_set(0.0f);
}
INLINE u8x32 tq2_0_bytes(const uint8_t *row, int64_t r) { return two_bits(BLOCK_OF(row, r, TQ2_0_BYTES), r % 8); }
INLINE void tq2_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    (void)count;
    *scale = f8_set(half_to_float(BLOCK_OF(row, u, TQ2_0_BYTES) + 64));
    *minimum = f8_set(0.0f);
}

/* Encodings that may have `row_scales`. */
#define MS_TERNARY(each) each(TQ1_0) each(TQ2_0)

#define BLOCKS_OF_256 .block_runs = 8
static const packed_encoding Q2_K = {BLOCKS_OF_256, .width = 16, .block_bytes = Q2_K_BYTES, .has_minimum = 1, .bytes = q2_k_bytes,
                                     .scales = q2_k_scales};
static const packed_encoding Q3_K = {BLOCKS_OF_256, .width = 16, .block_bytes = Q3_K_BYTES, .offset = 4, .bytes = q3_k_bytes,
                                     .scales = q3_k_scales};
static const packed_encoding Q4_K = {BLOCKS_OF_256, .width = 32, .block_bytes = Q4_K_BYTES, .has_minimum = 1, .bytes = q4_k_bytes,
                                     .scales = q4_k_scales};
static const packed_encoding Q5_K = {BLOCKS_OF_256, .width = 32, .block_bytes = Q5_K_BYTES, .has_minimum = 1, .bytes = q5_k_bytes,
                                     .scales = q5_k_scales};
static const packed_encoding Q6_K = {BLOCKS_OF_256, .width = 16, .block_bytes = Q6_K_BYTES, .offset = 32, .bytes = q6_k_bytes,
                                     .scales = q6_k_scales};
static const packed_encoding IQ4_XS = {BLOCKS_OF_256, .width = 32, .block_bytes = IQ4_XS_BYTES, .offset = IQ4_OFFSET, .bytes = iq4_xs_bytes,
                                       .codes = iq4_xs_codes, .scales = iq4_xs_scales};
static const packed_encoding TQ1_0 = {BLOCKS_OF_256, .width = 32, .block_bytes = TQ1_0_BYTES, .codes = tq1_0_codes,
                                      .scales = tq1_0_scales};
static const packed_encoding TQ2_0 = {BLOCKS_OF_256, .width = 32, .block_bytes = TQ2_0_BYTES, .offset = 1, .bytes = tq2_0_bytes,
                                      .scales = tq2_0_scales};

#endif
