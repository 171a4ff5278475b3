/* How keys and values lie in the cache (CONTRACT.md, section 9).
 *
 * A chunk of 64 positions of one head lies together. Its keys lie in bands of 32 positions, element by element, the elements of lane 0
 * first, then those of lane 1 …: attention reads them in one stream, with neighbouring positions side by side. Its values lie
 * position by position. q8_0 puts the scales after the codes: keys [key_dim / 32][64], values [64][value_dim / 32].
 *
 * Latent keys, whose first elements are the values, lie position by position too. So nothing lies there twice, and what the scores have
 * read is still near when it is weighted; so wide a key does not need its neighbours beside it.
 */
#ifndef MILLSTREAM_CACHE_H
#define MILLSTREAM_CACHE_H

#include "millstream.h"

enum { CHUNK = 64, BAND = 32 };

/* The first byte of a chunk. */
char *chunk_at(const ms_cache *c, void *base, int64_t dim, int64_t head, int64_t chunk);

static inline int is_latent(const ms_cache *c) { return c->keys == c->values; }

/* Put one key, or one row of values or latent keys, at position `at` of a chunk, rounded: → 0 where a finite number does not fit. */
int store_key(const ms_cache *c, char *chunk, int64_t at, const float *x);
int store_row(const ms_cache *c, int64_t dim, char *chunk, int64_t at, const float *x);

/* A whole chunk as float32, in the order in which it lies. */
void widen_keys(const ms_cache *c, const void *chunk, float *out);
void widen_rows(const ms_cache *c, int64_t dim, const void *chunk, float *out);

#endif
