/* How packed encodings lie in memory: codes as int16 by runs of 32 weights, scales by units of one scale each. */
#ifndef MILLSTREAM_ENCODINGS_H
#define MILLSTREAM_ENCODINGS_H

#include "quantise.h"
#include "simd.h"

enum { RUN = 32 };

/* Eight runs of one activation row, quantised: codes run by run, and as bytes (see quantise.h). */
typedef struct {
    const int16_t *q;
    const int32_t *sums;
    const int8_t *low, *high;
} octet_activations;

/* One packed encoding. A block holds `block_runs` runs in `block_bytes`; a unit is `width` weights, 32 or 16.
 *
 * `codes` unpacks the 32 codes of run r of a row. `scales` gives scale and, where `has_minimum`, signed minimum of `count` units
 * from unit u of a row on, the rest being 0; count is 8 where a block holds more than one run. `dots`, where it is not NULL, gives the
 * exact dots of eight units from run r on; else they are made from the codes. */
typedef struct {
    int width, block_runs, block_bytes, has_minimum;
    void (*codes)(const uint8_t *row, int64_t r, i16x16 out[2]);
    void (*scales)(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum);
    i32x8 (*dots)(const uint8_t *row, int64_t r, octet_activations x);
} packed_encoding;

typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

INLINE u8x16 u8_load(const uint8_t *p) {
    u8x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight float16 in the low halves of eight words. */
INLINE f8 f8_from_words(i32x8 words) { return __builtin_convertvector((h8)__builtin_convertvector(words & 0xffff, u16x8), f8); }

/* Eight unsigned bytes. */
INLINE f8 f8_from_bytes(uint32_t first, uint32_t second) {
    const uint32_t both[2] = {first, second};
    u8x8 bytes;
    memcpy(&bytes, both, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, i32x8), f8);
}

INLINE uint32_t word(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* `count` float16 that lie `stride` bytes apart, the rest 0. */
INLINE f8 gather_halves(const uint8_t *p, int64_t stride, int count) {
    u16x8 bits = {0};
    for (int i = 0; i < count; i++) {
        uint16_t one;
        memcpy(&one, p + i * stride, 2);
        bits[i] = one;
    }
    return __builtin_convertvector((h8)bits, f8);
}

/* `count` words that lie `stride` bytes apart, the rest 0. */
INLINE i32x8 gather_each(const uint8_t *p, int64_t stride, int count) {
    i32x8 words = {0};
    for (int i = 0; i < count; i++) words[i] = (int32_t)word(p + i * stride);
    return words;
}

#endif
