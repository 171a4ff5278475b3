/* Rows of an embedding: the reference decode of each encoding, scale times code, plus the minimum where there is one. */
#include "encodings_256.h"
#include "encodings_32.h"
#include "encodings_floats.h"
#include "encodings_iq.h"
#include "linear.h"
#include "pool.h"

INLINE void packed_row(packed_encoding e, const uint8_t *row, int64_t columns, float *out) {
    const int64_t units = columns / e.width;
    for (int64_t u = 0; u < units; u += 8) {
        const int count = units - u < 8 ? (int)(units - u) : 8;
        f8 scale, minimum;
        e.scales(row, u, count, &scale, &minimum);
        for (int i = 0; i < count; i++) {
            const int64_t at = (u + i) * e.width;
            i16x16 codes[2];
            run_codes(e, row, at / RUN, codes);
            for (int half = at % RUN / 16; half < (at % RUN + e.width) / 16; half++)
                for (int j = 0; j < 16; j++) {
                    const float value = scale[i] * (float)codes[half][j];
                    out[at / RUN * RUN + half * 16 + j] = e.has_minimum ? value + minimum[i] : value;
                }
        }
    }
}

void decode_row(const ms_weight *w, int64_t row, float *out) {
    const uint8_t *data = w->data + row * w->row_bytes;
#define PACKED(name) \
    case MS_##name: packed_row(name, data, w->columns, out); break;
    switch (w->encoding) {
        MS_PACKED(PACKED)
    default: decode_floats(w->encoding, data, w->columns, out);
    }
}

typedef struct {
    const ms_weight *table;
    const int32_t *tokens;
    float scale, *out;
} embed_job;

static void embed_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const embed_job *job = data;
    const int64_t columns = job->table->columns;
    for (int64_t i = first; i < last; i++) {
        float *out = job->out + i * columns;
        decode_row(job->table, job->tokens[i], out);
        for (int64_t j = 0; j < columns; j++) out[j] *= job->scale;
    }
}

int ms_embed(ms_pool *pool, const ms_weight *table, const int32_t *tokens, int64_t n, float scale, float *out) {
    embed_job job = {table, tokens, scale, out};
    pool_run(pool, embed_rows, &job, n, 16);
    return MS_OK;
}
