/* Encodings of 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4. Byte j of nibbles holds weight j below, j + 16 above. */
#ifndef MILLSTREAM_ENCODINGS_32_H
#define MILLSTREAM_ENCODINGS_32_H

#include "encodings.h"

/* The scales of `count` units of a row from those of eight blocks; units past `count` repeat the last. */
#define ROW_SCALES(name, bytes) \
    INLINE void name##_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) { \
        const uint8_t *block[8]; \
        for (int i = 0; i < 8; i++) block[i] = row + (u + (i < count ? i : count - 1)) * (bytes); \
        name##_block_scales(block, scale, minimum); \
    }

/* float16 d first. */
INLINE void d_block_scales(eight_blocks block, f8 *scale, f8 *minimum) {
    *scale = gather_halves(block);
    *minimum = f8_set(0.0f);
}

/* float16 d, then float16 m. */
INLINE void dm_block_scales(eight_blocks block, f8 *scale, f8 *minimum) {
    const i32x8 both = gather_each(block);
    *scale = f8_from_words(both);
    *minimum = f8_from_words(both >> 16);
}

/* 16 where one of 32 bits is set. */
INLINE u8x32 fifth_bits(const uint8_t *p) {
    const i32x8 all = (i32x8){0} + (int32_t)word(p);
    const u8x32 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const u8x32 spread = __builtin_shufflevector((u8x32)all, (u8x32)all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 18, 18, 18, 18, 18, 18,
                                                 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
    return (u8x32)((spread & bit) == bit) & 16;
}

#if BYTE_TOP
/* Dots of the nibbles of eight blocks that begin `skip` bytes in, each through a table of levels where there is one. Levels are summed
 * by four calls of `bytes_add`, since those of MXFP4 go up to 24. */
INLINE i32x8 nibble_dots(eight_blocks block, int skip, const uint8_t *levels, const int8_t *bytes) {
    const u8x32 fifteen = (u8x32){0} + 15;
    i32x8 words[4], dots = {0};
    byte_sums sums = {{0}, {0}};
    gather_words(block, skip, words);
    for (int high = 0; high < 2; high++) {
        for (int k = 0; k < 4; k++) {
            u8x32 codes = (high ? (u8x32)((u32x8)words[k] >> 4) : (u8x32)words[k]) & fifteen;
            if (levels) codes = u8_choose(levels, codes);
            bytes_add(&sums, codes, bytes + 64 * (k + 4 * high));
        }
        if (levels || high) {
            dots += bytes_total(sums);
            sums = (byte_sums){{0}, {0}};
        }
    }
    return dots;
}
#endif

/* Q4_0: float16 d, nibbles; 8 is taken away. */
enum { Q4_0_BYTES = 18 };
INLINE u8x32 q4_0_bytes(const uint8_t *row, int64_t r) { return nibbles(row + r * Q4_0_BYTES + 2); }
#define q4_0_block_scales d_block_scales
ROW_SCALES(q4_0, Q4_0_BYTES)
#if BYTE_TOP
INLINE i32x8 q4_0_dots(eight_blocks block, const int8_t *bytes, i32x8 sums) { return nibble_dots(block, 2, NULL, bytes) - 8 * sums; }
#else
#define q4_0_dots NULL
#endif

/* Q4_1: float16 d, float16 m, nibbles. */
enum { Q4_1_BYTES = 20 };
INLINE u8x32 q4_1_bytes(const uint8_t *row, int64_t r) { return nibbles(row + r * Q4_1_BYTES + 4); }
INLINE void q4_1_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    const uint8_t *p = row + u * Q4_1_BYTES;
    i32x8 both;
    if (count == 8) {
        /* Eight units are forty words; those of d and m stand at eight different places modulo eight. */
        i32x8 w[5];
        memcpy(w, p, sizeof w);
        both = __builtin_shufflevector(w[0], w[1], 0, -1, 10, -1, -1, 5, -1, 15);
        both = __builtin_shufflevector(both, w[2], 0, -1, 2, -1, 12, 5, -1, 7);
        both = __builtin_shufflevector(both, w[3], 0, 9, 2, -1, 4, 5, 14, 7);
        both = __builtin_shufflevector(both, w[4], 0, 1, 2, 11, 4, 5, 6, 7);
        both = __builtin_shufflevector(both, both, 0, 5, 2, 7, 4, 1, 6, 3);
    } else {
        both = (i32x8){0};
        for (int i = 0; i < count; i++) both[i] = (int32_t)word(p + i * Q4_1_BYTES);
    }
    *scale = f8_from_words(both);
    *minimum = f8_from_words(both >> 16);
}
#if BYTE_TOP
INLINE i32x8 q4_1_dots(eight_blocks block, const int8_t *bytes, i32x8 sums) {
    (void)sums;
    return nibble_dots(block, 4, NULL, bytes);
}
#else
#define q4_1_dots NULL
#endif

/* Q5_0: float16 d, 32 fifth bits, nibbles; 16 is taken away. */
enum { Q5_0_BYTES = 22 };
INLINE u8x32 q5_0_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *p = row + r * Q5_0_BYTES;
    return nibbles(p + 6) | fifth_bits(p + 2);
}
#define q5_0_block_scales d_block_scales
ROW_SCALES(q5_0, Q5_0_BYTES)

/* Q5_1: float16 d, float16 m, 32 fifth bits, nibbles. */
enum { Q5_1_BYTES = 24 };
INLINE u8x32 q5_1_bytes(const uint8_t *row, int64_t r) {
    const uint8_t *p = row + r * Q5_1_BYTES;
    return nibbles(p + 8) | fifth_bits(p + 4);
}
#define q5_1_block_scales dm_block_scales
ROW_SCALES(q5_1, Q5_1_BYTES)

/* Q8_0: float16 d, int8 codes[32]. */
enum { Q8_0_BYTES = 34 };
INLINE void q8_0_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    for (int half = 0; half < 2; half++) out[half] = i16_from_i8((i8x16)u8_load(row + r * Q8_0_BYTES + 2 + 16 * half));
}
#define q8_0_block_scales d_block_scales
ROW_SCALES(q8_0, Q8_0_BYTES)

/* Levels that nibbles choose from, raised to be bytes: by 128, and those of MXFP4, which are doubled, by 12. */
static const uint8_t IQ4_LEVELS[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t MXFP4_LEVELS[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
enum { IQ4_OFFSET = 128, MXFP4_OFFSET = 12 };

/* The codes of sixteen bytes of nibbles that choose from IQ4_LEVELS. */
INLINE void iq4_levels(const uint8_t *p, i16x16 out[2]) {
    const u8x32 levels = u8_choose(IQ4_LEVELS, nibbles(p));
    for (int half = 0; half < 2; half++) {
        u8x16 part;
        memcpy(&part, (const uint8_t *)&levels + 16 * half, sizeof part);
        out[half] = i16_from_u8(part) - IQ4_OFFSET;
    }
}

/* IQ4_NL: float16 d, nibbles that choose a level. */
enum { IQ4_NL_BYTES = 18 };
INLINE void iq4_nl_codes(const uint8_t *row, int64_t r, i16x16 out[2]) { iq4_levels(row + r * IQ4_NL_BYTES + 2, out); }
#if BYTE_TOP > 241
INLINE i32x8 iq4_nl_dots(eight_blocks block, const int8_t *bytes, i32x8 sums) {
    return nibble_dots(block, 2, IQ4_LEVELS, bytes) - IQ4_OFFSET * sums;
}
#else
#define iq4_nl_dots NULL
#endif

/* MXFP4: one byte of exponent e, nibbles that choose a level; d = 2^(e - 128). */
enum { MXFP4_BYTES = 17 };
INLINE u8x32 mxfp4_bytes(const uint8_t *row, int64_t r) { return u8_choose(MXFP4_LEVELS, nibbles(row + r * MXFP4_BYTES + 1)); }
INLINE void mxfp4_block_scales(eight_blocks block, f8 *scale, f8 *minimum) {
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++) bytes |= (uint64_t)*block[i] << 8 * i;
    u8x8 exponents;
    memcpy(&exponents, &bytes, sizeof exponents);
    const i32x8 e = __builtin_convertvector(exponents, i32x8);
    const i32x8 tiny = e < 2, small = (e == 1) & 0x00200000;
    *scale = (f8)((tiny & (0x00200000 + small)) | (~tiny & ((e - 1) << 23)));
    *minimum = f8_set(0.0f);
}
ROW_SCALES(mxfp4, MXFP4_BYTES)
#if BYTE_TOP
INLINE i32x8 mxfp4_dots(eight_blocks block, const int8_t *bytes, i32x8 sums) {
    return nibble_dots(block, 1, MXFP4_LEVELS, bytes) - MXFP4_OFFSET * sums;
}
#else
#define mxfp4_dots NULL
#endif

#define BLOCKS_OF_32 .width = 32, .block_runs = 1
static const packed_encoding Q4_0 = {BLOCKS_OF_32, .block_bytes = Q4_0_BYTES, .offset = 8, .bytes = q4_0_bytes, .scales = q4_0_scales,
                                     .block_scales = d_block_scales, .block_dots = q4_0_dots};
static const packed_encoding Q4_1 = {BLOCKS_OF_32, .block_bytes = Q4_1_BYTES, .has_minimum = 1, .bytes = q4_1_bytes, .scales = q4_1_scales,
                                     .block_scales = dm_block_scales, .block_dots = q4_1_dots};
static const packed_encoding Q5_0 = {BLOCKS_OF_32, .block_bytes = Q5_0_BYTES, .offset = 16, .bytes = q5_0_bytes, .scales = q5_0_scales,
                                     .block_scales = d_block_scales};
static const packed_encoding Q5_1 = {BLOCKS_OF_32, .block_bytes = Q5_1_BYTES, .has_minimum = 1, .bytes = q5_1_bytes, .scales = q5_1_scales,
                                     .block_scales = dm_block_scales};
static const packed_encoding Q8_0 = {BLOCKS_OF_32, .block_bytes = Q8_0_BYTES, .codes = q8_0_codes, .scales = q8_0_scales,
                                     .block_scales = d_block_scales};
static const packed_encoding IQ4_NL = {BLOCKS_OF_32, .block_bytes = IQ4_NL_BYTES, .codes = iq4_nl_codes, .scales = q4_0_scales,
                                       .block_scales = d_block_scales, .block_dots = iq4_nl_dots};
static const packed_encoding MXFP4 = {BLOCKS_OF_32, .block_bytes = MXFP4_BYTES, .offset = MXFP4_OFFSET, .bytes = mxfp4_bytes,
                                      .scales = mxfp4_scales, .block_scales = mxfp4_block_scales, .block_dots = mxfp4_dots};

#endif
