/* What a few queries make of the keys and values of one chunk: scores, weights, weighted values (CONTRACT.md, section 10). */
#ifndef MILLSTREAM_ATTENTION_CHUNK_H
#define MILLSTREAM_ATTENTION_CHUNK_H

#include "cache.h"
#include "functions.h"

enum { VECTORS = BAND / 8 };

#if defined(__AVX512VL__) || defined(__ARM_NEON)
enum { QUERIES = 4 }; /* queries that share a read of keys or values: as many as the registers hold */
#else
enum { QUERIES = 3 };
#endif

/* A part or a state: largest score, sum of weights, then value_dim weighted values. */
enum { TOP, TOTAL, VALUES };

INLINE int element_bytes(int64_t kind) { return kind == MS_CACHE_F16 ? 2 : 4; }

INLINE f8 element_vector(int64_t kind, const void *base, int64_t at) {
    return kind == MS_CACHE_F16 ? f8_from_half((const _Float16 *)base + at) : f8_load((const float *)base + at);
}

/* Scores of `count` queries against one band of keys: lane sums, with neighbouring positions side by side. As many bytes as are read
 * are fetched from `ahead`. */
INLINE void band_scores(int64_t kind, const void *band, const float *q, int64_t dim, int count, const char *ahead, float (*out)[CHUNK]) {
    f8 lanes[8][QUERIES][VECTORS];
    int64_t at = 0;
    for (int lane = 0; lane < 8; lane++) {
        f8 sum[QUERIES][VECTORS];
        for (int h = 0; h < count; h++)
            for (int v = 0; v < VECTORS; v++) sum[h][v] = f8_set(0.0f);
        for (int64_t i = lane; i < dim; i += 8, at += BAND) {
            for (int line = 0; line < BAND * element_bytes(kind); line += 64) __builtin_prefetch(ahead + at * element_bytes(kind) + line);
            for (int v = 0; v < VECTORS; v++) {
                const f8 key = element_vector(kind, band, at + 8 * v);
                for (int h = 0; h < count; h++) sum[h][v] = sum[h][v] + key * q[h * dim + i];
            }
        }
        for (int h = 0; h < count; h++)
            for (int v = 0; v < VECTORS; v++) lanes[lane][h][v] = sum[h][v];
    }
    for (int h = 0; h < count; h++)
        for (int v = 0; v < VECTORS; v++) {
#define LANE(i) lanes[i][h][v]
            f8_store(out[h] + 8 * v, ((LANE(0) + LANE(4)) + (LANE(2) + LANE(6))) + ((LANE(1) + LANE(5)) + (LANE(3) + LANE(7))));
        }
}

INLINE float element(int64_t kind, const void *base, int64_t at) {
    return kind == MS_CACHE_F16 ? (float)((const _Float16 *)base)[at] : ((const float *)base)[at];
}

/* Scores of `count` queries against the keys of positions low … high-1 and some beside them, which lie one after the other. */
INLINE void row_scores(int64_t kind, const void *keys, const float *q, int64_t dim, int count, int low, int high, float (*out)[CHUNK]) {
    for (int j = low & ~(VECTORS - 1); j < high; j += VECTORS) {
        f8 lanes[QUERIES][VECTORS];
        for (int h = 0; h < count; h++)
            for (int p = 0; p < VECTORS; p++) lanes[h][p] = f8_set(0.0f);
        int64_t i = 0;
        for (; i + 8 <= dim; i += 8)
            for (int p = 0; p < VECTORS; p++) {
                const f8 key = element_vector(kind, keys, (j + p) * dim + i);
                for (int h = 0; h < count; h++) lanes[h][p] = lanes[h][p] + key * f8_load(q + h * dim + i);
            }
        for (int lane = 0; i < dim; i++, lane++)
            for (int p = 0; p < VECTORS; p++)
                for (int h = 0; h < count; h++) lanes[h][p][lane] += element(kind, keys, (j + p) * dim + i) * q[h * dim + i];
        for (int p = 0; p < VECTORS; p++)
            for (int h = 0; h < count; h++) out[h][j + p] = f8_tree(lanes[h][p]);
    }
}

/* `width` <= VECTORS vectors of `count` results from element d on: values of positions low … high-1, `step` elements apart, weighted and
 * summed in order. */
INLINE void weigh_vectors(int64_t kind, const void *values, int64_t step, float (*p)[CHUNK], int count, int low, int high, int64_t d,
                          int width, const char *ahead, float *out, int64_t stride) {
    f8 sum[QUERIES][VECTORS];
    for (int h = 0; h < count; h++)
        for (int v = 0; v < width; v++) sum[h][v] = f8_set(0.0f);
    for (int j = low; j < high; j++) {
        const int bytes = 8 * width * element_bytes(kind);
        for (int line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + d * CHUNK * element_bytes(kind) + j * bytes + line);
        for (int v = 0; v < width; v++) {
            const f8 value = element_vector(kind, values, j * step + d + 8 * v);
            for (int h = 0; h < count; h++) sum[h][v] = sum[h][v] + value * p[h][j];
        }
    }
    for (int h = 0; h < count; h++)
        for (int v = 0; v < width; v++) f8_store(out + h * stride + d + 8 * v, sum[h][v]);
}

INLINE void weigh_values(int64_t kind, const void *values, int64_t step, int64_t dim, float (*p)[CHUNK], int count, int low, int high,
                         const char *ahead, float *out, int64_t stride) {
    int64_t d = 0;
    for (; d + BAND <= dim; d += BAND) weigh_vectors(kind, values, step, p, count, low, high, d, VECTORS, ahead, out, stride);
    for (; d + 8 <= dim; d += 8) weigh_vectors(kind, values, step, p, count, low, high, d, 1, ahead, out, stride);
    for (; d < dim; d++)
        for (int h = 0; h < count; h++) {
            float sum = 0.0f;
            for (int j = low; j < high; j++) sum += element(kind, values, j * step + d) * p[h][j];
            out[h * stride + d] = sum;
        }
}

/* Scores of positions low … high-1 become weights; those beside them, up to a multiple of 8, become 0. The part gets its largest score
 * and its sum. */
INLINE void weigh_seen(float *p, int low, int high, int whole, float softcap, float *part) {
    const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const int first = low & ~7;
    f8 top = f8_set(-INFINITY), total = f8_set(0.0f);
    for (int j = first; j < high; j += 8) {
        f8 s = f8_load(p + j);
        if (softcap != 0.0f) f8_store(p + j, s = f8_tanh(s / softcap) * softcap);
        if (!whole) s = f8_select((lane + j >= low) & (lane + j < high), s, f8_set(-INFINITY));
        top = f8_max(s, top);
    }
    float most = -INFINITY;
    for (int i = 0; i < 8; i++) most = top[i] > most ? top[i] : most;
    for (int j = first; j < high; j += 8) {
        f8 weight = f8_exp(f8_load(p + j) - most);
        if (!whole) weight = f8_select((lane + j >= low) & (lane + j < high), weight, f8_set(0.0f));
        f8_store(p + j, weight);
        total = total + weight;
    }
    part[TOP] = most;
    part[TOTAL] = f8_tree(total);
}

static void weigh_scores(float *p, int low, int high, float softcap, float *part) {
    if (low == 0 && high == CHUNK)
        weigh_seen(p, 0, CHUNK, 1, softcap, part);
    else
        weigh_seen(p, low, high, 0, softcap, part);
}

#endif
