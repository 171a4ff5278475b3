/* Activations in blocks of 32 as int16 with a float32 scale (CONTRACT.md, section 4). */
#ifndef MILLSTREAM_QUANTISE_H
#define MILLSTREAM_QUANTISE_H

#include <stdint.h>

typedef struct {
    int16_t *q;    /* [n, columns] */
    float *s;      /* [n, units], units = columns / 32 rounded up to a multiple of 8; the rest is 0 */
    int32_t *sums; /* [n, units] of q */
    int64_t columns, units;
} activations;

void quantise_rows(const float *x, activations a, int64_t first, int64_t last);

#endif
