/* F32, F16 and BF16 as float32. */
#ifndef MILLSTREAM_ENCODINGS_FLOATS_H
#define MILLSTREAM_ENCODINGS_FLOATS_H

#include "encodings.h"
#include "millstream.h"

INLINE f8 float_vector(int64_t encoding, const uint8_t *row, int64_t c) {
    if (encoding == MS_F32) return (f8)i32_load(row + 4 * c);
    if (encoding == MS_F16) return f8_from_half(row + 2 * c);
    return (f8)(__builtin_convertvector((u16x8)u8_load(row + 2 * c), i32x8) << 16);
}

INLINE float float_element(int64_t encoding, const uint8_t *row, int64_t c) {
    float value;
    if (encoding == MS_F16) return half_to_float(row + 2 * c);
    if (encoding == MS_F32) {
        memcpy(&value, row + 4 * c, 4);
    } else {
        const uint8_t bits[4] = {0, 0, row[2 * c], row[2 * c + 1]};
        memcpy(&value, bits, 4);
    }
    return value;
}

INLINE void decode_floats(int64_t encoding, const uint8_t *row, int64_t columns, float *out) {
    int64_t c = 0;
    for (; c + 8 <= columns; c += 8) f8_store(out + c, float_vector(encoding, row, c));
    for (; c < columns; c++) out[c] = float_element(encoding, row, c);
}

#endif
