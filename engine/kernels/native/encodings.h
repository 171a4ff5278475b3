/* How packed encodings lie in memory: codes by runs of 32 weights, scales by units of one scale each. */
#ifndef MILLSTREAM_ENCODINGS_H
#define MILLSTREAM_ENCODINGS_H

#include "quantise.h"
#include "simd.h"

/* Where eight blocks of one run each begin. */
typedef const uint8_t *const *eight_blocks;

/* One packed encoding. A block holds `block_runs` runs in `block_bytes`; a unit is `width` weights, 32 or 16.
 *
 * Run r of a row is unpacked by `bytes` to codes of 0 … BYTE_TOP that stand `offset` above the contract's, or, where that is NULL, by
 * `codes` to the contract's own. `scales` gives scale and, where `has_minimum`, signed minimum of `count` units from unit u of a row on;
 * those past `count` mean nothing. u is a multiple of 8.
 *
 * Blocks of one run also have `block_scales`, of eight blocks wherever they are, and where `block_dots` is not NULL, it gives
 * their exact dots with octet bytes of the activations (see quantise.h); `sums` are those of the activations. */
typedef struct {
    int width, block_runs, block_bytes, has_minimum, offset;
    u8x32 (*bytes)(const uint8_t *row, int64_t r);
    void (*codes)(const uint8_t *row, int64_t r, i16x16 out[2]);
    void (*scales)(const uint8_t *row, int64_t u, int count, f8 *scale, f8 *minimum);
    void (*block_scales)(eight_blocks block, f8 *scale, f8 *minimum);
    i32x8 (*block_dots)(eight_blocks block, const int8_t *bytes, i32x8 sums);
} packed_encoding;

/* The contract's codes of run r. */
INLINE void run_codes(packed_encoding e, const uint8_t *row, int64_t r, i16x16 out[2]) {
    if (!e.bytes) {
        e.codes(row, r, out);
        return;
    }
    const u8x32 bytes = e.bytes(row, r);
    for (int half = 0; half < 2; half++) {
        u8x16 part;
        memcpy(&part, (const uint8_t *)&bytes + 16 * half, sizeof part);
        out[half] = i16_from_u8(part) - (int16_t)e.offset;
    }
}

/* Which bytes of the activations an encoding's rows are multiplied by. */
INLINE activation_bytes bytes_for(packed_encoding e) { return e.block_dots ? OCTET_BYTES : BYTE_TOP && e.bytes ? RUN_BYTES : NO_BYTES; }

typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

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

/* A float16 at the beginning of each block. */
INLINE f8 gather_halves(eight_blocks block) {
    u16x8 bits;
    for (int i = 0; i < 8; i++) {
        uint16_t one;
        memcpy(&one, block[i], 2);
        bits[i] = one;
    }
    return __builtin_convertvector((h8)bits, f8);
}

/* The first word of each block. */
INLINE i32x8 gather_each(eight_blocks block) {
    i32x8 words;
    for (int i = 0; i < 8; i++) words[i] = (int32_t)word(block[i]);
    return words;
}

/* Sixteen bytes as 32 codes: their low halves, then their high ones. */
INLINE u8x32 nibbles(const uint8_t *p) {
    const u8x16 v = u8_load(p);
    const u8x32 both = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                               12, 13, 14, 15);
    return (u8x32)((u32x8)both >> (u32x8){0, 0, 0, 0, 4, 4, 4, 4}) & 15;
}

#endif
