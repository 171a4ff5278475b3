/* How each packed encoding lies in memory: its codes as int16, and its scales, by units of 32 weights. */
#ifndef MILLSTREAM_ENCODINGS_H
#define MILLSTREAM_ENCODINGS_H

#include "simd.h"

enum { UNIT = 32 };

/* One packed encoding. `codes` writes unit u's 32 codes; `scales` writes the scale and, where `has_minimum`, the signed minimum
 * of units u … u+count-1, count <= 8, the rest being 0. */
typedef struct {
    int has_minimum;
    void (*codes)(const uint8_t *row, int64_t u, i16x16 out[2]);
    void (*scales)(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum);
} packed_encoding;

/* `count` float16 values, `stride` bytes apart, the rest 0. */
INLINE f8 gather_halves(const uint8_t *p, int64_t stride, int count) {
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    u16x8 bits = {0};
    for (int i = 0; i < count; i++) {
        uint16_t one;
        memcpy(&one, p + i * stride, 2);
        bits[i] = one;
    }
    return __builtin_convertvector((h8)bits, f8);
}

/* The same for two neighbouring float16 values each. */
INLINE void gather_half_pairs(const uint8_t *p, int64_t stride, int count, f8 *first, f8 *second) {
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    i32x8 both = {0};
    for (int i = 0; i < count; i++) {
        int32_t one;
        memcpy(&one, p + i * stride, 4);
        both[i] = one;
    }
    *first = __builtin_convertvector((h8)__builtin_convertvector(both & 0xffff, u16x8), f8);
    *second = __builtin_convertvector((h8)__builtin_convertvector((both >> 16) & 0xffff, u16x8), f8);
}

/* Q8_0: float16 d, int8 codes[32]. */
enum { Q8_0_BYTES = 34 };
INLINE void q8_0_codes(const uint8_t *row, int64_t u, i16x16 out[2]) {
    i8x16 low, high;
    memcpy(&low, row + u * Q8_0_BYTES + 2, 16);
    memcpy(&high, row + u * Q8_0_BYTES + 18, 16);
    out[0] = i16_from_i8(low);
    out[1] = i16_from_i8(high);
}
INLINE void q8_0_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    *scale = gather_halves(row + u * Q8_0_BYTES, Q8_0_BYTES, count);
    *minimum = f8_set(0.0f);
}

/* Q4_1: float16 d, float16 m, 16 bytes of nibbles: byte j holds weight j below, weight j + 16 above. */
enum { Q4_1_BYTES = 20 };
INLINE void q4_1_codes(const uint8_t *row, int64_t u, i16x16 out[2]) {
    u8x16 packed;
    memcpy(&packed, row + u * Q4_1_BYTES + 4, 16);
    out[0] = i16_from_u8(packed & 15);
    out[1] = i16_from_u8(packed >> 4);
}
INLINE void q4_1_scales(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum) {
    gather_half_pairs(row + u * Q4_1_BYTES, Q4_1_BYTES, count, scale, minimum);
}

static const packed_encoding Q8_0 = {0, q8_0_codes, q8_0_scales};
static const packed_encoding Q4_1 = {1, q4_1_codes, q4_1_scales};

#endif
