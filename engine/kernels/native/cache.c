#include "cache.h"

#include "simd.h"

enum { BLOCK = 32 }; /* elements that share a scale of q8_0 */

static int64_t chunk_bytes(const ms_cache *c, int64_t dim) {
    return CHUNK * (c->kind == MS_CACHE_F32 ? dim * 4 : c->kind == MS_CACHE_F16 ? dim * 2 : dim + dim / BLOCK * 2);
}

char *chunk_at(const ms_cache *c, void *base, int64_t dim, int64_t head, int64_t chunk) {
    return (char *)base + (head * ((c->capacity + CHUNK - 1) / CHUNK) + chunk) * chunk_bytes(c, dim);
}

static int is_finite(float x) { return x - x == 0.0f; }

/* The scale and the codes of 32 numbers: → 0 where the scale leaves the range of float16. */
static int quantise(const float *x, _Float16 *scale, int8_t codes[BLOCK]) {
    float top = 0.0f;
    int whole = 1;
    for (int i = 0; i < BLOCK; i++) {
        whole &= is_finite(x[i]);
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    }
    memset(codes, 0, BLOCK);
    if (!whole) {
        *scale = (_Float16)NAN;
        return 1;
    }
    *scale = (_Float16)(top / 127.0f);
    const float d = (float)*scale;
    if (!is_finite(d)) return 0;
    if (d == 0.0f) return 1;
    for (int i = 0; i < BLOCK; i++) {
        const float code = rintf(x[i] / d);
        codes[i] = (int8_t)(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
    }
    return 1;
}

/* Where element i of a key stands among its elements. */
static int64_t rank(int64_t i, int64_t dim) {
    const int64_t lane = i % 8, longer = dim % 8; /* lanes 0 … longer-1 hold one more */
    return lane * (dim / 8) + (lane < longer ? lane : longer) + i / 8;
}

static int64_t key_place(int64_t i, int64_t dim, int64_t at) { return (at / BAND * dim + rank(i, dim)) * BAND + at % BAND; }

static int store(const ms_cache *c, char *chunk, int64_t place, float x) {
    if (c->kind == MS_CACHE_F32) {
        ((float *)chunk)[place] = x;
        return 1;
    }
    const _Float16 half = (_Float16)x;
    ((_Float16 *)chunk)[place] = half;
    return is_finite((float)half) || !is_finite(x);
}

int store_key(const ms_cache *c, char *chunk, int64_t at, const float *x) {
    const int64_t dim = c->key_dim;
    int fits = 1;
    if (c->kind != MS_CACHE_Q8_0) {
        int64_t place = key_place(0, dim, at);
        for (int64_t lane = 0; lane < 8; lane++)
            for (int64_t i = lane; i < dim; i += 8, place += BAND) fits &= store(c, chunk, place, x[i]);
        return fits;
    }
    _Float16 *scales = (_Float16 *)(chunk + CHUNK * dim);
    for (int64_t block = 0; block < dim / BLOCK; block++) {
        int8_t codes[BLOCK];
        fits &= quantise(x + block * BLOCK, scales + block * CHUNK + at, codes);
        for (int64_t i = 0; i < BLOCK; i++) ((int8_t *)chunk)[key_place(block * BLOCK + i, dim, at)] = codes[i];
    }
    return fits;
}

int store_row(const ms_cache *c, int64_t dim, char *chunk, int64_t at, const float *x) {
    int fits = 1;
    if (c->kind != MS_CACHE_Q8_0) {
        int64_t i = 0;
        i32x8 lost = {0};
        if (c->kind == MS_CACHE_F16)
            for (; i + 8 <= dim; i += 8) {
                const f8 v = f8_load(x + i);
                const h8 half = __builtin_convertvector(v, h8);
                memcpy((_Float16 *)chunk + at * dim + i, &half, sizeof half);
                const f8 back = __builtin_convertvector(half, f8);
                lost |= (back - back != 0.0f) & (v - v == 0.0f);
            }
        for (int lane = 0; lane < 8; lane++) fits &= !lost[lane];
        for (; i < dim; i++) fits &= store(c, chunk, at * dim + i, x[i]);
        return fits;
    }
    _Float16 *scales = (_Float16 *)(chunk + CHUNK * dim) + at * (dim / BLOCK);
    for (int64_t block = 0; block < dim / BLOCK; block++)
        fits &= quantise(x + block * BLOCK, scales + block, (int8_t *)chunk + at * dim + block * BLOCK);
    return fits;
}

static void widen_halves(const void *chunk, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 8) f8_store(out + i, f8_from_half((const _Float16 *)chunk + i));
}

INLINE f8 codes_vector(const int8_t *p) {
    typedef int8_t i8x8 __attribute__((vector_size(8)));
    i8x8 codes;
    memcpy(&codes, p, sizeof codes);
    return __builtin_convertvector(__builtin_convertvector(codes, i32x8), f8);
}

void widen_keys(const ms_cache *c, const void *chunk, float *out) {
    const int64_t dim = c->key_dim;
    if (c->kind == MS_CACHE_F16) {
        widen_halves(chunk, CHUNK * dim, out);
        return;
    }
    const _Float16 *scales = (const _Float16 *)((const char *)chunk + CHUNK * dim);
    for (int64_t i = 0; i < dim; i++)
        for (int64_t at = 0; at < CHUNK; at += 8) {
            const int64_t place = key_place(i, dim, at);
            f8_store(out + place, f8_from_half(scales + i / BLOCK * CHUNK + at) * codes_vector((const int8_t *)chunk + place));
        }
}

void widen_rows(const ms_cache *c, int64_t dim, const void *chunk, float *out) {
    if (c->kind == MS_CACHE_F16) {
        widen_halves(chunk, CHUNK * dim, out);
        return;
    }
    const _Float16 *scales = (const _Float16 *)((const char *)chunk + CHUNK * dim);
    for (int64_t i = 0; i < CHUNK * dim; i += 8)
        f8_store(out + i, codes_vector((const int8_t *)chunk + i) * (float)scales[i / BLOCK]);
}
