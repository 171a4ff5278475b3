/* Encodings of 32 weights a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4. Byte j of nibbles holds weight j below, j + 16 above. */
#ifndef MILLSTREAM_ENCODINGS_32_H
#define MILLSTREAM_ENCODINGS_32_H

#include "encodings.h"

INLINE void nibbles(const uint8_t *p, i16x16 out[2]) {
    const u8x16 packed = u8_load(p);
    out[0] = i16_from_u8(packed & 15);
    out[1] = i16_from_u8(packed >> 4);
}

/* 16 where the bit is set: bits 0 … 15 of each half of a word, in the order of the weights. */
INLINE void fifth_bits(const uint8_t *p, i16x16 out[2]) {
    const i16x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, (int16_t)-32768};
    for (int half = 0; half < 2; half++) {
        int16_t bits;
        memcpy(&bits, p + 2 * half, 2);
        const i16x16 all = (i16x16){0} + bits;
        out[half] = ((all & bit) != 0) & 16;
    }
}

#ifdef __AVX2__
/* Dots of the nibbles of eight units, as they lie, with the bytes of eight units' activations. */
INLINE i32x8 nibble_dots(const uint8_t *p, int64_t stride, octet_activations x) {
    i32x8 words[4];
    byte_sums sums = {{0}, {0}};
    gather_words(p, stride, words);
    for (int k = 0; k < 4; k++) {
        bytes_add(&sums, (u8x32)(words[k] & 0x0f0f0f0f), x.low + 32 * k, x.high + 32 * k);
        bytes_add(&sums, (u8x32)((words[k] >> 4) & 0x0f0f0f0f), x.low + 32 * (k + 4), x.high + 32 * (k + 4));
    }
    return bytes_total(sums);
}
#endif

/* Q4_0: float16 d, nibbles; 8 is taken away. */
enum { Q4_0_BYTES = 18 };
INLINE void q4_0_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    nibbles(row + r * Q4_0_BYTES + 2, out);
    out[0] -= 8;
    out[1] -= 8;
}
INLINE void q4_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    *scale = gather_halves(row + u * Q4_0_BYTES, Q4_0_BYTES, count);
    *minimum = f8_set(0.0f);
}

#ifdef __AVX2__
INLINE i32x8 q4_0_dots(const uint8_t *row, int64_t r, octet_activations x) {
    return nibble_dots(row + r * Q4_0_BYTES + 2, Q4_0_BYTES, x) - 8 * i32_load(x.sums);
}
#else
#define q4_0_dots NULL
#endif

/* Q4_1: float16 d, float16 m, nibbles. */
enum { Q4_1_BYTES = 20 };
INLINE void q4_1_codes(const uint8_t *row, int64_t r, i16x16 out[2]) { nibbles(row + r * Q4_1_BYTES + 4, out); }
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
        both = gather_each(p, Q4_1_BYTES, count);
    }
    *scale = f8_from_words(both);
    *minimum = f8_from_words(both >> 16);
}
#ifdef __AVX2__
INLINE i32x8 q4_1_dots(const uint8_t *row, int64_t r, octet_activations x) {
    return nibble_dots(row + r * Q4_1_BYTES + 4, Q4_1_BYTES, x);
}
#else
#define q4_1_dots NULL
#endif

/* Q5_0: float16 d, 32 fifth bits, nibbles; 16 is taken away. */
enum { Q5_0_BYTES = 22 };
INLINE void q5_0_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    i16x16 high[2];
    nibbles(row + r * Q5_0_BYTES + 6, out);
    fifth_bits(row + r * Q5_0_BYTES + 2, high);
    for (int half = 0; half < 2; half++) out[half] = (out[half] | high[half]) - 16;
}
INLINE void q5_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    *scale = gather_halves(row + u * Q5_0_BYTES, Q5_0_BYTES, count);
    *minimum = f8_set(0.0f);
}

/* Q5_1: float16 d, float16 m, 32 fifth bits, nibbles. */
enum { Q5_1_BYTES = 24 };
INLINE void q5_1_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    i16x16 high[2];
    nibbles(row + r * Q5_1_BYTES + 8, out);
    fifth_bits(row + r * Q5_1_BYTES + 4, high);
    for (int half = 0; half < 2; half++) out[half] |= high[half];
}
INLINE void q5_1_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    const i32x8 both = gather_each(row + u * Q5_1_BYTES, Q5_1_BYTES, count);
    *scale = f8_from_words(both);
    *minimum = f8_from_words(both >> 16);
}

/* Q8_0: float16 d, int8 codes[32]. */
enum { Q8_0_BYTES = 34 };
INLINE void q8_0_codes(const uint8_t *row, int64_t r, i16x16 out[2]) {
    for (int half = 0; half < 2; half++) out[half] = i16_from_i8((i8x16)u8_load(row + r * Q8_0_BYTES + 2 + 16 * half));
}
INLINE void q8_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    *scale = gather_halves(row + u * Q8_0_BYTES, Q8_0_BYTES, count);
    *minimum = f8_set(0.0f);
}

/* Levels that nibbles choose from; those of MXFP4 are doubled. */
static const int8_t IQ4_LEVELS[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t MXFP4_LEVELS[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
INLINE void levels(const uint8_t *p, const int8_t table[16], i16x16 out[2]) {
    const u8x16 packed = u8_load(p);
    out[0] = i16_from_i8(i8_choose(table, packed & 15));
    out[1] = i16_from_i8(i8_choose(table, packed >> 4));
}

/* IQ4_NL: float16 d, nibbles that choose a level. */
enum { IQ4_NL_BYTES = 18 };
INLINE void iq4_nl_codes(const uint8_t *row, int64_t r, i16x16 out[2]) { levels(row + r * IQ4_NL_BYTES + 2, IQ4_LEVELS, out); }

/* MXFP4: one byte of exponent e, nibbles that choose a level; d = 2^(e - 128). */
enum { MXFP4_BYTES = 17 };
INLINE void mxfp4_codes(const uint8_t *row, int64_t r, i16x16 out[2]) { levels(row + r * MXFP4_BYTES + 1, MXFP4_LEVELS, out); }
INLINE void mxfp4_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    i32x8 bits = {0};
    for (int i = 0; i < count; i++) {
        const int32_t e = row[(u + i) * MXFP4_BYTES];
        bits[i] = e < 2 ? 0x00200000 << e : (int32_t)((uint32_t)(e - 1) << 23);
    }
    *scale = (f8)bits;
    *minimum = f8_set(0.0f);
}

static const packed_encoding Q4_0 = {32, 1, Q4_0_BYTES, 0, q4_0_codes, q4_0_scales, q4_0_dots};
static const packed_encoding Q4_1 = {32, 1, Q4_1_BYTES, 1, q4_1_codes, q4_1_scales, q4_1_dots};
static const packed_encoding Q5_0 = {32, 1, Q5_0_BYTES, 0, q5_0_codes, q5_0_scales, NULL};
static const packed_encoding Q5_1 = {32, 1, Q5_1_BYTES, 1, q5_1_codes, q5_1_scales, NULL};
static const packed_encoding Q8_0 = {32, 1, Q8_0_BYTES, 0, q8_0_codes, q8_0_scales, NULL};
static const packed_encoding IQ4_NL = {32, 1, IQ4_NL_BYTES, 0, iq4_nl_codes, q4_0_scales, NULL};
static const packed_encoding MXFP4 = {32, 1, MXFP4_BYTES, 0, mxfp4_codes, mxfp4_scales, NULL};

#endif
