/* Strips of weight rows against activation rows, whatever the encoding (CONTRACT.md, sections 5 and 6). */
#ifndef MILLSTREAM_LINEAR_H
#define MILLSTREAM_LINEAR_H

#include "millstream.h"
#include "quantise.h"

/* Weight rows of a strip against fewer than TILE_FROM activation rows, and against more of them. */
enum { STRIP = 8 };
#if defined(__AVX512VNNI__)
enum { TILE = 16 };
#else
enum { TILE = 8 };
#endif

/* The form of bytes that strips against fewer than TILE_FROM rows read. */
activation_bytes strip_bytes(int64_t encoding);

/* Bytes of scratch for a strip of so many columns. */
int64_t strip_scratch(int64_t columns);

/* Strips that a thread takes at once against n activation rows: of few rows as many as keep its reads in one stream, as few as keep all
 * threads busy. */
int64_t strip_grain(const ms_pool *pool, int64_t n, int64_t items);

/* Weight rows `first` … against n activation rows, x as it is or, for packed encodings, a, times the scale of the whole matrix: → out[n][STRIP or TILE]. Elements past the last weight row are not to be used. */
void strip_dot(const ms_weight *w, int64_t first, const float *x, const activations *a, int64_t n, char *scratch, float *out);

/* Matrix i of a stack. */
static inline ms_weight matrix_of(const ms_stack *stack, int64_t i) {
    ms_weight w = stack->first;
    w.data += i * stack->apart;
    if (stack->scales) w.scale = stack->scales[i];
    return w;
}

/* The reference decode of a weight row, float32 [columns]. */
void decode_row(const ms_weight *w, int64_t row, float *out);

#endif
