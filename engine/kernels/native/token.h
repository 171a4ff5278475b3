/* Activations that BitNet rounds to int8, one scale a token (CONTRACT.md, section 6). */
#ifndef MILLSTREAM_TOKEN_H
#define MILLSTREAM_TOKEN_H

#include "quantise.h"

/* Rows first … last-1 of x to their codes −128 … 127 in `q`, and in the low halves of `bytes` where there are any; at the beginning of a row
 * of `s` stands its a = 127 ÷ max(m, 10⁻⁵), NaN for a row with Inf or NaN, at that of `sums` the sum of its codes. */
void token_rows(const float *x, activations a, int64_t first, int64_t last);

#endif
