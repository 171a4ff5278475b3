/* Rows of float weights against activation rows, element i to lane i mod 8 (CONTRACT.md, section 6).
 *
 * A strip's eight rows go side by side, which keeps the adders busy while each sum waits for its last term. For few activation rows
 * they are read straight from memory; for many they are decoded once.
 */
#ifndef MILLSTREAM_LINEAR_FLOATS_H
#define MILLSTREAM_LINEAR_FLOATS_H

#include "encodings_floats.h"
#include "linear_tiles.h"

/* out[r] = the lane sum of x times row r, for `count` <= 8 rows. */
INLINE void float_rows(int64_t encoding, const uint8_t *row, int64_t row_bytes, int count, const float *x, int64_t columns, float *out) {
    f8 lanes[STRIP];
    for (int r = 0; r < count; r++) lanes[r] = f8_set(0.0f);
    int64_t c = 0;
    for (; c + 8 <= columns; c += 8) {
        const f8 value = f8_load(x + c);
        for (int r = 0; r < count; r++) lanes[r] = lanes[r] + value * float_vector(encoding, row + r * row_bytes, c);
    }
    for (int lane = 0; c < columns; c++, lane++)
        for (int r = 0; r < count; r++) lanes[r][lane] += x[c] * float_element(encoding, row + r * row_bytes, c);
    for (int r = 0; r < count; r++) out[r] = f8_tree(lanes[r]);
}

INLINE void few_floats(int64_t encoding, const uint8_t *row, int64_t row_bytes, int rows, const float *x, int64_t columns, float *out) {
    if (rows == STRIP) {
        float_rows(encoding, row, row_bytes, STRIP, x, columns, out);
        return;
    }
    for (int r = 0; r < rows; r++) float_rows(encoding, row + r * row_bytes, row_bytes, 1, x, columns, out + r);
}

enum { FLOAT_BYTES = STRIP * (int)sizeof(float) }; /* of scratch for each column */

/* `rows` weight rows from `first` on against n activation rows: → out[n][width]. */
INLINE void float_strip(const ms_weight *w, int64_t first, int rows, const float *x, int64_t n, char *scratch, float *out, int64_t width) {
    const int64_t columns = w->columns, bytes = columns * (int64_t)sizeof(float);
    const uint8_t *row = w->data + first * w->row_bytes;
    if (n < TILE_FROM) {
        for (int64_t i = 0; i < n; i++, x += columns, out += width) {
            if (w->encoding == MS_F32)
                few_floats(MS_F32, row, w->row_bytes, rows, x, columns, out);
            else if (w->encoding == MS_F16)
                few_floats(MS_F16, row, w->row_bytes, rows, x, columns, out);
            else
                few_floats(MS_BF16, row, w->row_bytes, rows, x, columns, out);
        }
        return;
    }
    for (int eight = 0; eight < rows; eight += STRIP) {
        for (int r = 0; r < STRIP; r++)
            decode_floats(w->encoding, row + (eight + r < rows ? eight + r : eight) * w->row_bytes, columns, (float *)(scratch + r * bytes));
        for (int64_t i = 0; i < n; i++)
            float_rows(MS_F32, (const uint8_t *)scratch, bytes, STRIP, x + i * columns, columns, out + i * width + eight);
    }
}

#endif
