/* Activations in blocks of 32 as int16 with a float32 scale (CONTRACT.md, section 4). */
#ifndef MILLSTREAM_QUANTISE_H
#define MILLSTREAM_QUANTISE_H

#include <stdint.h>

typedef struct {
    int16_t *q;         /* [n, columns] */
    float *s;           /* [n, runs], runs = columns / 32 */
    int32_t *sums;      /* [n, runs] of q */
    int32_t *halves;    /* [n, runs, 2]: sums of 16 */
    int8_t *low, *high; /* [n, octets + 1][8][8][4], or NULL where nobody asks for bytes: q = 256 * high + low */
    int64_t columns, runs;
} activations;

/* Bytes lie by octets, eight runs from a run that eight divides: bytes 4k … 4k+3 of all eight runs together, so that
 * one vector holds them. The last octet is the last eight runs of the row, wherever it begins. */
enum { OCTET = 8, OCTET_BYTES = 256 };

void quantise_rows(const float *x, activations a, int64_t first, int64_t last);

#endif
