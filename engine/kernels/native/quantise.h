/* Activations in blocks of 32 as int16 with a float32 scale (CONTRACT.md, section 4). */
#ifndef MILLSTREAM_QUANTISE_H
#define MILLSTREAM_QUANTISE_H

#include <stdint.h>

#include "simd.h"

/* Bytes of q = 256 * high + low, both signed. RUN_BYTES: 32 low ones, then 32 high ones, run by run. OCTET_BYTES: by eight runs, bytes
 * 4k … 4k+3 of all eight together, low ones, then high ones, k = 0 … 7; so that a vector's eight words belong to eight runs. */
typedef enum { NO_BYTES = 0, RUN_BYTES = 1, OCTET_BYTES = 2 } activation_bytes;
enum { RUN = 32, OCTET = 8, RUN_SIZE = 64, OCTET_SIZE = 512 };

/* Activation rows from which weights go through tiles, and rows that share a pass over a tile. */
enum { TILE_FROM = 4, TOKENS = 8 };

/* n rows of `runs` blocks. Below TILE_FROM rows, q lies row by row; from there on by as many rows as share a pass, pairs of neighbours
 * from all of them together: [n / TOKENS][columns / 2][TOKENS][2], the last block as large as the others.
 *
 * The runs past the last whole octet are there again, once for each of as many weight rows as an octet holds, the rest being 0: s and
 * sums have another eight elements for them, `octets` another octet. */
typedef struct {
    int16_t *q;
    float *s;        /* [n, stride] */
    int32_t *sums;   /* [n, stride] of q */
    int32_t *halves; /* [n, runs, 2]: sums of 16 */
    int8_t *bytes;   /* [n, runs][RUN_SIZE], or NULL */
    int8_t *octets;  /* [n, runs / 8 + 1][OCTET_SIZE], or NULL */
    int64_t n, columns, runs, stride;
} activations;

/* Weight rows whose last runs an octet holds. */
static inline int64_t rows_per_octet(int64_t runs) { return runs % OCTET ? OCTET / (runs % OCTET) : 0; }

/* Bytes of memory for n rows. */
int64_t activations_size(int64_t n, int64_t columns, int bytes);

/* Lay the arrays out in `memory`. */
activations activations_in(char *memory, int64_t n, int64_t columns, int bytes);

void quantise_row(const float *x, activations a, int64_t row);
void quantise_rows(const float *x, activations a, int64_t first, int64_t last);

/* Run r of a row to its place in `q`. */
INLINE void store_codes(activations a, int64_t row, int64_t r, const i16x16 codes[2]) {
    if (a.n < TILE_FROM) {
        memcpy(a.q + row * a.columns + r * RUN, codes, RUN * sizeof *a.q);
        return;
    }
    int16_t *q = a.q + (row / TOKENS * a.columns + r * RUN) * TOKENS + row % TOKENS * 2;
    for (int p = 0; p < RUN / 2; p++) memcpy(q + p * TOKENS * 2, (const int16_t *)codes + 2 * p, 4);
}

#endif
