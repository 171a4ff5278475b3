/* How each packed encoding lies in memory: its codes as int16, and its scales, by units of 32 weights. */
#ifndef MILLSTREAM_ENCODINGS_H
#define MILLSTREAM_ENCODINGS_H

#include "quantise.h"
#include "simd.h"

enum { UNIT = 32 };

/* Eight units of one activation row, quantised: codes unit by unit, and as bytes (see quantise.h). */
typedef struct {
    const int16_t *q;
    const int8_t *low, *high;
} octet_activations;

/* One packed encoding. `codes` unpacks the 32 codes of the unit at p. `scales` gives scale and, where `has_minimum`, signed
 * minimum of the `count` <= 8 units from p on, the rest being 0. `dots`, where it is not NULL, gives the exact dots of the eight
 * units from p on; else they are made from the codes. */
typedef struct {
    int unit_bytes, has_minimum;
    void (*codes)(const uint8_t *p, i16x16 out[2]);
    void (*scales)(const uint8_t *p, int count, f8 *scale, f8 *minimum);
    i32x8 (*dots)(const uint8_t *p, octet_activations x);
} packed_encoding;

/* Eight float16 in the low halves of eight words. */
INLINE f8 f8_from_words(i32x8 words) {
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    return __builtin_convertvector((h8)__builtin_convertvector(words & 0xffff, u16x8), f8);
}

/* Q8_0: float16 d, int8 codes[32]. */
enum { Q8_0_BYTES = 34 };
INLINE void q8_0_codes(const uint8_t *p, i16x16 out[2]) {
    i8x16 low, high;
    memcpy(&low, p + 2, 16);
    memcpy(&high, p + 18, 16);
    out[0] = i16_from_i8(low);
    out[1] = i16_from_i8(high);
}
INLINE void q8_0_scales(const uint8_t *p, int count, f8 *scale, f8 *minimum) {
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    u16x8 bits = {0};
    for (int i = 0; i < count; i++) {
        uint16_t one;
        memcpy(&one, p + i * Q8_0_BYTES, 2);
        bits[i] = one;
    }
    *scale = __builtin_convertvector((h8)bits, f8);
    *minimum = f8_set(0.0f);
}

/* Q4_1: float16 d, float16 m, 16 bytes of nibbles: byte j holds weight j below, weight j + 16 above. */
enum { Q4_1_BYTES = 20 };
INLINE void q4_1_codes(const uint8_t *p, i16x16 out[2]) {
    u8x16 packed;
    memcpy(&packed, p + 4, 16);
    out[0] = i16_from_u8(packed & 15);
    out[1] = i16_from_u8(packed >> 4);
}
INLINE void q4_1_scales(const uint8_t *p, int count, f8 *scale, f8 *minimum) {
    i32x8 both = {0};
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
        for (int i = 0; i < count; i++) {
            int32_t one;
            memcpy(&one, p + i * Q4_1_BYTES, 4);
            both[i] = one;
        }
    }
    *scale = f8_from_words(both);
    *minimum = f8_from_words(both >> 16);
}
#ifdef __AVX2__
INLINE i32x8 q4_1_dots(const uint8_t *p, octet_activations x) {
    i32x8 words[4];
    gather_words(p + 4, Q4_1_BYTES, words);
    byte_sums sums = {{0}, {0}};
    for (int k = 0; k < 4; k++) {
        bytes_add(&sums, (u8x32)(words[k] & 0x0f0f0f0f), x.low + 32 * k, x.high + 32 * k);
        bytes_add(&sums, (u8x32)((words[k] >> 4) & 0x0f0f0f0f), x.low + 32 * (k + 4), x.high + 32 * (k + 4));
    }
    return bytes_total(sums);
}
#else
#define q4_1_dots NULL
#endif

static const packed_encoding Q8_0 = {Q8_0_BYTES, 0, q8_0_codes, q8_0_scales, NULL};
static const packed_encoding Q4_1 = {Q4_1_BYTES, 1, q4_1_codes, q4_1_scales, q4_1_dots};

#endif
